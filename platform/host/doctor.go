package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/pg"
)

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warning or broken
	Detail string `json:"detail"`
	Do     string `json:"do,omitempty"` // the next step; "" where there is none to take
}

const (
	statusOK      = "ok"
	statusWarning = "warning" // it works, and should not stay so
	statusBroken  = "broken"  // nothing runs, or something may be lost
)

// doctor is one examination: db is where hosts work, direct where they listen.
type doctor struct {
	cfg        Config
	modules    []platform.Module // this build's
	db, direct *pgx.Conn
}

// examine asks everything that can be asked; what has no answer is a finding too.
func (d *doctor) examine(ctx context.Context) []finding {
	var all []finding
	for _, check := range []struct {
		name string
		ask  func(ctx context.Context) []finding
	}{
		{"server", d.server}, {"migrations and grants", d.migrated}, {"roles", d.roles}, {"modules", d.modulesReady}, {"listen", d.listen}, {"clock", d.clock},
		{"connections", d.connections}, {"indexes", d.indexes}, {"partitions", d.partitions}, {"health", d.health}, {"vacuum", d.vacuum},
	} {
		for _, f := range check.ask(ctx) {
			if f.Check == "" {
				f.Check = check.name
			}
			all = append(all, f)
		}
	}
	return all
}

func ok(format string, args ...any) []finding {
	return []finding{{Status: statusOK, Detail: fmt.Sprintf(format, args...)}}
}

func warning(do, format string, args ...any) []finding {
	return []finding{{Status: statusWarning, Detail: fmt.Sprintf(format, args...), Do: do}}
}

func broken(do, format string, args ...any) []finding {
	return []finding{{Status: statusBroken, Detail: fmt.Sprintf(format, args...), Do: do}}
}

// notAsked is a check that could not be made, for want of a grant as a rule.
func notAsked(err error) []finding {
	return warning("run it as a role with `GRANT mill_reader`, after `host migrate up`", "could not be asked (%s)", sqlstateOf(err))
}

// programs looks for PostgreSQL's own, where a private one is to be started.
func programs(cfg Config) []finding {
	if cfg.Database != "" {
		return nil
	}
	found := broken("install PostgreSQL (Debian, Ubuntu: apt-get install postgresql), or set DATABASE_URL", "none found for a private Postgres")
	folder, major, err := pg.Binaries("")
	switch {
	case err == nil:
		found = ok("PostgreSQL %d in %s", major, folder)
	case !errors.Is(err, pg.ErrNoBinaries):
		found = broken("correct PGMILL_PG_BIN, or unset it", "%v", err)
	}
	found[0].Check = "binaries"
	return found
}

func (d *doctor) server(ctx context.Context) []finding {
	var version int
	var fsync, pages, commit string
	began := time.Now()
	err := d.db.QueryRow(ctx, `select current_setting('server_version_num')::int, current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit')`).
		Scan(&version, &fsync, &pages, &commit)
	took := time.Since(began)
	switch {
	case err != nil:
		return notAsked(err)
	case version < 150000:
		return broken("use PostgreSQL 15 or later", "PostgreSQL %d", version/10000)
	case fsync != "on" || pages != "on":
		return broken("set fsync and full_page_writes on", "fsync %s, full_page_writes %s: a crash loses or destroys what was committed", fsync, pages)
	case commit == "off":
		return warning("set synchronous_commit on for the roles that emit", "synchronous_commit off: a crash loses the last commits")
	case took > 50*time.Millisecond:
		return warning("bring hosts and database closer together", "PostgreSQL %d, %v away: each batch waits for that twice", version/10000, took.Round(time.Millisecond))
	}
	return ok("PostgreSQL %d, %v away", version/10000, took.Round(10*time.Microsecond))
}

func (d *doctor) migrated(ctx context.Context) []finding {
	err := pg.Check(ctx, d.db)
	switch {
	case errors.Is(err, pg.ErrNotMigrated), errors.Is(err, pg.ErrGrantMissing):
		return broken("do what it says", "%v", err)
	case err != nil:
		return notAsked(err)
	}
	return ok("this build's")
}

// becoming is what stands still where hosts may not become a role. A migration leaves it
// out where the roles are another owner's (sql/views/900_grants.sql).
var becoming = map[string]string{
	"mill_cleaner":   "no clean-up of a team's own statement runs where it names no module",
	"pgmill_api":     "the API answers grant_missing",
	"pgmill_cleanup": "no clean-up runs, and tables grow",
}

// roles asks as the role that hosts run as, like modulesReady: they do some of their work
// as others. PostgreSQL 16 tells who may become a role from who only belongs to it.
func (d *doctor) roles(ctx context.Context) []finding {
	rows, err := d.db.Query(ctx, `
		with may as (select case when current_setting('server_version_num')::int < 160000 then 'member' else 'set' end as become)
		select r::text, pg_has_role('pgmill_runtime', r, become), quote_ident(current_user)
		  from may, unnest($1::text[]::name[]) r
		 where not pg_has_role(r, become)`, sorted(becoming))
	if err != nil {
		return notAsked(err)
	}
	type lack struct {
		Role    string
		Runtime bool // pgmill_runtime may
		Me      string
	}
	lacks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lack])
	if err != nil {
		return notAsked(err)
	}
	var all []finding
	for _, l := range lacks {
		do := "as a superuser: GRANT " + l.Role + " TO pgmill_runtime"
		if l.Runtime {
			do = "GRANT pgmill_runtime TO " + l.Me + ", if hosts run as it"
		}
		all = append(all, warning(do, "%s may not become %s: %s", l.Me, l.Role, becoming[l.Role])...)
	}
	if all == nil {
		return ok("those that hosts need")
	}
	return all
}

// modulesReady compares the modules of this build with those of the database, which
// hosts of another build may serve: what they have, or do without, is no fault. Asked as
// the role that hosts run as: whether it may become theirs is part of it.
func (d *doctor) modulesReady(ctx context.Context) []finding {
	others, served, err := d.modulesThere(ctx)
	if err != nil {
		return notAsked(err)
	}
	var all []finding
	var absent, theirs, idle []string
	for _, m := range d.modules {
		_, there := others[m.Name]
		delete(others, m.Name)
		err := pg.CheckModules(ctx, d.db, []platform.Module{m})
		switch {
		case errors.Is(err, pg.ErrNotMigrated) && !there && served:
			absent = append(absent, m.Name)
		case errors.Is(err, pg.ErrNotMigrated), errors.Is(err, pg.ErrGrantMissing):
			all = append(all, broken("do what it says", "%v", err)...)
		case err != nil:
			return notAsked(err)
		}
	}
	for _, name := range sorted(others) {
		if others[name] > 0 {
			theirs = append(theirs, name)
		} else {
			idle = append(idle, name)
		}
	}
	if len(idle) > 0 {
		all = append(all, warning("run hosts of a build that has them; if they are gone for good, drop their schemas and their rows of pgmill.module as the owner",
			"the database has modules that neither this build nor a live host has: %s", strings.Join(idle, ", "))...)
	}
	if all != nil {
		return all
	}
	detail := fmt.Sprintf("%d, migrated", len(d.modules)-len(absent))
	if len(theirs) > 0 {
		detail += "; another build's, which is live: " + strings.Join(theirs, ", ")
	}
	if len(absent) > 0 {
		detail += "; not in this database, which another build serves: " + strings.Join(absent, ", ")
	}
	return ok("%s", detail)
}

// modulesThere is how many live hosts run each module of the database, and whether any
// host lives.
func (d *doctor) modulesThere(ctx context.Context) (hosts map[string]int, served bool, err error) {
	rows, err := d.db.Query(ctx, "select name, live_hosts::int from mill.modules")
	if err != nil {
		return nil, false, err
	}
	hosts = map[string]int{}
	var name string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error { hosts[name] = n; return nil }); err != nil {
		return nil, false, err
	}
	err = d.db.QueryRow(ctx, "select exists (select from mill.instances where kind = 'worker' and live)").Scan(&served)
	return hosts, served, err
}

// listen sends itself a word, as hosts do: behind a transaction-mode pooler it does
// not arrive.
func (d *doctor) listen(ctx context.Context) []finding {
	same := "select system_identifier::text || '/' || current_database() from pg_control_system()"
	var here, there string
	if err := errors.Join(d.db.QueryRow(ctx, same).Scan(&here), d.direct.QueryRow(ctx, same).Scan(&there)); err != nil {
		return notAsked(err)
	}
	if here != there {
		return broken("set PGMILL_LISTEN_URL to the same database as DATABASE_URL", "the listen URL is another database")
	}
	channel := "pgmill_doctor_" + strings.ToLower(rand.Text())
	if _, err := d.direct.Exec(ctx, "listen "+channel); err != nil {
		return notAsked(err)
	}
	if _, err := d.db.Exec(ctx, "select pg_notify($1, '')", channel); err != nil {
		return notAsked(err)
	}
	wctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	began := time.Now()
	if _, err := d.direct.WaitForNotification(wctx); err != nil {
		return warning("set PGMILL_LISTEN_URL to a DSN that bypasses the pooler", "not heard (listen_unavailable): hosts poll ten times a second")
	}
	return ok("heard after %v", time.Since(began).Round(10*time.Microsecond))
}

func (d *doctor) clock(ctx context.Context) []finding {
	var theirs time.Time
	began := time.Now()
	if err := d.db.QueryRow(ctx, "select clock_timestamp()").Scan(&theirs); err != nil {
		return notAsked(err)
	}
	ended := time.Now()
	return skewed(theirs.Sub(began.Add(ended.Sub(began) / 2)))
}

// skewed judges how far the database's clock is ahead of this machine's.
func skewed(skew time.Duration) []finding {
	if skew.Abs() > time.Second {
		return warning("let NTP set both clocks", "%v between this machine and the database: only the database's counts, but logs will not match", skew.Round(time.Millisecond))
	}
	return ok("%v from the database's", skew.Round(time.Millisecond))
}

func (d *doctor) connections(ctx context.Context) []finding {
	var used, most, kept int
	if err := d.db.QueryRow(ctx, `select (select count(*) from pg_stat_activity where backend_type = 'client backend')::int, current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int`).
		Scan(&used, &most, &kept); err != nil {
		return notAsked(err)
	}
	need, worker := connsOf(d.cfg.MaxConns, true), connsOf(d.cfg.MaxConns, false)
	if free := most - kept - used; free < need {
		return warning("raise max_connections, lower PGMILL_MAX_CONNS, or put a pooler between", "%d of %d are free; one more host may take %d (worker %d)", max(0, free), most, need, worker)
	}
	return ok("%d of %d in use; a host takes up to %d (worker %d)", used, most, need, worker)
}

func (d *doctor) indexes(ctx context.Context) []finding {
	rows, err := d.db.Query(ctx, `
		select format('%I.%I', n.nspname, c.relname)
		  from pg_index i join pg_class c on c.oid = i.indexrelid join pg_namespace n on n.oid = c.relnamespace
		 where (n.nspname = 'pgmill' or n.nspname in (select name from mill.modules)) and not (i.indisvalid and i.indisready)
		 order by 1`)
	if err != nil {
		return notAsked(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return notAsked(err)
	}
	var all []finding
	for _, name := range names {
		all = append(all, broken("reindex index concurrently "+name, "%s is not valid: what it keeps unique is not", name)...)
	}
	if all == nil {
		return ok("all valid")
	}
	return all
}

func (d *doctor) partitions(ctx context.Context) []finding {
	var ahead int
	if err := d.db.QueryRow(ctx, `
		select count(*)::int
		  from pg_inherits i join pg_class c on c.oid = i.inhrelid
		 where i.inhparent = 'pgmill.log'::regclass
		   and substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM \(''([0-9]+)''\)')::bigint > (select (counts ->> 'head')::bigint from mill.health where component = 'log')`).Scan(&ahead); err != nil {
		return notAsked(err)
	}
	if ahead == 0 {
		return warning("start a host: each makes three ahead; see its log if it cannot", "the log has no partition ahead; the default one takes the rest")
	}
	return ok("%d ahead", ahead)
}

// remedies says what to do about the reason codes of mill.health.
var remedies = map[string]string{
	"held":                    "host subscription list; then resume, park or drop",
	"retrying":                "see mill.why_not_running; it is tried again by itself",
	"parked":                  "see mill.parked_events; then host subscription unpark or drop",
	"expired":                 "host subscription move NAME --to zero: what it needed is archived",
	"overdue":                 "start a host that has the function: host serve; if one runs, see mill.schedules and its log",
	"bad_schedule":            "mend the declaration's cron line or zone and start a host",
	"no_live_host":            "start a host that has the functions: host serve",
	"owner_matrix_incomplete": "name all seven owners in the declaration",
	"host_lost":               "wait a lease and a second; a live host takes them",
	"listen_unavailable":      "set PGMILL_LISTEN_URL to a DSN that bypasses the pooler",
	"default_partition_used":  "move its rows to a partition of their range as the owner",
	"positions_late":          "start a host; if one runs, see its log",
	"notify_queue_filling":    "end the session that listens and does not read: select pid from pg_stat_activity where query like 'listen%'",
	"dead_letters":            "see mill.dead_letters; mend what their reasons name, then pgmill dlq retry or delete",
}

func (d *doctor) health(ctx context.Context) []finding {
	rows, err := d.db.Query(ctx, "select component, status, reasons from mill.health where component <> 'vacuum' order by component")
	if err != nil {
		return notAsked(err)
	}
	type line struct {
		Component, Status string
		Reasons           []string
	}
	lines, err := pgx.CollectRows(rows, pgx.RowToStructByPos[line])
	if err != nil {
		return notAsked(err)
	}
	var all []finding
	for _, l := range lines {
		f := finding{Check: l.Component, Status: statusOK, Detail: strings.Join(l.Reasons, ", ")}
		if l.Status != "ok" {
			f.Status = statusWarning
		}
		for _, r := range l.Reasons {
			if do := remedies[r]; do != "" && f.Do == "" && f.Status != statusOK {
				f.Do = do
			}
		}
		all = append(all, f)
	}
	return all
}

// vacuum names who keeps dead rows from being cleaned up.
func (d *doctor) vacuum(ctx context.Context) []finding {
	rows, err := d.db.Query(ctx, "select kind, who, seconds from pgmill.holders()")
	if err != nil {
		return notAsked(err)
	}
	type holder struct {
		Kind, Who string
		Seconds   *int64
	}
	holders, err := pgx.CollectRows(rows, pgx.RowToStructByPos[holder])
	if err != nil {
		return notAsked(err)
	}
	var all []finding
	for _, h := range holders {
		_, name, _ := strings.Cut(h.Who, " ")
		do := map[string]string{
			"transaction":          "end it: select pg_terminate_backend(" + name + ")",
			"prepared_transaction": "finish it: commit prepared '" + name + "' or rollback prepared",
			"replication_slot":     "let its consumer catch up, or drop it: select pg_drop_replication_slot('" + name + "')",
		}[h.Kind]
		since := ""
		if h.Seconds != nil {
			since = fmt.Sprintf(" for %v", time.Duration(*h.Seconds)*time.Second)
		}
		all = append(all, warning(do, "%s %s holds back vacuum%s; cursors do not wait for it", strings.ReplaceAll(h.Kind, "_", " "), h.Who, since)...)
	}
	if all == nil {
		return ok("nobody holds it back for longer than 30 s")
	}
	return all
}
