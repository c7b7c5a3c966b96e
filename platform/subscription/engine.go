package subscription

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/internal/claim"
	"github.com/pgmill/pgmill/platform/internal/db"
	"github.com/pgmill/pgmill/platform/outbox"
)

// KindPrefix comes before a subscription's name in the kind of its claims.
const KindPrefix = "subscription:"

// Engine holds the shards whose claims this host gets. Fill in the fields; those
// without a remark are needed.
type Engine struct {
	Subscriptions []platform.Subscription
	Pool          *pgxpool.Pool // handlers' transactions
	Control       *pgxpool.Pool // everything that must not wait behind handlers
	Feed          *outbox.Feed
	Held          func() context.Context // the lease's
	Instance      string                 // the lease's id: the name of handlers' sessions
	Log           *slog.Logger
	LeaseTTL      time.Duration
	// Role is the role that a module's handlers run as, "" for the host's own; nil
	// means that all do.
	Role func(module string) string
	// Others says how many other hosts live; nil means none.
	Others func() int
	// Derived hears how many claims were made for others or us to fetch; may be nil.
	Derived func(claims int)
	Observe Observe

	// MaxClaims is how many shards this host holds at the most; at that many, busy
	// ones make room after Linger. 0: no bound.
	MaxClaims int

	Linger   time.Duration // how long an idle shard stays claimed; 0 means 2 s
	GiveBack time.Duration // after how long a busy one is offered to other hosts; 0 means 30 s

	drain     chan struct{}
	drainOnce sync.Once
	mu        sync.Mutex
	holding   map[string]int // subscription → shards held here
	idle      []*holder      // those that would do an errand, the last to have worked last
	shards    map[string]int // subscription → how many it has: its row says so, not the code
}

// Observe hears what happens; each field may be nil.
type Observe struct {
	Handled func(events int, took time.Duration) // a batch committed
	Failed  func(reason platform.Reason)         // one attempt failed
	// BatchFailed hears of a batch whose events are now tried one by one.
	BatchFailed func()
	Lost        func() // a stale holder's settle was refused
	Parked      func()
	Stopped     func() // a shard is held
}

// Init must be called before anything else.
func (e *Engine) Init() {
	e.drain = make(chan struct{})
	e.holding = map[string]int{}
	e.shards = map[string]int{}
	if e.Linger == 0 {
		e.Linger = 2 * time.Second
	}
	if e.GiveBack == 0 {
		e.GiveBack = 30 * time.Second
	}
}

// Work is what claims of each kind are for.
func (e *Engine) Work() map[string]claim.Work {
	work := map[string]claim.Work{}
	for _, s := range e.Subscriptions {
		if !s.Owners.Complete() {
			continue
		}
		work[KindPrefix+s.Name] = func(ctx context.Context, c claim.Claim) {
			var at struct {
				Shard int32 `json:"shard"`
			}
			if err := json.Unmarshal(c.Args, &at); err != nil {
				e.Log.Error("claim not understood", "claim", c.ID, "kind", c.Kind)
				return
			}
			e.track(s.Name, 1)
			h := newHolder(e, s, c, at.Shard)
			defer h.untrack()
			h.run(ctx)
		}
	}
	return work
}

func (e *Engine) track(name string, by int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holding[name] += by
}

// sharded notes how many shards a subscription has now.
func (e *Engine) sharded(name string, shards int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shards[name] = int(shards)
}

// crowded reports whether shards may wait for one of this host's places.
func (e *Engine) crowded() bool {
	if e.MaxClaims == 0 {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, held := range e.holding {
		n += held
	}
	return n >= e.MaxClaims
}

// News makes claims for the subscriptions that fresh events of these types concern,
// unless all their shards are held here already. nil types concern all. How many
// there are is as of the last time that one was opened here: of shards that were made
// since, the poll makes the first claim.
func (e *Engine) News(ctx context.Context, types []string) error {
	var names []string
	for _, s := range e.Subscriptions {
		e.mu.Lock()
		all := e.holding[s.Name] >= e.shards[s.Name]
		e.mu.Unlock()
		if !all && concerns(s, types) {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return e.derive(ctx, names)
}

func concerns(s platform.Subscription, types []string) bool {
	if types == nil {
		return true
	}
	for _, t := range types {
		if s.Matches(t) {
			return true
		}
	}
	return false
}

func (e *Engine) derive(ctx context.Context, names []string) error {
	d, err := db.New(e.Control).ClaimsDerive(ctx, names)
	if err != nil {
		return fmt.Errorf("derive claims: %w", err)
	}
	if d.Claims > 0 && e.Derived != nil {
		e.Derived(int(d.Claims))
	}
	return nil
}

// Drain tells all holders to finish their transaction and give their claims back.
func (e *Engine) Drain() { e.drainOnce.Do(func() { close(e.drain) }) }

func (e *Engine) draining() bool {
	select {
	case <-e.drain:
		return true
	default:
		return false
	}
}

func (e *Engine) others() int {
	if e.Others == nil {
		return 0
	}
	return e.Others()
}

func spread() float64 { return 2*rand.Float64() - 1 }
