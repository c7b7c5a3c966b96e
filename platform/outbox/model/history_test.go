package model

import (
	"fmt"
	"slices"
	"sync"
)

// record is one event as its writer knows it; n counts the events of its key.
type record struct {
	id  int64
	key string
	n   int64
}

// history is what the writers were told is committed.
type history struct {
	mu        sync.Mutex
	committed map[int64]record
}

func newHistory() *history { return &history{committed: map[int64]record{}} }

func (h *history) commit(records ...record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range records {
		h.committed[r.id] = r
	}
}

func (h *history) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.committed)
}

// fault is one thing that is wrong.
type fault struct {
	kind string // lost, doubled, ghost, order, hole, frozen, echo, repaired, stale, stalled, error
	text string
}

func (f fault) String() string { return f.kind + ": " + f.text }

func faultf(kind, format string, args ...any) fault {
	return fault{kind, fmt.Sprintf(format, args...)}
}

// compare says how what one reader got differs from what was committed: each event
// once, nothing else, and the events of a key in the order of their n. skip leaves
// out what the reader was not meant to get.
func (h *history) compare(who string, got []record, skip func(id int64) bool) []fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lost, doubled, ghosts, order []int64
	times := map[int64]int{}
	lastN := map[string]int64{}
	for _, r := range got {
		if times[r.id]++; times[r.id] == 2 {
			doubled = append(doubled, r.id)
		}
		if _, ok := h.committed[r.id]; !ok {
			ghosts = append(ghosts, r.id)
		}
		if r.key == "" {
			continue
		}
		if r.n <= lastN[r.key] {
			order = append(order, r.id)
		}
		lastN[r.key] = r.n
	}
	for id := range h.committed {
		if times[id] == 0 && (skip == nil || !skip(id)) {
			lost = append(lost, id)
		}
	}
	var faults []fault
	for _, f := range []struct {
		kind string
		ids  []int64
	}{{"lost", lost}, {"doubled", doubled}, {"ghost", ghosts}, {"order", order}} {
		if slices.Sort(f.ids); len(f.ids) > 0 {
			faults = append(faults, faultf(f.kind, "%s: %d of %d committed events, %v …", who, len(f.ids), len(h.committed), f.ids[:min(5, len(f.ids))]))
		}
	}
	return faults
}
