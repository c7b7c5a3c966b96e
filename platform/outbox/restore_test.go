package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/platformtest"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

// F07 (a): 100 events, 60 consumed, dumped and restored into a fresh cluster, where
// transaction ids begin anew: exactly the outstanding 40 and what comes after are
// delivered, and an audit row says what happened.
func TestRestoreIntoAFreshClusterDeliversExactlyWhatIsOutstanding(t *testing.T) {
	t.Parallel()
	pgDump := program(t, "pg_dump")
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	sub := seen(t, pool, nil)
	host := platformtest.Host(t, dsn, sub)
	var want []string
	fill := func(pool *pgxpool.Pool, n int) {
		for range n {
			want = append(want, name(len(want)))
			emit(t, pool, want[len(want)-1])
		}
	}
	fill(pool, 60)
	wantSeen(t, pool, "before the dump", want...)
	platformtest.Stop(t, host)
	fill(pool, 20)
	advance(t, pool) // these have positions,
	fill(pool, 20)   // these have none

	fresh := freshCluster(t)
	restored := restore(t, pgDump, dsn, fresh)
	there := platformtest.Pool(t, restored)
	old := ask[uint64](t, pool, `select pg_snapshot_xmax(pg_current_snapshot())::text::bigint`)
	if now := ask[uint64](t, there, `select pg_snapshot_xmax(pg_current_snapshot())::text::bigint`); now >= old {
		t.Fatalf("the fresh cluster is at transaction %d, the old one at %d: this test tests nothing", now, old)
	}

	// Under way while the log is repaired: ids below and above those that commit.
	low, prep := session(t, restored), session(t, restored)
	emit(t, low, "low")
	must(t, prep, `set local pgmill.quiet = on; select mill.emit('order.placed', 'prepared')`)
	must(t, prep, `prepare transaction 'during-the-repair'`)
	emit(t, there, "during")
	high := session(t, restored)
	emit(t, high, "high")
	want = append(want, "during")

	platformtest.Host(t, restored, sub)
	wantSeen(t, there, "after the restore", want...)
	if n := ask[int](t, there, `select count(*) from mill.audit where action = 'log.reposition' and reason = 'cluster_changed'`); n != 1 {
		t.Errorf("%d audit rows of the repair, want 1", n)
	}
	for _, late := range []struct {
		name string
		end  func()
	}{
		{"high", func() { must(t, high, "commit") }},
		{"low", func() { must(t, low, "commit") }},
		{"prepared", func() { must(t, there, "commit prepared 'during-the-repair'") }},
	} {
		late.end()
		want = append(want, late.name)
		wantSeen(t, there, "after "+late.name+" has committed", want...)
	}
	fill(there, 10)
	wantSeen(t, there, "after ten new ones", want...)

	// Until the new cluster's transaction ids have passed the old one's: what was
	// numbered there must not come again.
	if old > 2_000_000 {
		t.Logf("the old cluster is at transaction %d: too many to pass", old)
		return
	}
	passXID(t, there, old)
	fill(there, 10)
	wantSeen(t, there, "after the transaction ids of the old cluster were passed", want...)
	if n := ask[int](t, there, `select count(*) from mill.audit where action = 'log.reposition'`); n != 1 {
		t.Errorf("%d repairs, want 1", n)
	}
	if got := ask[string](t, there, `select status || ' ' || reasons::text from mill.health where component = 'log'`); got != "ok {}" {
		t.Errorf("mill.health of the log = %s", got)
	}
	platformtest.Invariants(t, there)
}

// A dump of one database holds no roles: restored where there are none, it has lost
// all grants, and without privileges the revokes, too. Migrating brings them back.
func TestMigrateBringsBackTheRightsThatARestoreLost(t *testing.T) {
	t.Parallel()
	pgDump, pgRestore := program(t, "pg_dump"), program(t, "pg_restore")
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	const rights = `
		select string_agg(what, E'\n' order by what) from (
		  select format('%s %s: %s may %s', kind, object, a.grantee::regrole, a.privilege_type) as what
		    from (select 'schema' as kind, nspname::text as object, nspacl as acl from pg_namespace where nspname in ('mill', 'pgmill')
		          union all
		          select 'relation', c.oid::regclass::text, relacl from pg_class c where relnamespace in ('mill'::regnamespace, 'pgmill'::regnamespace)
		          union all
		          select 'column', format('%s.%s', a.attrelid::regclass, attname), attacl
		            from pg_attribute a join pg_class c on c.oid = a.attrelid where relnamespace in ('mill'::regnamespace, 'pgmill'::regnamespace)
		          union all
		          select 'routine', p.oid::regprocedure::text, coalesce(proacl, acldefault('f', proowner))
		            from pg_proc p where pronamespace in ('mill'::regnamespace, 'pgmill'::regnamespace)) o, aclexplode(acl) a
		    join pg_roles owner on owner.rolsuper and owner.oid = 10
		   where a.grantee <> owner.oid) x`
	want := ask[string](t, pool, rights)
	for _, tt := range []struct {
		name    string
		options []string
	}{
		{"with privileges", nil},
		{"without privileges", []string{"--no-privileges"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fresh := freshCluster(t)
			dump := filepath.Join(clusterHome(t), "dump")
			run := func(program string, args ...string) error {
				out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
				if err != nil && !strings.Contains(string(out), `role "mill_reader" does not exist`) {
					t.Fatalf("%s: %v\n%s", program, err, out)
				}
				return err
			}
			_ = run(pgDump, append(tt.options, "--format=custom", "--no-owner", "--file="+dump, "--dbname="+pgtest.Direct(t, dsn))...)
			if err := run(pgRestore, "--no-owner", "--dbname="+fresh, dump); (err != nil) != (tt.options == nil) {
				t.Fatalf("pg_restore = %v: this test tests nothing", err)
			}
			there := platformtest.Pool(t, fresh)
			if err := pg.Check(t.Context(), there); !errors.Is(err, pg.ErrNotMigrated) {
				t.Errorf("Check of the restored database = %v, want ErrNotMigrated", err)
			}
			if changes, err := pg.Migrate(t.Context(), fresh, nil); err != nil || len(changes) != 1 {
				t.Errorf("Migrate = %v, %v; want the code only", changes, err)
			}
			if got := ask[string](t, there, rights); got != want {
				t.Errorf("rights are\n%s\nwant\n%s", got, want)
			}
			if err := pg.Check(t.Context(), there); err != nil {
				t.Errorf("Check after Migrate = %v", err)
			}
			if changes, err := pg.Migrate(t.Context(), fresh, nil); err != nil || len(changes) != 0 {
				t.Errorf("Migrate again = %v, %v; want nothing to do", changes, err)
			}
		})
	}
}

// A dump restored beside its original, in the same cluster, needs no repair: the
// transaction ids go on.
func TestRestoreIntoTheSameCluster(t *testing.T) {
	t.Parallel()
	pgDump := program(t, "pg_dump")
	dsn := platformtest.DSN(t)
	pool := platformtest.Pool(t, dsn)
	emit(t, pool, "e0")
	advance(t, pool)
	emit(t, pool, "e1")
	restored := restore(t, pgDump, dsn, platformtest.DSN(t))
	there := platformtest.Pool(t, restored)
	emit(t, there, "e2")
	advance(t, there)
	wantPositions(t, there, "in the copy", "e0", "e1", "e2")
	advance(t, pool)
	wantPositions(t, pool, "in the original", "e0", "e1")
	if n := ask[int](t, there, `select count(*) from mill.audit where action = 'log.reposition'`); n != 0 {
		t.Errorf("%d repairs, want none", n)
	}
}

// F07 (b): 32-bit transaction ids wrap; nothing here is 32 bits wide. The recipe is
// M9 of the field cases: the cluster is taken there by pg_resetwal.
func TestTransactionIDsWrapAround(t *testing.T) {
	t.Parallel()
	soak(t)
	resetWAL := program(t, "pg_resetwal")
	home := clusterHome(t)
	var server *pg.Private
	start := func() *pgxpool.Pool {
		var err error
		server, err = pg.StartPrivate(t.Context(), pg.PrivateOptions{Dir: home, Fast: true, Linger: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		pool, err := pgxpool.New(t.Context(), server.DSN())
		if err != nil {
			t.Fatal(err)
		}
		return pool
	}
	stop := func(pool *pgxpool.Pool) {
		pool.Close()
		_ = server.Close()
		stopped(t, home)
	}
	pool := start()
	if _, err := pg.Migrate(t.Context(), server.DSN(), nil); err != nil {
		t.Fatal(err)
	}
	emit(t, pool, "before")
	advance(t, pool)
	for _, xid := range []uint32{1_900_000_000, 3_800_000_000, 4_294_967_096} {
		must(t, pool, `alter database template0 allow_connections on`)
		for _, database := range ask[[]string](t, pool, `select array_agg(datname::text) from pg_database`) {
			u, _ := url.Parse(server.DSN())
			u.Path = "/" + database
			conn, err := pgx.Connect(t.Context(), u.String())
			if err != nil {
				t.Fatal(err)
			}
			must(t, conn, `vacuum (freeze)`)
			_ = conn.Close(t.Context())
		}
		stop(pool)
		data := filepath.Join(home, "data")
		cmd := exec.CommandContext(t.Context(), resetWAL, "-f", "-x", strconv.FormatUint(uint64(xid), 10), data)
		owner := ownerOf(t, data)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
		cmd.Dir = "/"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("pg_resetwal: %v\n%s", err, out)
		}
		segment := filepath.Join(data, "pg_xact", fmt.Sprintf("%04X", xid/1_048_576))
		if err := os.WriteFile(segment, make([]byte, 256<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		if owner != nil {
			if err := os.Chown(segment, int(owner.Uid), int(owner.Gid)); err != nil {
				t.Fatal(err)
			}
		}
		pool = start()
		emit(t, pool, fmt.Sprint(xid))
		if n := advance(t, pool); n != 1 {
			t.Errorf("advance at transaction %d = %d, want 1", xid, n)
		}
	}
	defer func() { stop(pool) }()
	for i := range 400 {
		emit(t, pool, name(i))
		if i%7 == 0 {
			advance(t, pool)
		}
	}
	for advance(t, pool) > 0 {
	}
	if x := ask[uint64](t, pool, `select pg_current_xact_id()::text::bigint`); x < 1<<32 {
		t.Fatalf("the cluster is at transaction %d: it has not wrapped, this test tests nothing", x)
	}
	if n := ask[int](t, pool, `select count(distinct e.id) from pgmill.log l join pgmill.event e on e.id = l.event_id where e.target like 'e%'`); n != 400 {
		t.Errorf("%d of 400 events have positions", n)
	}
	platformtest.Invariants(t, pool)
}

// freshCluster is a second server, which lives as long as the test.
func freshCluster(t *testing.T) (dsn string) {
	t.Helper()
	home := clusterHome(t)
	server, err := pg.StartPrivate(t.Context(), pg.PrivateOptions{Dir: home, Fast: true, Linger: 100 * time.Millisecond,
		Settings: map[string]string{"shared_buffers": "16MB", "max_prepared_transactions": "5"}})
	if errors.Is(err, pg.ErrNoBinaries) {
		t.Skipf("this test needs a Postgres of its own: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Close()
		stopped(t, home)
	})
	return server.DSN()
}

// clusterHome is a directory that the server's user can reach, which t.TempDir is not.
func clusterHome(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgmill-cluster-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// stopped waits until the server of a home has ended.
func stopped(t *testing.T, home string) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	late := time.After(30 * time.Second)
	for {
		if _, err := os.Stat(filepath.Join(home, "data", "postmaster.pid")); errors.Is(err, os.ErrNotExist) {
			return
		}
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("the server in %s does not stop", home)
		}
	}
}

func ownerOf(t *testing.T, path string) *syscall.Credential {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(stat.Uid) == os.Geteuid() {
		return nil
	}
	return &syscall.Credential{Uid: stat.Uid, Gid: stat.Gid}
}

// restore dumps the database of one DSN into a new database on the server of the
// other, and returns its DSN.
func restore(t *testing.T, pgDump, from, to string) (dsn string) {
	t.Helper()
	from, to = pgtest.Direct(t, from), pgtest.Direct(t, to) // pg_dump sets up its session
	conn, err := pgx.Connect(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	database := fmt.Sprintf("restored_%d", conn.PgConn().PID())
	must(t, conn, `create database `+database)
	t.Cleanup(func() {
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, to)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, `drop database if exists `+database+` with (force)`); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal("the DSN is no URL")
	}
	u.Path = "/" + database
	var script, said bytes.Buffer
	dump := exec.CommandContext(t.Context(), pgDump, "--no-owner", "--no-privileges", "--dbname="+from)
	dump.Stdout, dump.Stderr = &script, &said
	if err := dump.Run(); err != nil {
		t.Fatalf("pg_dump: %v\n%s", err, said.String())
	}
	load := exec.CommandContext(t.Context(), program(t, "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", os.DevNull, "--dbname="+u.String())
	said.Reset()
	load.Stdin, load.Stderr = &script, &said
	if err := load.Run(); err != nil {
		t.Fatalf("psql: %v\n%s", err, said.String())
	}
	if _, err := pg.Migrate(t.Context(), u.String(), nil); err != nil {
		t.Fatalf("migrate what was restored: %v", err)
	}
	return u.String()
}

// program finds a program of Postgres, the newest if there are several.
func program(t *testing.T, name string) string {
	t.Helper()
	if dir := os.Getenv("PGMILL_PG_BIN"); dir != "" { // it must be of the server's version
		path, err := exec.LookPath(filepath.Join(dir, name))
		if err != nil {
			t.Skipf("this test needs the server's own %s: %v", name, err)
		}
		return path
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) > 0 {
		return slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) })
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("this test needs Postgres's %s: %v", name, err)
	}
	return path
}

func major(path string) int {
	n, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return n
}

// passXID uses up transaction ids until the cluster is beyond xid.
func passXID(t *testing.T, db db, xid uint64) {
	t.Helper()
	must(t, db, fmt.Sprintf(`
		do $$ begin
		  while pg_snapshot_xmax(pg_current_snapshot())::text::bigint <= %d loop
		    perform pg_current_xact_id(); commit;
		  end loop;
		end $$`, xid))
}
