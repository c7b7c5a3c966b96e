package subscription_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// N33: the handler gets what the event's row holds, nothing less and nothing more.
func TestHandlerGetsTheEventAsItsRowHasIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := make(chan platform.Event, 2)
	s := w.sub("test.one", nil)
	s.Handle = func(_ context.Context, _ pgx.Tx, e platform.Event) error {
		got <- e
		return nil
	}
	w.host(s)
	platformtest.Emit(t, w.db,
		platform.NewEvent{Type: "t.full", Target: "t-1", Key: "k 1", Scope: "org:acme", TraceID: "4bf92f3577b34da6", Data: map[string]any{"order": 17, "lines": []int{1, 2}}},
		platform.NewEvent{Type: "t.bare", Target: "t-2"})
	for range 2 {
		e := <-got
		row := ask[string](w, `select concat_ws('|', l.pos, e.id, e.type, e.target, coalesce(e.key, ''), e.scope, coalesce(e.trace_id, ''), e.data)
			from pgmill.event e join pgmill.log l on l.event_id = e.id where e.id = $1`, e.ID)
		if have := strings.Join([]string{text(e.Pos), text(e.ID), e.Type, e.Target, e.Key, e.Scope, e.TraceID, string(e.Data)}, "|"); have != row {
			t.Errorf("the handler got\n  %s\nthe row is\n  %s", have, row)
		}
		if at := ask[string](w, `select emitted_at::text from pgmill.event where id = $1 and emitted_at = $2`, e.ID, e.EmittedAt); at == "" {
			t.Errorf("emitted at %v by the handler's event, which is not the row's", e.EmittedAt)
		}
	}
}

func text(v int64) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// N32, N37, N38: a subscription is a durable cursor over what happened, hosts or no
// hosts. Claims, cursors and failures are the runtime's business; what becomes of an
// event is the handler's: the runtime writes no row of a team's tables, and keeps
// nothing of a result in its own.
func TestRuntimeMovesCursorsAndHandlersDoTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`create table projection (customer text primary key, total bigint not null, note text not null);
		create table written (kind text, by text);
		create function watch() returns trigger language plpgsql as $$ begin
			insert into written values (tg_op, current_setting('test.handler', true)); return null; end $$;
		create trigger watch after insert or update or delete on projection for each row execute function watch()`)
	s := w.sub("test.totals", nil)
	s.Handle = func(ctx context.Context, tx pgx.Tx, e platform.Event) error {
		_, err := tx.Exec(ctx, `select set_config('test.handler', 'yes', true)`)
		if err == nil {
			_, err = tx.Exec(ctx, `insert into projection values ($1, 1, 'R3SULT') on conflict (customer) do update set total = projection.total + 1`, e.Target)
		}
		return err
	}
	idle := w.sub("test.idle", nil)
	idle.Handle = func(context.Context, pgx.Tx, platform.Event) error { return nil }
	hosts := w.host(s, idle)
	w.emit("ann", "bob", "ann")
	w.caughtUp("test.totals")
	platformtest.Stop(t, hosts)
	w.emit("bob", "ann") // nobody is there
	w.host(s, idle)
	w.caughtUp("test.totals")
	w.caughtUp("test.idle")
	if got := w.list(`select customer || '=' || total from projection order by customer`); got != "ann=3 bob=2" {
		t.Errorf("the projection is %s; want ann=3 bob=2", got)
	}
	if got := w.list(`select kind || ':' || coalesce(by, '') || '=' || count(*) from written group by kind, by order by 1`); got != "INSERT:yes=2 UPDATE:yes=3" {
		t.Errorf("rows were written %s; want by the handler only", got)
	}
	for table := range strings.FieldsSeq(w.list(`select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname in ('pgmill', 'mill') and c.relkind in ('r', 'p', 'v')`)) {
		if got := ask[int](w, "select count(*) from "+table+" x where x::text like '%R3SULT%'"); got > 0 {
			t.Errorf("%d rows of %s hold a result", got, table)
		}
	}
}
