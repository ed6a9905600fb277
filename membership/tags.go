package membership

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Tags travel as a memberlist node's meta data, at most 512 bytes:
//
//	u8 version 1 | field*
//	field: u8 id | uvarint length | value
//
// Values are UTF-8 text, or a uvarint for numbers. Empty fields are left out, unknown ones
// skipped, so that a later version may add some. The node id is memberlist's name and not
// repeated. A change that old nodes must not misread takes another version number.
const (
	tagsVersion = 1
	maxTags     = 512 // memberlist.MetaMaxSize

	tagCluster      = 1
	tagClusterID    = 2
	tagGroup        = 3
	tagClient       = 4
	tagRaft         = 5
	tagHTTP         = 6
	tagVersion      = 7
	tagExpect       = 8
	tagFlags        = 9
	tagTerm         = 10
	tagIncarnation  = 11
	tagLevel        = 12
	tagClusterLevel = 13
)

// Bits of tagFlags.
const (
	flagHasData = 1
	flagLeaving = 2 // the node is saying good-bye: its death is a leave
	flagFull    = 4
	flagFetches = 8
)

func encodeTags(t Tags, leaving bool) ([]byte, error) {
	b := append(make([]byte, 0, maxTags), tagsVersion)
	for _, f := range []struct {
		id uint8
		v  string
	}{{tagCluster, t.ClusterName}, {tagClusterID, t.ClusterID}, {tagGroup, t.Group}, {tagClient, t.ClientAddr}, {tagRaft, t.RaftAddr},
		{tagHTTP, t.HTTPAddr}, {tagVersion, t.Version}, {tagIncarnation, t.Incarnation}} {
		if f.v == "" {
			continue
		}
		if !utf8.ValidString(f.v) {
			return nil, fmt.Errorf("membership: tag %q is no valid text", f.v)
		}
		b = append(b, f.id)
		b = binary.AppendUvarint(b, uint64(len(f.v)))
		b = append(b, f.v...)
	}
	if t.BootstrapExpect < 0 {
		return nil, fmt.Errorf("membership: bootstrap-expect is %d", t.BootstrapExpect)
	}
	if t.Level < 0 || t.ClusterLevel < 0 {
		return nil, fmt.Errorf("membership: feature levels are %d and %d", t.Level, t.ClusterLevel)
	}
	var flags uint64
	if t.HasData {
		flags |= flagHasData
	}
	if leaving {
		flags |= flagLeaving
	}
	if t.DiskFull {
		flags |= flagFull
	}
	if t.FetchesLog {
		flags |= flagFetches
	}
	b = appendNumber(b, tagExpect, uint64(t.BootstrapExpect))
	b = appendNumber(b, tagFlags, flags)
	b = appendNumber(b, tagTerm, t.LeaderTerm)
	b = appendNumber(b, tagLevel, uint64(t.Level))
	b = appendNumber(b, tagClusterLevel, uint64(t.ClusterLevel))
	if len(b) > maxTags {
		return nil, fmt.Errorf("membership: tags take %d bytes, %d are allowed: shorten names or addresses", len(b), maxTags)
	}
	return b, nil
}

func appendNumber(b []byte, id uint8, n uint64) []byte {
	if n == 0 {
		return b
	}
	var v [binary.MaxVarintLen64]byte
	l := binary.PutUvarint(v[:], n)
	b = append(b, id, byte(l))
	return append(b, v[:l]...)
}

// decodeTags reads tags of the node named nodeID. The result does not share b.
func decodeTags(nodeID string, b []byte) (t Tags, leaving bool, err error) {
	t.NodeID = nodeID
	if len(b) == 0 {
		return Tags{}, false, fmt.Errorf("%w: none", ErrBadTags)
	}
	if b[0] != tagsVersion {
		return Tags{}, false, fmt.Errorf("%w: version %d, this raftmq reads %d", ErrBadTags, b[0], tagsVersion)
	}
	total, rest := len(b), b[1:]
	for len(rest) > 0 {
		id := rest[0]
		n, l := binary.Uvarint(rest[1:])
		if l <= 0 || n > uint64(len(rest)-1-l) {
			return Tags{}, false, fmt.Errorf("%w: field %d at %d runs past the end at %d", ErrBadTags, id, total-len(rest), total)
		}
		v := rest[1+l : 1+l+int(n)]
		rest = rest[1+l+int(n):]
		switch id {
		case tagCluster:
			t.ClusterName = string(v)
		case tagClusterID:
			t.ClusterID = string(v)
		case tagGroup:
			t.Group = string(v)
		case tagClient:
			t.ClientAddr = string(v)
		case tagRaft:
			t.RaftAddr = string(v)
		case tagHTTP:
			t.HTTPAddr = string(v)
		case tagVersion:
			t.Version = string(v)
		case tagIncarnation:
			t.Incarnation = string(v)
		case tagExpect, tagFlags, tagTerm, tagLevel, tagClusterLevel:
			num, l := binary.Uvarint(v)
			if l <= 0 || l != len(v) {
				return Tags{}, false, fmt.Errorf("%w: field %d is no number", ErrBadTags, id)
			}
			switch id {
			case tagExpect:
				if num > 1<<20 {
					return Tags{}, false, fmt.Errorf("%w: bootstrap-expect %d", ErrBadTags, num)
				}
				t.BootstrapExpect = int(num)
			case tagFlags:
				t.HasData, leaving, t.DiskFull, t.FetchesLog = num&flagHasData != 0, num&flagLeaving != 0, num&flagFull != 0, num&flagFetches != 0
			case tagTerm:
				t.LeaderTerm = num
			case tagLevel, tagClusterLevel:
				if num > 1<<20 {
					return Tags{}, false, fmt.Errorf("%w: feature level %d", ErrBadTags, num)
				}
				if id == tagLevel {
					t.Level = int(num)
				} else {
					t.ClusterLevel = int(num)
				}
			}
		}
	}
	return t, leaving, nil
}
