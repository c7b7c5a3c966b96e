package api

import "sync"

// Bell tells those who wait for jobs that there may be some. The zero value is ready.
type Bell struct {
	mu   sync.Mutex
	next chan struct{}
}

// Ring wakes all who listen.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// heard is closed at the next ring; of a nil Bell never.
func (b *Bell) heard() <-chan struct{} {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}
