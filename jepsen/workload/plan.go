package workload

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"raftmq/jepsen/checker"
	"raftmq/jepsen/history"
)

// delays are those of levels 1, 2, … in the delay workload.
var delays = [...]time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 7 * time.Second}

const (
	batchSize = 12 // at most
	keysEach  = 4  // of a producer
	largest   = 4 << 20
	// packing is what a body that cannot be made smaller may grow by in the stock client, which compresses every large one.
	packing    = 16 << 10
	retryEvery = 6  // so many messages have one that is sent back at first
	deadEvery  = 15 // and so many one that is sent back always
)

// plan decides what a producer sends, from the seed alone.
type plan struct {
	cfg     *Config
	process string
	largest int // body
	rng     *rand.Rand
	seq     int
}

func newPlan(cfg *Config, process string, stock bool) *plan {
	h := fnv.New64a()
	_, _ = h.Write([]byte(process))
	p := &plan{cfg: cfg, process: process, largest: largest, rng: rand.New(rand.NewPCG(cfg.Seed, h.Sum64()))}
	if stock {
		p.largest -= packing
	}
	return p
}

// next is a message, or those of a batch.
func (p *plan) next() []*Message {
	n := 1
	if p.cfg.Kind == checker.Batch {
		n = 2 + p.rng.IntN(batchSize-1)
	}
	batch := make([]*Message, n)
	for i := range batch {
		batch[i] = p.message()
	}
	return batch
}

func (p *plan) message() *Message {
	size := p.cfg.BodySize
	if p.cfg.Kind == checker.Sizes {
		size = p.size()
	}
	m := NewMessage(fmt.Sprintf("%s-%d", p.process, p.seq), size)
	switch p.cfg.Kind {
	case checker.Ordered:
		m.Key = fmt.Sprintf("%s-key-%d", p.process, p.rng.IntN(keysEach))
	case checker.Delay:
		m.Level = 1 + p.rng.IntN(len(delays))
		m.Delay = delays[m.Level-1]
	case checker.Transaction:
		m.Wish = history.WishCommit
		if p.rng.IntN(3) == 0 {
			m.Wish = history.WishRollback
		}
	case checker.Retry:
		switch {
		case p.seq%deadEvery == deadEvery-1:
			m.Wish = history.WishDead
		case p.seq%retryEvery == 0:
			m.Wish = history.WishRetry
		}
	}
	p.seq++
	return m
}

// size is small mostly, and now and then as large as a message may be.
func (p *plan) size() int {
	switch x := p.rng.IntN(1000); {
	case x < 5:
		return p.largest
	case x < 20:
		return 256<<10 + p.rng.IntN(1<<20)
	case x < 200:
		return 4<<10 + p.rng.IntN(60<<10)
	default:
		return p.rng.IntN(4 << 10)
	}
}
