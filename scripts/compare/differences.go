package main

// differences are the steps whose answers are meant to differ, with the reason.
var differences = map[string]string{
	"offset by time, to come":            "5.x's rule, which suits 4.9's clients: beyond the last message is the queue's end; 4.9.4 names the last message",
	"pull half messages":                 "4.9.4 has no entry of its half topic in the tables and answers 17; here system topics can be read",
	"consumer offset, none and no guess": "setZeroIfNotFound is 5.x's; 4.9.4 does not read it",
	"max offset of a deleted topic":      "a topic that is created again goes on at its old offsets, so they are kept",
}
