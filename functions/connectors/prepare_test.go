package connectors

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// desk is a program that has the seams, and the database behind it.
type desk struct {
	*testing.T
	dsn         string
	db, program *pgxpool.Pool
}

func newDesk(t *testing.T) desk {
	t.Helper()
	dsn := platformtest.DSN(t, Module)
	_, as := pgtest.Role(t, dsn, "mill_module")
	d := desk{t, dsn, platformtest.Pool(t, dsn), platformtest.Pool(t, as)}
	if err := Add(t.Context(), d.program, "files", "files-1", "org:acme"); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d desk) choose(selected bool, refs ...string) {
	d.Helper()
	for _, ref := range refs {
		if _, err := SelectSource(d.Context(), d.program, "files-1", ref, selected); err != nil {
			d.Fatal(err)
		}
	}
}

// prepare answers 0 if nothing is eligible.
func (d desk) prepare(refs ...string) int64 {
	d.Helper()
	id, ok, err := PrepareForAI(d.Context(), d.program, "files-1", refs...)
	if err != nil || ok != (id != 0) {
		d.Fatalf("PrepareForAI = %d, %v, %v", id, ok, err)
	}
	return id
}

func (d desk) stands(id int64, want string) {
	d.Helper()
	p, ok, err := ReadPreparation(d.Context(), d.program, id)
	got := fmt.Sprintf("%s of %s: %s, %d of %d, %d failed %s, %d retries", p.Instance, p.Scope, p.Stage, p.HandedOff, p.Sources, p.Failed, p.FailureCode, p.Retries)
	if err != nil || !ok || got != want {
		d.Errorf("preparation %d (%v, %v) is\n%s, want\n%s", id, ok, err, got, want)
	}
}

func (d desk) host() {
	d.Helper()
	h := &host.Worker{Database: d.dsn, Registry: platform.NewRegistry()}
	for _, f := range []platform.Function{Module, Prepare, PrepareStatus} {
		if err := h.Registry.Add(f); err != nil {
			d.Fatal(err)
		}
	}
	platformtest.HostWith(d, h)
}

// N58, N59, N43: what is selected is handed over in one call, one job each, each once;
// what changes is eligible again; the counts are the subscription's. Only pointers leave.
func TestPrepareForAI(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if id := d.prepare(); id != 0 {
		t.Error("nothing is selected, and it is prepared")
	}
	d.choose(true, "a.pdf", "dir/b.pdf", "c.pdf", "d.pdf")
	d.choose(false, "d.pdf", "e.pdf")
	first := d.prepare("a.pdf", "dir/b.pdf", "d.pdf", "nothing")
	d.stands(first, "files-1 of org:acme: queued, 0 of 2, 0 failed , 0 retries")
	if id := d.prepare("a.pdf"); id != 0 {
		t.Error("a source that is on its way is prepared again")
	}
	second := d.prepare() // c.pdf
	d.choose(false, "dir/b.pdf")
	d.host()
	platformtest.WaitFor(t, d.db, `select count(*) = 2 from connectors.preparations where handed_off = 1`)
	platformtest.WaitFor(t, d.db, `select bool_and(state = 'SUCCEEDED') from mill.jobs where topic = 'job.connectors.prepare'`)
	d.stands(first, "files-1 of org:acme: done, 1 of 2, 0 failed , 0 retries") // b.pdf was withdrawn
	d.stands(second, "files-1 of org:acme: done, 1 of 1, 0 failed , 0 retries")
	if id := d.prepare(); id != 0 {
		t.Error("what was handed over is prepared again")
	}
	d.choose(true, "a.pdf") // it has changed
	third := d.prepare()
	platformtest.WaitFor(t, d.db, `select handed_off = 1 from connectors.preparations where id = $1`, third)
	platformtest.WaitFor(t, d.db, `select bool_and(state = 'SUCCEEDED') from mill.jobs where topic = 'job.connectors.prepare'`)
	pgtest.Exec(t, d.db, `delete from pgmill.job where trace_id = $1`, fmt.Sprintf("connectors.prepare-%d", first)) // as the clean-up does
	d.stands(first, "files-1 of org:acme: done, 1 of 2, 0 failed , 0 retries")

	const events = `select string_agg(concat_ws(' ', target, scope, data), ', ' order by id) from pgmill.event where type = 'connector.source.handed_off'`
	if got := pgtest.Ask[string](t, d.db, events); strings.Contains(got, "pdf") || strings.Count(got, "files-1 org:acme {") != 3 {
		t.Errorf("events are %s", got)
	}
	if got := pgtest.Ask[string](t, d.db, `select string_agg(distinct concat_ws(' ', scope, trace_id), ', ') from mill.jobs`); strings.Count(got, "org:acme connectors.prepare-") != 2 {
		t.Errorf("jobs are %s", got)
	}
}

// N58: retries, the time of the next one and a code of what failed are shown; what failed
// for good may be prepared again.
func TestAPreparationThatFails(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.choose(true, "a", "b")
	id := d.prepare()
	fail := func(retry bool) {
		t.Helper()
		pgtest.Exec(t, d.db, `update pgmill.job_waiting set due_at = now() where due_at is not null; select pgmill.promote_jobs()`)
		if n := pgtest.Ask[int](t, d.db, `select count(mill.fail_job(job_id, token, 'connectors.gone', $1))::int from mill.claim_jobs('w1', '{job.connectors.prepare}', 2)`, retry); n != 2 {
			t.Fatalf("%d of 2 fail", n)
		}
	}
	fail(true)
	d.stands(id, "files-1 of org:acme: running, 0 of 2, 0 failed , 0 retries")
	p, _, _ := ReadPreparation(t.Context(), d.program, id)
	if p.NextRetry.IsZero() {
		t.Error("no time of the next retry is shown")
	}
	fail(false)
	d.stands(id, "files-1 of org:acme: failed, 0 of 2, 2 failed connectors.gone, 2 retries")
	pgtest.Exec(t, d.db, `with letters as (delete from pgmill.dead_letter where topic = 'job.connectors.prepare') delete from pgmill.job where topic = 'job.connectors.prepare'`) // as the clean-ups do
	d.stands(id, "files-1 of org:acme: failed, 0 of 2, 2 failed connectors.job_gone, 0 retries")
	if d.prepare() == 0 {
		t.Error("what failed for good cannot be prepared again")
	}
	if _, ok, err := ReadPreparation(t.Context(), d.program, 99); ok || err != nil {
		t.Errorf("a preparation that there is not: %v, %v", ok, err)
	}
	if _, _, err := PrepareForAI(t.Context(), d.program, "none"); err == nil || !strings.Contains(err.Error(), "MI404") {
		t.Errorf("an instance that there is not: %v", err)
	}
	for _, ref := range []string{"", "a b", "x\n", strings.Repeat("x", 121)} {
		if _, err := SelectSource(t.Context(), d.program, "files-1", ref, true); err == nil {
			t.Errorf("the ref %q is taken", ref)
		}
	}
}

// One call takes ten thousand; the rest is eligible still.
func TestPrepareManyAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	pgtest.Exec(t, d.db, `insert into connectors.source (instance, ref, selected) select 'files-1', 'f-' || i, true from generate_series(1, 10500) i`)
	first, second := d.prepare(), d.prepare()
	d.stands(first, "files-1 of org:acme: queued, 0 of 10000, 0 failed , 0 retries")
	d.stands(second, "files-1 of org:acme: queued, 0 of 500, 0 failed , 0 retries")
	if n := pgtest.Ask[int](t, d.db, `select count(*)::int from connectors.preparation_source s join pgmill.job j on j.id = s.job and (j.input ->> 'source')::bigint = s.source and (j.input ->> 'preparation')::bigint = s.preparation`); n != 10500 {
		t.Errorf("%d jobs are those of their sources, want 10500", n)
	}
}
