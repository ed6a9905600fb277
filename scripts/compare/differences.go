package main

// storedDifferences are the queues whose records, or units in the consume queue, are meant to differ, with the reason. Properties stand in the order in which the client
// sent them, where 4.9.4 has that of a Java hash map: no reader minds, and records with that difference alone are counted apart.
var storedDifferences = map[string]string{
	"records of OFFSET_MOVED_EVENT/0":          "4.9.4 writes a message about each pull that it sends elsewhere (21), which nobody reads; 5.x does not, nor is it done here: a pull stores nothing",
	"consume queue OFFSET_MOVED_EVENT/0":       "likewise",
	"consume queue RMQ_SYS_TRANS_HALF_TOPIC/0": "4.9.4 destroys the half topic's consume queue whenever any topic is deleted; its open transactions are then never asked about. Here they go on",
	"consume queue CmpAuto/0":                  "a deleted topic's queue stays, with its messages hidden: one that is created again goes on at its old offsets",
}

// differences are the steps whose answers are meant to differ, with the reason.
var differences = map[string]string{
	"offset by time, to come":            "5.x's rule, which suits 4.9's clients: beyond the last message is the queue's end; 4.9.4 names the last message",
	"pull half messages":                 "4.9.4 has no entry of its half topic in the tables and answers 17; here system topics can be read",
	"consumer offset, none and no guess": "setZeroIfNotFound is 5.x's; 4.9.4 does not read it",
	"max offset of a deleted topic":      "a topic that is created again goes on at its old offsets, so they are kept",
}
