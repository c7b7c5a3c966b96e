package claim_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// endless is a source that always has more, and whose jobs end one by one, as they are told.
func endless(t *testing.T, slots int) (end chan<- struct{}, fetches *atomic.Int64) {
	t.Helper()
	fetches = new(atomic.Int64)
	ends := make(chan struct{})
	var running, id atomic.Int64
	source := &claim.Source{Slots: slots,
		Work: map[string]claim.Work{"job.any": func(ctx context.Context, _ claim.Claim) {
			if n := running.Add(1); n > int64(slots) {
				t.Errorf("%d run at once, of %d", n, slots)
			}
			select {
			case <-ends:
			case <-ctx.Done():
			}
			running.Add(-1)
		}},
		Fetch: func(_ context.Context, max int) ([]claim.Claim, error) {
			fetches.Add(1)
			all := make([]claim.Claim, max)
			for i := range all {
				all[i] = claim.Claim{ID: id.Add(1), Kind: "job.any", Args: json.RawMessage(`{}`)}
			}
			return all, nil
		}}
	c := &claim.Claims{Pool: platformtest.DB(t), Instance: "me", Jobs: source, Log: slog.New(slog.DiscardHandler)}
	if err := c.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(ends)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return ends, fetches
}

// While more waits than fits, a free slot waits a moment for others, and no longer.
func TestOneFreeSlotIsFilledAfterAMoment(t *testing.T) {
	t.Parallel()
	end, fetches := endless(t, 64)
	for fetches.Load() == 0 {
		<-time.After(time.Millisecond)
	}
	for range 3 {
		before, at := fetches.Load(), time.Now()
		end <- struct{}{}
		for fetches.Load() == before {
			if time.Since(at) > patience {
				t.Fatal("a slot stays empty")
			}
			<-time.After(time.Millisecond)
		}
		if took := time.Since(at); took < claim.PacePause {
			t.Errorf("fetched after %v for one slot", took)
		}
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		full  bool
		max   int
		ends  time.Duration // one each; 0: none
		again bool
		after time.Duration
	}{
		{"all that waited was fetched", false, 1, time.Millisecond, false, 0},
		{"an eighth is free", true, 8, time.Millisecond, false, 0},
		{"ends come soon", true, 1, time.Millisecond, true, 7 * time.Millisecond},
		{"ends come late", true, 1, 4 * time.Millisecond, true, claim.PacePause},
		{"none comes", true, 1, 0, false, claim.PacePause},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := claim.NewPace(64)
			got := 1
			if tt.full {
				got = 64
			}
			p.Fetched(got, 64)
			if tt.ends > 0 {
				go func() {
					for ctx.Err() == nil {
						time.Sleep(tt.ends)
						p.Ended()
					}
				}()
			}
			began := time.Now()
			if again, took := p.Wait(ctx, tt.max), time.Since(began); again != tt.again || took != tt.after {
				t.Errorf("%s: ask again %v after %v, want %v after %v", tt.name, again, took, tt.again, tt.after)
			}
			began = time.Now()
			if p.Wait(ctx, tt.max) || time.Since(began) > 0 {
				t.Errorf("%s: what is asked next waits, too", tt.name)
			}
			cancel()
			time.Sleep(time.Second)
		})
	}
}

// What ends while a fetch is under way makes room, too.
func TestPaceRemembersEndsDuringAFetch(t *testing.T) {
	t.Parallel()
	p := claim.NewPace(64)
	for _, tt := range []struct {
		ends, got int
		again     bool
	}{{0, 1, false}, {1, 0, false}, {1, 1, true}, {0, 1, false}} {
		p.Fetched(0, 1)
		p.Wait(t.Context(), 1)
		for range tt.ends {
			p.Ended()
		}
		if again := p.Fetched(tt.got, 1); again != tt.again {
			t.Errorf("%d ended and %d of 1 was fetched: ask again %v", tt.ends, tt.got, again)
		}
	}
}
