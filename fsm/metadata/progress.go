package metadata

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	"raftmq/fsm/command"
)

// Refusals of the commands that relocate messages.
var (
	// ErrDelayProgress: the level stands elsewhere, somebody else has delivered.
	ErrDelayProgress = errors.New("metadata: delay level has another progress")
	// ErrTransactionEnded: the half message has an end already.
	ErrTransactionEnded = errors.New("metadata: transaction has ended")
)

// CheckDelay refuses a delivery that does not continue where the level stands.
func (t *Tables) CheckDelay(level int, expected int64) error {
	if have := t.DelayProgress(level); have != expected {
		return fmt.Errorf("%w: level %d stands at %d, not %d", ErrDelayProgress, level, have, expected)
	}
	return nil
}

// AdvanceDelay sets a level's progress; the caller has checked it.
func (t *Tables) AdvanceDelay(level int, next int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.delay[level] = next
}

// DelayProgress is the next offset of a level's schedule queue that was not delivered yet.
func (t *Tables) DelayProgress(level int) int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.delay[level]
}

// halves says which half messages have ended. Most do soon, so everything below progress has, and what ended behind it
// is a few stretches: their number is bounded by that of the open half messages.
type halves struct {
	progress int64
	ended    []stretch     // sorted, apart from each other and above progress
	checks   map[int64]int // open half messages that producers were asked about, and how often
}

// stretch is queue offsets [From, To).
type stretch struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// find returns the first stretch that ends behind offset.
func (h *halves) find(offset int64) int {
	return sort.Search(len(h.ended), func(i int) bool { return h.ended[i].To > offset })
}

func (h *halves) hasEnded(offset int64) bool {
	i := h.find(offset)
	return offset < h.progress || i < len(h.ended) && h.ended[i].From <= offset
}

// end notes the end of an open half message.
func (h *halves) end(offset int64) {
	delete(h.checks, offset)
	i := h.find(offset)
	joinsBefore := i > 0 && h.ended[i-1].To == offset
	joinsAfter := i < len(h.ended) && h.ended[i].From == offset+1
	switch {
	case joinsBefore && joinsAfter:
		h.ended[i-1].To = h.ended[i].To
		h.ended = slices.Delete(h.ended, i, i+1)
	case joinsBefore:
		h.ended[i-1].To++
	case joinsAfter:
		h.ended[i].From--
	default:
		h.ended = slices.Insert(h.ended, i, stretch{offset, offset + 1})
	}
	h.compact()
}

// endBelow notes the end of everything below offset.
func (h *halves) endBelow(offset int64) {
	if offset <= h.progress {
		return
	}
	h.progress = offset
	maps.DeleteFunc(h.checks, func(o int64, _ int) bool { return o < offset })
	h.compact()
}

// compact moves progress over what has ended.
func (h *halves) compact() {
	n := 0
	for n < len(h.ended) && h.ended[n].From <= h.progress {
		h.progress = max(h.progress, h.ended[n].To)
		n++
	}
	h.ended = slices.Delete(h.ended, 0, n)
}

func (h *halves) clone() halves {
	return halves{h.progress, slices.Clone(h.ended), maps.Clone(h.checks)}
}

// CheckHalf refuses the end of a half message that has one.
func (t *Tables) CheckHalf(offset int64) error {
	if t.HalfEnded(offset) {
		return fmt.Errorf("%w: half message %d", ErrTransactionEnded, offset)
	}
	return nil
}

// EndHalf notes the end of a half message; the caller has checked that it has none.
func (t *Tables) EndHalf(offset int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.halves.end(offset)
}

// NoteChecks counts checks of open half messages.
func (t *Tables) NoteChecks(c command.TransactionCheck) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.halves.endBelow(c.LostBelow)
	for _, o := range c.Checked {
		if o >= 0 && !t.halves.hasEnded(o) {
			t.halves.checks[o]++
		}
	}
	return nil
}

// HalfEnded reports whether the half message at a queue offset was committed, rolled back or given up.
func (t *Tables) HalfEnded(offset int64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.halves.hasEnded(offset)
}

// NextOpenHalf is the first offset from from on that has no end.
func (t *Tables) NextOpenHalf(from int64) int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	h := &t.halves
	from = max(from, h.progress)
	if i := h.find(from); i < len(h.ended) && h.ended[i].From <= from {
		return h.ended[i].To // stretches are apart
	}
	return from
}

// HalfChecks is how often producers were asked about an open half message.
func (t *Tables) HalfChecks(offset int64) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.halves.checks[offset]
}

// OpenHalves counts the half messages below end that have no end.
func (t *Tables) OpenHalves(end int64) int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n := max(0, end-t.halves.progress)
	for _, s := range t.halves.ended {
		n -= s.To - s.From
	}
	return n
}

// delayLevel and checked are the exported forms.
type delayLevel struct {
	Level  int   `json:"level"`
	Offset int64 `json:"offset"`
}

type checkedHalf struct {
	Offset int64 `json:"offset"`
	Times  int   `json:"times"`
}

type transactions struct {
	Progress int64         `json:"progress"`
	Ended    []stretch     `json:"ended,omitempty"`
	Checked  []checkedHalf `json:"checked,omitempty"`
}

// exportProgress fills in what this file keeps. Without any of it the snapshot stays of version 1, which older nodes
// read; a node that does not know these tables must not lose them.
func (t *Tables) exportProgress(s *snapshot) {
	for _, level := range slices.Sorted(maps.Keys(t.delay)) {
		s.Delay = append(s.Delay, delayLevel{level, t.delay[level]})
	}
	h := &t.halves
	if h.progress > 0 || len(h.ended) > 0 || len(h.checks) > 0 {
		s.Transactions = &transactions{Progress: h.progress, Ended: h.ended}
		for _, o := range slices.Sorted(maps.Keys(h.checks)) {
			s.Transactions.Checked = append(s.Transactions.Checked, checkedHalf{o, h.checks[o]})
		}
	}
	if s.Delay != nil || s.Transactions != nil {
		s.Version = progressVersion
	}
}

func (s *snapshot) progress() (delay map[int]int64, h halves, err error) {
	delay, h = map[int]int64{}, halves{checks: map[int64]int{}}
	for _, d := range s.Delay {
		delay[d.Level] = d.Offset
	}
	if s.Transactions == nil {
		return delay, h, nil
	}
	h.progress, h.ended = s.Transactions.Progress, s.Transactions.Ended
	last := h.progress
	for _, x := range h.ended {
		if x.From <= last || x.To <= x.From {
			return nil, h, fmt.Errorf("metadata: import: ended half messages [%d, %d) behind %d", x.From, x.To, last)
		}
		last = x.To
	}
	for _, c := range s.Transactions.Checked {
		h.checks[c.Offset] = c.Times
	}
	return delay, h, nil
}
