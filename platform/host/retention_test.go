package host

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

func TestParseKeep(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want time.Duration // 0: refused
	}{
		{"7d", 168 * time.Hour}, {"36h", 36 * time.Hour}, {"1d12h30m", 36*time.Hour + 30*time.Minute}, {"0d2m", 2 * time.Minute},
		{"", 0}, {"7", 0}, {"d", 0}, {"-1d", 0}, {"1d-2h", 0}, {"30s", 0}, {"0d", 0}, {"7 days", 0}, {"999999d", 0},
	} {
		if got, err := parseKeep(tt.text); got != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("parseKeep(%q) = %v, %v; want %v", tt.text, got, err, tt.want)
		}
	}
}

// Every fault of the manifest is told with all others of the configuration.
func TestRetentionOfAProfile(t *testing.T) {
	t.Parallel()
	reg := withFunctions(t, "a.one")
	if err := reg.Add(platform.Cleanup{Name: "shop.carts", Rule: platform.Rule{Delete: "delete $1 $2", Keep: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	profile := func(retention string) string {
		return textFile(t, "own.yaml", "name: own\nposture: single-db-pilot\nha_reason: none\ndatabase: {absent: refuse}\nretention: {"+retention+"}\n")
	}
	cfg, err := loadConfig(sources{flags: parsedFlags(t, "--profile-file", profile("idempotency_keys: 9d, shop.carts: 36h"))}, reg, false)
	if got := fmt.Sprint(cfg.Retention); err != nil || got != "map[idempotency_keys:216h0m0s shop.carts:36h0m0s]" {
		t.Errorf("retention %s, %v", got, err)
	}
	_, err = loadConfig(sources{flags: parsedFlags(t, "--profile-file", profile("idempotency_keys: 1d, shop.cart: 36h, instances: soon"), "--grace", "never")}, reg, false)
	for _, want := range []string{"idempotency_keys: 1d is less than the 168h0m0s", `no clean-up of this build is called "shop.cart"; did you mean shop.carts?`, `instances: write how long, such as 7d, 36h or 1d12h, not "soon"`, "--grace"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q", err, want)
		}
	}
	for _, name := range profileNames() {
		cfg, err := loadConfig(sources{flags: parsedFlags(t, "--profile", name)}, reg, false)
		if err != nil || cfg.Retention["idempotency_keys"] != 168*time.Hour || cfg.Retention["instances"] < time.Hour {
			t.Errorf("profile %s: retention %v, %v", name, cfg.Retention, err)
		}
	}
}

// What a host's schedules and clean-ups do is in its metrics.
func TestTicksAndCleanupsAreCounted(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	conn := connected(t, dsn)
	reg := platform.NewRegistry()
	for _, f := range []platform.Function{
		platform.Schedule{Name: "a.tick", Cron: "@every 87600h", Owners: platform.OwnedBy("a"), Handle: func(context.Context, pgx.Tx, platform.Tick) error { return nil }},
		platform.Cleanup{Name: "a.keys", Cron: "@every 87600h", Rule: platform.Rule{Class: "idempotency_keys", Keep: 7 * 24 * time.Hour}},
	} {
		if err := reg.Add(f); err != nil {
			t.Fatal(err)
		}
	}
	host := start(t, reg, []string{"DATABASE_URL=" + dsn}, "worker")
	host.becomes(200, "")
	host.shows(`pgmill_ticks_emitted_total 0`, `pgmill_cleanup_rows_total{class="idempotency_keys"} 0`, `pgmill_cleanup_last_success_timestamp_seconds{class="idempotency_keys"} 0`)
	pgtest.Exec(t, conn, `insert into pgmill.event_key (scope, type, key, event_id, body, at) select 'install', 'a.b', i::text, 1, '', now() - interval '8 days' from generate_series(1, 3) i`)
	pgtest.Exec(t, conn, `update pgmill.schedule set next_at = date_trunc('second', now()), version = version + 1`)
	host.shows(`pgmill_ticks_emitted_total 2`, `pgmill_cleanup_rows_total{class="idempotency_keys"} 3`, `pgmill_cleanup_last_success_timestamp_seconds{class="idempotency_keys"} [1-9].*`)
	host.signal()
	host.exits(exitOK, 15*time.Second)
}

// Every series of clean-ups is there at 0 from the start.
func TestCleanupMetrics(t *testing.T) {
	t.Parallel()
	reg := withFunctions(t, "a.one")
	for _, c := range []platform.Cleanup{
		{Name: "a.keys", Rule: platform.Rule{Class: "keys", Keep: time.Hour}}, {Name: "a.more_keys", Scope: platform.Provider, Rule: platform.Rule{Class: "keys", Keep: time.Hour}},
		{Name: "shop.carts", Rule: platform.Rule{Delete: "delete $1 $2", Keep: time.Hour}},
	} {
		if err := reg.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	m := newMetrics(reg)
	for _, key := range []string{"keys", "shop.carts"} {
		for _, name := range []string{"cleanup_rows_total", "cleanup_last_success_timestamp_seconds"} {
			if v, ok := samples(t, m)["pgmill_"+name+" class="+key]; !ok || v != 0 {
				t.Errorf("%s of %s = %v, there: %v", name, key, v, ok)
			}
		}
	}
	m.RowsCleaned("keys", 7)
	m.CleanupDone("keys")
	got := samples(t, m)
	if got["pgmill_cleanup_rows_total class=keys"] != 7 || got["pgmill_cleanup_last_success_timestamp_seconds class=keys"] < 1e9 || got["pgmill_cleanup_rows_total class=shop.carts"] != 0 {
		t.Errorf("counted %v", got)
	}
}

// DESIGN 8: archive and clean-ups by the command line, with its exit codes.
func TestArchiveAndCleanupCommands(t *testing.T) {
	t.Parallel()
	dsn := migratedDatabase(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), declared+`
		insert into pgmill.function (name, kind, module, listens) values ('a.clean', 'cleanup', 'a', '{@hourly}');
		insert into pgmill.subscription (name, likes, order_by, shards, batch, max_attempts, on_poison, replayable, timeout) values ('a.clean', '{}', 'key', 1, 1, 1, 'park', false, '1 s');
		insert into pgmill.shard (subscription, shard) values ('a.clean', 0);
		insert into pgmill.cursor (subscription, shard, n, pos) values ('a.clean', 0, 0, 0);
		insert into pgmill.schedule (name, cron, zone, missed, max_missed, overlap, next_at) values ('a.clean', '@hourly', 'UTC', 'latest', 100, 'skip', '2100-01-01');
		insert into pgmill.retention (name, class, scope, keep, batch) values ('a.clean', 'idempotency_keys', 'install', '7 days', 1000);
		select mill.emit('test.event', 't') from generate_series(1, 10)`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `select pgmill.advance()`); err != nil {
		t.Fatal(err)
	}
	sh := shell{t: t, reg: platform.NewRegistry(), environ: []string{"DATABASE_URL=" + dsn}}
	for _, step := range []struct {
		sql, args      string
		code           int
		stdout, stderr string
	}{
		{"", "cleanup list", exitOK, "a.clean  @hourly  UTC   2100-01-01 ", ""},
		{"", "schedule list", exitOK, "NAME", ""},
		{"", "cleanup preview", exitOK, "idempotency_keys  install  0 ", ""},
		{"", "cleanup preview -o json", exitOK, `"class": "events"`, ""},
		{"", "cleanup run a.clean", exitOK, "a.clean: triggered", ""},
		{"", "events archive", exitUsage, "", "--before"},
		{"", "events archive --before soon", exitUsage, "", "a position, a time like"},
		{"", "events archive --before 4 -n", exitConflict, "would archive 3 events at positions 1 to 3", "readers need events up to position 3: the cursor of a.clean/0, from position 1"},
		{"insert into pgmill.cursor (subscription, shard, n, pos) select subscription, shard, 99, 10 from pgmill.shard", "events archive --before 4 -n", exitOK, "would archive 3 events", ""},
		{"", "events archive --before 4", exitUsage, "", "say --yes"},
		{"", "events archive --before 4 --yes -o json", exitOK, `"archived": 3`, "archived 3 of 3 events, up to position 3"},
		{"", "events archive --before 4 --yes", exitOK, "nothing to archive before position 4", ""},
		{"", "events archive --before 6 --yes --reason space", exitOK, "archived 2 events at positions 4 to 5", ""},
	} {
		if step.sql != "" {
			if _, err := conn.Exec(t.Context(), step.sql); err != nil {
				t.Fatal(err)
			}
		}
		code, stdout, stderr := sh.run(strings.Fields(step.args)...)
		if code != step.code || !strings.Contains(stdout, step.stdout) || !strings.Contains(stderr, step.stderr) || strings.Contains(stderr, "SQLSTATE") {
			t.Errorf("%s: exit code %d, want %d\nstdout: %s\nstderr: %s", step.args, code, step.code, stdout, stderr)
		}
	}
	var audits string
	const query = "select string_agg(concat_ws(' ', action, subject, reason), ', ' order by at) from mill.audit where action like 'events%'"
	if err := conn.QueryRow(t.Context(), query).Scan(&audits); err != nil || audits != "events.archive positions 1 to 3, events.archive positions 4 to 5 space" {
		t.Errorf("audit: %s, %v", audits, err)
	}
	_, as := pgtest.Role(t, dsn, "pgmill_runtime")
	sh.environ = []string{"DATABASE_URL=" + as}
	if code, _, stderr := sh.run("events", "archive", "--before", "8", "--yes"); code != exitDenied || !strings.Contains(stderr, "for the owner of the tables: connect as") || strings.Contains(stderr, "GRANT") {
		t.Errorf("by a host's role: exit code %d, %s", code, stderr)
	}
}
