package transaction

// asked is what this leader remembers of its checks of a half message. Another leader starts anew.
type asked struct {
	answered   bool // with "unknown" since the last check
	unanswered int  // checks in a row
	skip       int  // passes before the next check
}

// Unknown notes that a producer answered a check without an outcome: it is well, and will be asked again at the
// next pass.
func (s *Service) Unknown(half int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.waiting[half]; a != nil {
		a.answered = true
	}
}

// forgetEnded drops what is remembered of half messages that have an end.
func (s *Service) forgetEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for half := range s.waiting {
		if s.cfg.Tables.HalfEnded(half) {
			delete(s.waiting, half)
		}
	}
}

// due reports whether a half message is asked about in this pass.
func (s *Service) due(half int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.waiting[half]
	switch {
	case a == nil:
		return true
	case a.answered:
		return true
	case a.skip > 0:
		a.skip--
		return false
	}
	return true
}

// noteAsked notes a check. One that is not answered doubles the time to the next, up to a limit.
func (s *Service) noteAsked(half int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.waiting[half]
	switch {
	case a == nil:
		a = &asked{}
		s.waiting[half] = a
	case a.answered:
		*a = asked{}
	default:
		a.unanswered++
	}
	a.skip = min(1<<min(a.unanswered, 8), longestBackOff) - 1
}
