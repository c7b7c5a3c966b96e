package platform

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Scope says whose rows something is about: the install's, the provider's, or one
// organization's.
type Scope string

// The scopes that are not one organization's.
const (
	Install  Scope = "install"
	Provider Scope = "provider"
	EachOrg  Scope = "org:*" // of a clean-up: every organization's, one at a time
)

// Org is the scope of one organization.
func Org(id string) Scope { return Scope("org:" + id) }

// Cleanup is a function that deletes rows which are kept for long enough, in batches,
// each a transaction of its own and of one scope only. Its ticks are a schedule's: they
// are retried, paused and shown like one's. Nothing canonical is ever deleted: the
// database roles that clean cannot (N78-N82).
type Cleanup struct {
	// Name is stable and unique: lower-case words joined by dots, at most 100 bytes.
	Name string
	// Module owns the function; "" means the first word of Name.
	Module string
	// Scope is whose rows it deletes; "" means Install.
	Scope Scope
	// Rule is what it deletes.
	Rule Rule
	// Cron and Zone are as of a Schedule; "" means "@every 10m", in UTC. What one tick
	// does not get done within half of Timeout is left to the next.
	Cron, Zone string
	// Owners of its ticks; those of nobody means that they are all Module's.
	Owners Owners
	// MaxAttempts bounds the tries of one tick; 0 means 5.
	MaxAttempts int
	// Timeout bounds one tick; 0 means 30 s.
	Timeout time.Duration
}

// Rule says what a clean-up deletes: rows of a class of pgmill's own, or what a
// statement of its author's deletes.
type Rule struct {
	// Class is one of pgmill.cleanup_classes(), such as instances or idempotency_keys.
	Class string
	// Delete is one statement that deletes rows of the author's own tables: at most $2
	// of them, kept for longer than the interval $1. Like the class's own it must leave
	// alone what is not done, whatever its age. It runs as the role of the clean-up's
	// Module, or, if that is not registered, as mill_cleaner, to which the tables' owner
	// grants what it needs (grant select, delete on shop.cart to mill_cleaner). If it
	// deletes more than $2 rows it is rolled back and its tick ends as batch_too_big.
	//
	//	delete from shop.cart where id in (
	//	  select id from shop.cart where closed_at < now() - $1::interval limit $2)
	Delete string
	// Keep is how long rows are kept, unless the profile's retention says otherwise.
	Keep time.Duration
	// AtLeast is what no profile goes below; 0 means a minute.
	AtLeast time.Duration
	// Batch is how many rows one transaction deletes at the most; 0 means 1000, which
	// is also the limit (N82).
	Batch int
}

// Key is what a profile's retention calls this clean-up: its class, else its name.
func (c Cleanup) Key() string { return cmp.Or(c.Rule.Class, c.Name) }

var (
	orgForm   = regexp.MustCompile(`^org:[A-Za-z0-9_.-]{1,100}$`)
	classForm = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)
)

// describe fills in the zero values and says in one line what is wrong, if anything.
func (c Cleanup) describe() (Function, error) {
	c.Module = cmp.Or(c.Module, strings.SplitN(c.Name, ".", 2)[0])
	c.Scope = cmp.Or(c.Scope, Install)
	c.Cron = cmp.Or(c.Cron, "@every 10m")
	c.Rule.Batch = cmp.Or(c.Rule.Batch, 1000)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	if c.Owners.none() {
		c.Owners = OwnedBy(c.Module)
	}
	var bad string
	switch {
	case c.Scope != Install && c.Scope != Provider && c.Scope != EachOrg && !orgForm.MatchString(string(c.Scope)):
		bad = fmt.Sprintf("Scope %q is none of Install, Provider, Org(id) and EachOrg", c.Scope)
	case (c.Rule.Class == "") == (c.Rule.Delete == ""):
		bad = "set exactly one of Rule.Class and Rule.Delete"
	case c.Rule.Class != "" && !classForm.MatchString(c.Rule.Class):
		bad = fmt.Sprintf("Rule.Class %q is not a lower-case word", c.Rule.Class)
	case c.Rule.Delete != "" && (!strings.Contains(c.Rule.Delete, "$1") || !strings.Contains(c.Rule.Delete, "$2")):
		bad = "Rule.Delete must go by $1, the interval that rows are kept, and $2, how many to delete"
	case c.Rule.Delete != "" && c.Scope == EachOrg:
		bad = "Rule.Delete is not told an organization; use Install, Provider or Org(id)"
	case c.Rule.Keep <= 0:
		bad = fmt.Sprintf("Rule.Keep is %v; say how long rows are kept", c.Rule.Keep)
	case c.Rule.Keep < c.Rule.AtLeast:
		bad = fmt.Sprintf("Rule.Keep is %v; AtLeast is %v", c.Rule.Keep, c.Rule.AtLeast)
	case c.Rule.Batch < 1 || c.Rule.Batch > 1000:
		bad = fmt.Sprintf("Rule.Batch is %d; 1 to 1000", c.Rule.Batch)
	}
	ticks, err := c.ticks(func(context.Context, pgx.Tx, Tick) error { return nil })
	switch {
	case err != nil:
		return nil, fmt.Errorf("cleanup%s", strings.TrimPrefix(err.Error(), "schedule"))
	case bad != "":
		return nil, fmt.Errorf("cleanup %s: %s", c.Name, bad)
	}
	c.MaxAttempts = ticks.MaxAttempts
	return c, nil
}

// Describe answers what the registry and mill.functions show.
func (c Cleanup) Describe() Description {
	return Description{Name: c.Name, Kind: "cleanup", Module: c.Module, Listens: []string{strings.TrimSpace(c.Cron + " " + c.Zone)}}
}

// Schedule is the schedule whose ticks a registered clean-up runs at; handle is called
// for each.
func (c Cleanup) Schedule(handle func(ctx context.Context, tx pgx.Tx, t Tick) error) Schedule {
	s, err := c.ticks(handle)
	if err != nil {
		panic("platform.Cleanup: " + err.Error()) // Register has refused it
	}
	return s
}

func (c Cleanup) ticks(handle func(ctx context.Context, tx pgx.Tx, t Tick) error) (Schedule, error) {
	shown := c.Describe()
	f, err := Schedule{Name: c.Name, Module: c.Module, Cron: c.Cron, Zone: c.Zone, Owners: c.Owners, Overlap: SkipOverlap,
		MaxAttempts: c.MaxAttempts, Timeout: c.Timeout, Handle: handle, shown: &shown}.describe()
	if err != nil {
		return Schedule{}, err
	}
	return f.(Schedule), nil
}
