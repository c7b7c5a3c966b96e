package claim

import (
	"context"
	"sync"
	"time"
)

// pace keeps fetches of jobs worth their price while more waits than fits: an admission
// costs as much as several jobs, and River asks for one as soon as one slot is free. It
// also remembers the ends that River forgets, those during a fetch.
type pace struct {
	slots int
	mu    sync.Mutex
	full  bool          // the last fetch got all that it asked for
	ends  int           // since the fetch under way was asked for
	want  int           // ends that it waits for; 0: it does not wait
	ready chan struct{} // they have come
}

const (
	paceShare = 8                     // of the slots one part is to be free
	pacePause = 10 * time.Millisecond // and is waited for so long at most
)

func newPace(slots int) *pace { return &pace{slots: slots, ready: make(chan struct{}, 1)} }

// wait reports whether River is to ask again, since there is more room by now than max.
func (p *pace) wait(ctx context.Context, max int) bool {
	p.mu.Lock()
	p.ends = 0
	want := p.slots/paceShare - max
	if !p.full || want <= 0 {
		p.mu.Unlock()
		return false
	}
	p.want = want
	p.mu.Unlock()
	pause := time.NewTimer(pacePause)
	defer pause.Stop()
	select {
	case <-p.ready:
	case <-pause.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want = 0
	select {
	case <-p.ready: // at the same moment as the pause's end
	default:
	}
	p.full = false // what is asked next is answered
	return p.ends > 0
}

// fetched notes how much of what it asked for a fetch has got, and reports whether River
// is to ask again: there is more, and room for it.
func (p *pace) fetched(got, max int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = got >= max
	return p.full && p.ends > 0
}

// ended notes that a slot is free.
func (p *pace) ended() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends++
	if p.ends == p.want {
		p.ready <- struct{}{}
	}
}
