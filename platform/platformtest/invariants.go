package platformtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// invariants answer one row for each violation; they hold at any moment.
var invariants = []struct{ name, query string }{
	{"every committed event has exactly one position",
		`select format('event %s has %s positions', e.id, count(l.pos))
		   from pgmill.event e left join pgmill.log l on l.event_id = e.id
		  group by e.id having count(l.pos) <> 1`},
	{"every position is of a committed event",
		`select format('position %s is of event %s, which does not exist', l.pos, l.event_id)
		   from pgmill.log l where l.pos > pgmill.archived() and not exists (select from pgmill.event e where e.id = l.event_id)`},
	{"positions are dense up to the head",
		`select format('%s positions from %s to %s, head %s', count(*), min(pos), max(pos), pgmill.head())
		   from pgmill.log where pos > pgmill.archived()
		 having count(*) <> coalesce(max(pos) - min(pos) + 1, 0) or coalesce(max(pos), pgmill.head()) <> pgmill.head()`},
	{"no cursor is beyond the head, nor beyond its shard's failing event",
		`select format('%s/%s is at %s, head %s, failing %s', s.name, s.shard, s.position, s.head, x.failing_pos)
		   from mill.subscriptions s join pgmill.shard x on x.subscription = s.name and x.shard = s.shard
		  where s.position > s.head or s.position >= x.failing_pos`},
	{"no session of ours idles in a transaction",
		`select format('pid %s, %s, since %s: %s', pid, application_name, state_change, left(query, 200))
		   from pg_stat_activity
		  where datname = current_database() and application_name like 'pgmill %'
		    and state like 'idle in transaction%' and state_change < clock_timestamp() - interval '5 seconds'`},
	{"no instance that has left still has a claim",
		`select format('claim %s (%s) of %s', j.id, j.kind, i.id)
		   from pgmill.river_job j join pgmill.instance i on i.id = j.attempted_by[array_upper(j.attempted_by, 1)]
		  where j.state = 'running' and i.deregistered_at is not null`},
	{"claims are available or running, one a shard",
		`select format('%s claims of %s, states %s', count(*), args, array_agg(state))
		   from pgmill.river_job where queue = 'subscription'
		  group by args having count(*) > 1 or bool_or(state not in ('available', 'running'))`},
	{"each fire time of a schedule has at most one tick",
		`select format('%s at %s has %s ticks', type, data ->> 'at', count(*))
		   from pgmill.event where type like 'schedule.%' and not data ? 'manual'
		  group by type, data ->> 'at' having count(*) > 1`},
	{"no dormant subscription has a tick before it",
		`select format('%s is dormant, event %s is not done', d.name, d.last_event)
		   from pgmill.schedule d join pgmill.subscription f on f.name = d.name
		  where f.dormant and not pgmill.ticks_done(d.name, d.last_event)`},
	{"a job waits, runs or has ended, one of the three",
		`select format('job %s is %s, %s rows wait, %s claims', j.id, j.state, w.n, r.n)
		   from pgmill.job j
		  cross join lateral (select count(*) as n from pgmill.job_waiting w where w.job = j.id) w
		  cross join lateral (select count(*) as n from pgmill.river_job r where r.queue = 'job' and r.args ->> 'job' = j.id) r
		  where w.n + r.n <> (j.state in ('PENDING', 'APPROVAL_REQUIRED'))::int`},
	{"what waits and may start is in a lane that admission sees",
		`select format('job %s, seq %s, lane %s', w.job, w.seq, l.low)
		   from pgmill.job_waiting w
		   left join lateral (select l.low from pgmill.lane l where l.topic = w.topic and l.priority = w.priority and l.demand = w.demand and l.scope = w.scope
		                       order by l.n desc limit 1) l on true
		  where w.due_at is null and (l.low is null or w.seq < l.low)`},
	{"a job that did not succeed and was not cancelled is a dead letter, unless it was deleted",
		`select format('job %s is %s, its dead letter %s', coalesce(j.id, d.job), coalesce(j.state, 'gone'), coalesce(d.state, 'missing'))
		   from pgmill.job j full join pgmill.dead_letter d on d.job = j.id
		  where coalesce(j.state, '') in ('FAILED', 'TIMEOUT', 'DENIED') <> (d.job is not null)
		    and not (d.job is null and (exists (select from pgmill.audit a where a.action = 'delete_dead_letter' and a.subject = 'job ' || j.id)
		                                or (j.finished_at > now() - interval '1 day') is not true))`}, // by a clean-up; what a test ended by hand has no time
	{"a parked event's key is parked and behind the cursor",
		`select format('%s/%s at %s, key %s', p.subscription, p.shard, p.pos, p.key)
		   from pgmill.parked_event p
		   join mill.subscriptions s on s.name = p.subscription and s.shard = p.shard
		  where p.pos > s.position
		     or not exists (select from pgmill.parked_key k where k.subscription = p.subscription and k.shard = p.shard and k.key = p.key)`},
}

// Invariants checks what must hold in every database at any moment and fails the
// test with what does not. It gives positions to what is committed first.
func Invariants(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for advanced := int64(-1); advanced != 0; { // -1: a host is at it; a long step comes in pieces
		if err := pool.QueryRow(ctx, "select pgmill.advance()").Scan(&advanced); err != nil {
			t.Errorf("invariants: advance: %v", err)
			return
		}
		<-look.C
	}
	for _, v := range invariants {
		rows, err := pool.Query(ctx, v.query+" limit 5")
		if err != nil {
			t.Errorf("invariant %q: %v", v.name, err)
			continue
		}
		broken, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Errorf("invariant %q: %v", v.name, err)
		}
		for _, b := range broken {
			t.Errorf("invariant broken: %s: %s", v.name, b)
		}
	}
}
