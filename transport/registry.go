package transport

import (
	"maps"
	"sync"
	"sync/atomic"

	"raftmq/transport/remoting"
)

// Handler processes one request. cmd and all it points to are valid only until it
// returns; an inline handler runs on the connection's reader and must not block.
// Exactly one answer is owed through r, now or later, unless r.OneWay.
type Handler func(r Responder, cmd *remoting.Command)

type handler struct {
	handle Handler
	inline bool
}

// smallCodes covers the classic request codes; newer ones (200050…) are looked up in a map.
const smallCodes = 512

type handlerTable struct {
	small [smallCodes]handler
	large map[int32]handler
}

// handlers finds the handler of a request code without a lock; registering copies the table.
type handlers struct {
	mu    sync.Mutex // for writers
	table atomic.Pointer[handlerTable]
}

func (h *handlers) find(code int32) handler {
	t := h.table.Load()
	if code >= 0 && code < smallCodes {
		return t.small[code]
	}
	return t.large[code]
}

func (h *handlers) set(code int32, handle handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.table.Load()
	t := &handlerTable{small: old.small, large: maps.Clone(old.large)}
	if code >= 0 && code < smallCodes {
		t.small[code] = handle
	} else {
		if t.large == nil {
			t.large = make(map[int32]handler)
		}
		t.large[code] = handle
	}
	h.table.Store(t)
}
