package command

// QueueName names a queue as consumers lock it.
type QueueName struct {
	Topic string `json:"t"`
	// Broker is the brokerName that the client gave; empty for the cluster's own.
	Broker  string `json:"b,omitempty"`
	QueueID int32  `json:"q"`
}

// LockedQueue is a queue that changes its owner.
type LockedQueue struct {
	QueueName
	// From is the owner whose lease has run out, as measured by the leader that proposes; empty if there was none.
	From string `json:"f,omitempty"`
}

// QueueLock is the payload of KindQueueLock: a consumer becomes the owner of queues that nobody owns, or that From owns. Others are
// passed over. No queues: the command changes nothing, and its being applied shows that whoever proposed it still led.
//
// There is no time in it: how long an owner was silent is measured by the leader, and replicas do not compare clocks.
type QueueLock struct {
	Group  string        `json:"g"`
	Owner  string        `json:"c"` // client id
	Queues []LockedQueue `json:"qs,omitempty"`
}

// QueueUnlock is the payload of KindQueueUnlock: owners give queues up, or have lost them. A queue that another owns by now stays with it.
type QueueUnlock struct {
	Locks []QueueLock `json:"locks"`
}

// QueueLocksAdopt is the payload of KindQueueLocksAdopt: the locks that a leader granted before the cluster's level allowed to replicate them. From
// here on every lock that a client may count on is in the tables.
type QueueLocksAdopt struct {
	Locks []QueueLock `json:"locks,omitempty"`
}
