package checker

import "slices"

// Workloads, as jepsen/workload has them.
const (
	Queue       = "queue"
	Ordered     = "ordered"
	Offsets     = "offsets"
	Batch       = "batch"
	Delay       = "delay"
	Transaction = "transaction"
	Retry       = "retry"
	Topics      = "topics"
	Sizes       = "sizes"
	Retention   = "retention"
	Membership  = "membership"
)

// checks are all there are. Their names are what results, histories and tables call them.
func checks() []check {
	return []check{
		{"drained", drained},
		{"acknowledged but lost", lost},
		{"missing on a node", lostOnNode},
		{"read but never sent", neverSent},
		{"refused but stored", refusedButStored},
		{"never acknowledged", neverAcknowledged},
		{"bytes differ", bytesDiffer},
		{"other message at the acknowledged offset", ackedPosition},
		{"out of order", order},
		{"two values at one offset", oneValue},
		{"holes in a queue", holes},
		{"duplicates", duplicates},
		{"delivered again", redelivered},
		{"never delivered to a group", undelivered},
		{"half a batch", halfBatch},
		{"key out of order", keyOrder},
		{"two owners of a queue", twoOwners},
		{"delay not kept", delayKept},
		{"transaction not kept", transactionKept},
		{"retry not kept", retryKept},
		{"offsets not linearizable", offsetsLinearizable},
		{"topics not linearizable", topicsLinearizable},
		{"nothing expired", nothingExpired},
		{"expired too early", expiredEarly},
		{"two leaders in a term", twoLeaders},
		{"leader deposed without cause", deposed},
		{"unknown outcomes", unknownOutcomes},
		{"logs differ", logsEqual},
	}
}

type check struct {
	name string
	run  func(*view) Result
}

// checkOf returns the check of a name, nil if there is none.
func checkOf(name string) func(*view) Result {
	for _, c := range checks() {
		if c.name == name {
			return c.run
		}
	}
	return nil
}

// stored is what holds of every message, whatever it was for.
var stored = []string{"drained", "acknowledged but lost", "missing on a node", "read but never sent", "refused but stored", "never acknowledged", "bytes differ",
	"two values at one offset", "holes in a queue", "duplicates"}

// ended is what holds of every run.
var ended = []string{"two leaders in a term", "leader deposed without cause", "unknown outcomes", "logs differ"}

// placed is what holds of messages whose acknowledgement names their place.
var placed = []string{"other message at the acknowledged offset", "out of order", "delivered again", "never delivered to a group"}

// Checks are the names of the checks that a workload is to stand, nil for one that is not known.
func Checks(workload string) []string {
	switch workload {
	case Queue, Sizes, Membership:
		return slices.Concat(stored, placed, ended)
	case Batch:
		return slices.Concat(stored, placed, []string{"half a batch"}, ended)
	case Retention:
		return slices.Concat(stored, placed, []string{"nothing expired", "expired too early"}, ended)
	case Ordered:
		return slices.Concat(stored, placed, []string{"key out of order", "two owners of a queue"}, ended)
	case Delay:
		return slices.Concat(stored, []string{"delivered again", "never delivered to a group", "delay not kept"}, ended)
	case Transaction:
		return slices.Concat(stored, []string{"delivered again", "never delivered to a group", "transaction not kept"}, ended)
	case Retry:
		return slices.Concat(stored, placed[:2], []string{"never delivered to a group", "retry not kept"}, ended)
	case Offsets:
		return slices.Concat([]string{"offsets not linearizable"}, ended)
	case Topics:
		return slices.Concat([]string{"topics not linearizable"}, ended)
	}
	return nil
}
