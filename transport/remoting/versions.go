package remoting

import "strconv"

// Values of Command.Version (RocketMQ MQVersion): the ordinals of the releases that
// matter here.
const (
	Version3_0_6Snapshot int32 = 26
	Version3_0_7Snapshot int32 = 28
	Version3_1_8Snapshot int32 = 62
	Version3_4_9         int32 = 121
	Version4_1_0Snapshot int32 = 232
	Version4_1_0         int32 = 233
	Version4_5_2         int32 = 317
	Version4_9_2         int32 = 397
	Version4_9_3         int32 = 399
	Version4_9_4         int32 = 401
	Version4_9_5         int32 = 403
	Version4_9_8         int32 = 409
	Version5_0_0         int32 = 413
	Version5_1_4         int32 = 441
	Version5_2_0         int32 = 453
	Version5_3_0         int32 = 473
	Version5_3_1         int32 = 475
	Version5_3_3         int32 = 479
)

// What a peer's version decides.
const (
	// VersionMinResetOffset is the first client that understands
	// RESET_CONSUMER_CLIENT_OFFSET.
	VersionMinResetOffset = Version3_0_7Snapshot
	// VersionMinRunningInfo is the first client that understands
	// GET_CONSUMER_RUNNING_INFO and CONSUME_MESSAGE_DIRECTLY.
	VersionMinRunningInfo = Version3_1_8Snapshot
	// VersionMinMaxReconsumeTimes is the first client whose maxReconsumeTimes field
	// overrides the group's setting.
	VersionMinMaxReconsumeTimes = Version3_4_9
	// VersionMinSQL92 is the broker version below which Java clients refuse SQL92
	// pulls.
	VersionMinSQL92 = Version4_1_0Snapshot
	// VersionMinStandardJSON is the first client to which a 4.x name server sends
	// routes in standard JSON.
	VersionMinStandardJSON = Version4_9_4
)

// VersionName returns the release of a version ordinal that is named above, the
// number for any other.
func VersionName(version int32) string {
	switch version {
	case Version3_0_6Snapshot:
		return "3.0.6-SNAPSHOT"
	case Version3_0_7Snapshot:
		return "3.0.7-SNAPSHOT"
	case Version3_1_8Snapshot:
		return "3.1.8-SNAPSHOT"
	case Version3_4_9:
		return "3.4.9"
	case Version4_1_0Snapshot:
		return "4.1.0-SNAPSHOT"
	case Version4_1_0:
		return "4.1.0"
	case Version4_5_2:
		return "4.5.2"
	case Version4_9_2:
		return "4.9.2"
	case Version4_9_3:
		return "4.9.3"
	case Version4_9_4:
		return "4.9.4"
	case Version4_9_5:
		return "4.9.5"
	case Version4_9_8:
		return "4.9.8"
	case Version5_0_0:
		return "5.0.0"
	case Version5_1_4:
		return "5.1.4"
	case Version5_2_0:
		return "5.2.0"
	case Version5_3_0:
		return "5.3.0"
	case Version5_3_1:
		return "5.3.1"
	case Version5_3_3:
		return "5.3.3"
	}
	return strconv.Itoa(int(version))
}
