// Package stats counts what a broker does, in the figures that RocketMQ's tools know: items with their minute, hour and day
// (StatsItem), the distribution and percentiles of put times, rates over windows (StoreStatsService).
//
// Counting costs atomics and no allocation; who counts keeps the pointers that a name and key lead to. It has no
// goroutine and no clock: the owner calls Sample and passes the time.
package stats

import (
	"sync"
	"sync/atomic"
	"time"
)

// Names of the broker's items (BrokerStatsManager). Its COMMERCIAL_ ones belong to a billing system that is not part of it.
const (
	TopicPutNums    = "TOPIC_PUT_NUMS"      // topic
	TopicPutSize    = "TOPIC_PUT_SIZE"      // topic
	GroupGetNums    = "GROUP_GET_NUMS"      // topic@group
	GroupGetSize    = "GROUP_GET_SIZE"      // topic@group
	GroupGetLatency = "GROUP_GET_LATENCY"   // queueId@topic@group
	SendBackNums    = "SNDBCK_PUT_NUMS"     // topic@group
	BrokerPutNums   = "BROKER_PUT_NUMS"     // cluster
	BrokerGetNums   = "BROKER_GET_NUMS"     // cluster
	QueuePutNums    = "QUEUE_PUT_NUMS"      // topic@queueId
	QueuePutSize    = "QUEUE_PUT_SIZE"      // topic@queueId
	QueueGetNums    = "QUEUE_GET_NUMS"      // topic@queueId@group
	QueueGetSize    = "QUEUE_GET_SIZE"      // topic@queueId@group
	GroupFallSize   = "GROUP_GET_FALL_SIZE" // queueId@topic@group
	GroupFallTime   = "GROUP_GET_FALL_TIME" // queueId@topic@group
	// RocketMQ has these and never counts them.
	GroupColdNums  = "GROUP_GET_FROM_DISK_NUMS"  // topic@group
	GroupColdSize  = "GROUP_GET_FROM_DISK_SIZE"  // topic@group
	BrokerColdNums = "BROKER_GET_FROM_DISK_NUMS" // cluster
	BrokerColdSize = "BROKER_GET_FROM_DISK_SIZE" // cluster
)

// Item counts a value and how often it was added to.
type Item struct {
	value, times atomic.Int64
	moment       bool // value is set, not added to

	mu                sync.Mutex
	minute, hour, day series
}

// Add counts once.
func (it *Item) Add(value int64) { it.AddTimes(value, 1) }

// AddTimes counts several times at once.
func (it *Item) AddTimes(value, times int64) {
	it.value.Add(value)
	it.times.Add(times)
}

// Set sets the value of a moment item.
func (it *Item) Set(value int64) { it.value.Store(value) }

// Value is what was added up, or set last, since start.
func (it *Item) Value() int64 { return it.value.Load() }

// snapshot is an item at one time.
type snapshot struct {
	at           time.Time
	times, value int64
}

// series are the newest snapshots, oldest first.
type series struct {
	snapshots []snapshot
	every     time.Duration
	keep      int
}

func (s *series) add(now snapshot) {
	if len(s.snapshots) == 0 {
		s.snapshots = append(s.snapshots, snapshot{at: now.at.Add(-s.every)}) // as if it had begun one period ago, with nothing
	}
	if len(s.snapshots) == s.keep {
		s.snapshots = append(s.snapshots[:0], s.snapshots[1:]...)
	}
	s.snapshots = append(s.snapshots, now)
}

// Window is what happened between the oldest and the newest snapshot of a series (StatsSnapshot).
type Window struct {
	Sum     int64
	TPS     float64 // of the value, a second
	Average float64 // of the value, each time
}

func (s *series) window() (w Window) {
	if len(s.snapshots) == 0 {
		return w
	}
	first, last := s.snapshots[0], s.snapshots[len(s.snapshots)-1]
	w.Sum = last.value - first.value
	if d := last.at.Sub(first.at); d > 0 {
		w.TPS = float64(w.Sum) * 1000 / float64(d.Milliseconds())
	}
	if n := last.times - first.times; n > 0 {
		w.Average = float64(w.Sum) / float64(n)
	}
	return w
}

// The series' periods: seven snapshots of 10 s make a minute, seven of 10 min an hour, 25 of an hour a day.
const (
	minuteEvery = 10 * time.Second
	hourEvery   = 10 * time.Minute
	dayEvery    = time.Hour
)

func (it *Item) sample(at time.Time, hour, day bool) {
	now := snapshot{at, it.times.Load(), it.value.Load()}
	it.mu.Lock()
	defer it.mu.Unlock()
	it.minute.add(now)
	if hour {
		it.hour.add(now)
	}
	if day {
		it.day.add(now)
	}
}

// Windows are the item's minute, hour and day, as of the last samples. A moment item has its value there.
func (it *Item) Windows() (minute, hour, day Window) {
	if it.moment {
		w := Window{Sum: it.Value()}
		return w, w, w
	}
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.minute.window(), it.hour.window(), it.day.window()
}

// Items are the items of all names and keys.
type Items struct {
	mu     sync.RWMutex
	byName map[string]map[string]*Item

	// When the next samples of hour and day are due; Sample's.
	nextHour, nextDay time.Time
}

// Get returns the item, made on demand.
func (s *Items) Get(name, key string) *Item {
	if it := s.Find(name, key); it != nil {
		return it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName == nil {
		s.byName = map[string]map[string]*Item{}
	}
	if s.byName[name] == nil {
		s.byName[name] = map[string]*Item{}
	}
	it := s.byName[name][key]
	if it == nil {
		it = &Item{moment: name == GroupFallSize || name == GroupFallTime}
		it.minute, it.hour, it.day = series{every: minuteEvery, keep: 7}, series{every: hourEvery, keep: 7}, series{every: dayEvery, keep: 25}
		s.byName[name][key] = it
	}
	return it
}

// Find returns the item, nil when nothing was ever counted there.
func (s *Items) Find(name, key string) *Item {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byName[name][key]
}

// Sample takes the snapshots that are due. Call it every 10 s.
func (s *Items) Sample(at time.Time) {
	if s.nextHour.IsZero() {
		s.nextHour, s.nextDay = at.Add(hourEvery), at.Add(dayEvery)
	}
	hour, day := !at.Before(s.nextHour), !at.Before(s.nextDay)
	if hour {
		s.nextHour = at.Add(hourEvery)
	}
	if day {
		s.nextDay = at.Add(dayEvery)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, items := range s.byName {
		for _, it := range items {
			if !it.moment {
				it.sample(at, hour, day)
			}
		}
	}
}
