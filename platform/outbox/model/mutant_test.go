package model

import (
	"fmt"
	"testing"
	"time"
)

// mutant is a system that is wrong in a known way.
type mutant struct {
	name    string
	changes func(w *world) []change
	live    func(t testing.TB, w *world) []fault
	want    []string // one of these kinds of fault must be found
}

const (
	visible = `where xid >= pg_snapshot_xmax(old.base) and xid < pg_snapshot_xmax(cur)
         and pg_visible_in_snapshot(xid, cur)`
	caughtUp = `where xid = any(array(select x from pg_snapshot_xip(old.base) x where pg_visible_in_snapshot(x, cur)))`
	tryLock  = `if not pg_try_advisory_xact_lock(1886219628, 1) then
    return -1;
  end if;`
	moveCursor = `insert into pgmill.cursor (subscription, shard, n, pos) values (name, no, at_n, to_pos);`
	letGo      = `delete from pgmill.river_job where id = claim and state::text = 'running';`
)

var mutants = []mutant{
	{"a cursor by id", func(*world) []change {
		return []change{
			{"pgmill.advance()", visible, `where id > (select coalesce(max(event_id), 0) from pgmill.log)`},
			{"pgmill.advance()", caughtUp, `where false`},
		}
	}, logLives, []string{"lost"}},
	{"a horizon at the oldest running transaction", func(*world) []change {
		return []change{
			{"pgmill.advance()", visible, `where xid >= pg_snapshot_xmin(old.base) and xid < pg_snapshot_xmin(cur)`},
			{"pgmill.advance()", caughtUp, `where false`},
		}
	}, logLives, []string{"frozen"}},
	{"order by transaction id, then id", func(*world) []change {
		return []change{
			{"pgmill.advance()", "select id, scope, key, target, type from pgmill.event\n       where xid >=", "select xid, id, scope, key, target, type from pgmill.event\n       where xid >="},
			{"pgmill.advance()", "select id, scope, key, target, type from pgmill.event\n       where xid = any", "select xid, id, scope, key, target, type from pgmill.event\n       where xid = any"},
			{"pgmill.advance()", "over (order by e.id)", "over (order by e.xid, e.id)"},
		}
	}, logLives, []string{"order"}},
	{"lock and snapshot in one statement", func(*world) []change {
		return []change{ // with a moment between the two, made long enough to be met
			{"pgmill.advance()", tryLock, `select pg_current_snapshot() into cur from (select pg_sleep(random() * 0.05), pg_advisory_xact_lock(1886219628, 1)) l;`},
			{"pgmill.advance()", `select pg_current_snapshot() into cur;`, ``},
		}
	}, func(t testing.TB, w *world) []fault {
		o := logOnly()
		o.write, o.advancers = 3*o.write, 2*o.advancers
		return run(t, w, o)
	}, []string{"lost", "doubled", "repaired"}},
	{"the cursor moved outside the handler's transaction", func(w *world) []change {
		return []change{{"pgmill.settle_shard(bigint, text, int, bigint, bigint)", moveCursor, fmt.Sprintf(
			`perform public.dblink_exec('%s', format('insert into pgmill.cursor (subscription, shard, n, pos) values (%%L, %%L, %%L, %%L)', name, no, at_n, to_pos));`, w.dsn)}}
	}, func(t testing.TB, w *world) []fault {
		return run(t, w, options{writers: 8, pace: 30 * time.Millisecond, write: 5 * time.Second, hosts: 2, shoot: time.Second, catchUp: 15 * time.Second})
	}, []string{"lost"}},
	{"a settle without the fence", func(*world) []change {
		return []change{{"pgmill.settle_shard(bigint, text, int, bigint, bigint)", `perform pgmill.fence(claim);`, ``}}
	}, staleHost, []string{"stale"}},
	{"claims derived inside the settle", func(*world) []change {
		return []change{
			{"pgmill.release_claim(bigint)", letGo, `perform set_config('model.name', (select args ->> 'subscription' from pgmill.river_job where id = claim), false); ` + letGo},
			// The moment between the look and the commit, made long enough to be met.
			{"pgmill.release_claim(bigint)", "  end if;\nend", "  end if;\n  perform pgmill.derive_claims(array[current_setting('model.name')]);\n" +
				"  perform pg_sleep(0.06);\n  perform set_config('model.derived', 'on', false);\nend"},
			// and not after it.
			{"pgmill.derive_claims(text[])", "begin\n  with free as materialized (", "begin\n  if current_setting('model.derived', true) = 'on' then\n" +
				"    perform set_config('model.derived', '', false); claims := 0; moved := 0; return;\n  end if;\n  with free as materialized ("},
		}
	}, lostWakeup, []string{"stalled"}},
}

func logLives(t testing.TB, w *world) []fault { return run(t, w, logOnly()) }

// The mutants are made of the functions as they are now: that all are red takes minutes
// and a build tag (TestMutantsAreRed), that they can be made does not.
func TestMutantsCanBeMade(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		w := newWorld(t)
		w.alter(t, m.changes(w)...)
	}
}
