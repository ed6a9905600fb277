package history

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

func TestRoundTripAndUnknown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	r, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	acked := r.Begin(Op{Kind: Send, Process: "p1", Value: "p1-0"})
	open := r.Begin(Op{Kind: Send, Process: "p2", Value: "p2-0", Queue: -1, Offset: -1, Wish: WishCommit})
	open.Offset = 7 // its owner is at work; what Begin got counts
	acked.Outcome, acked.Queue, acked.Offset, acked.Attempts = OK, 0, 0, 2
	r.End(acked)
	r.Add(Op{Kind: Receive, Process: "c1", Outcome: OK, Value: "p1-0"})
	ops, err := r.Close()
	if err != nil {
		t.Fatal(err)
	}
	// An answer after Close changes nothing.
	open.Outcome = OK
	r.End(open)
	r.Add(Op{Kind: Receive})
	again, err := r.Close()
	if err != nil || len(again) != 3 {
		t.Fatalf("second Close: %d operations, %v", len(again), err)
	}
	if ops[0].Value != "p1-0" || ops[0].Outcome != OK || ops[0].End < ops[0].Start {
		t.Errorf("acknowledged send: %+v", ops[0])
	}
	if last := ops[2]; last.Value != "p2-0" || last.Outcome != Unknown || last.Offset != -1 || last.Wish != WishCommit {
		t.Errorf("a send without an answer must be unknown: %+v", last)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, ops) {
		t.Errorf("read back\n%+v\nwant\n%+v", read, ops)
	}
}

func TestReadRefusesDamage(t *testing.T) {
	for name, text := range map[string]string{
		"cut":     `{"kind":"send","proc`,
		"unknown": `{"kind":"send","surprise":1}`,
		"type":    `{"kind":"send","queue":"x"}`,
	} {
		if ops, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: read %v", name, ops)
		}
	}
}

func TestManyGoroutines(t *testing.T) {
	r, err := Create("")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				op := r.Begin(Op{Kind: Send})
				op.Outcome = OK
				r.End(op)
			}
		})
	}
	wg.Wait()
	ops, err := r.Close()
	if err != nil || len(ops) != 800 {
		t.Errorf("%d operations, want 800; %v", len(ops), err)
	}
	for _, op := range ops {
		if op.Outcome != OK {
			t.Errorf("%+v", op)
		}
	}
}
