package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is a pool, a connection or a transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Exec runs statements that must go well.
func Exec(t testing.TB, db DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%.300s: %v", sql, err)
	}
}

// Ask returns the one value that a query answers.
func Ask[T any](t testing.TB, db DB, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%.300s: %v", sql, err)
	}
	return v
}

// Explain runs a query and answers its plan and how many pages it read.
func Explain(t testing.TB, db DB, query string) (plan string, pages int) {
	t.Helper()
	rows, err := db.Query(t.Context(), `explain (analyze, buffers) `+query)
	if err != nil {
		t.Fatalf("%.300s: %v", query, err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%.300s: %v", query, err)
	}
	plan = strings.Join(lines, "\n")
	m := regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`).FindStringSubmatch(plan) // the topmost counts all
	if m == nil {
		t.Fatalf("no pages in\n%s", plan)
	}
	hit, _ := strconv.Atoi(m[1])
	read, _ := strconv.Atoi(m[2])
	return plan, hit + read
}

// Fetched runs a statement and answers how many pages of pgmill's tables and their indexes
// it looked at. Those of the catalog do not count: how often that is read again is the
// server's affair.
func Fetched(t testing.TB, conn *pgx.Conn, statement string) (pages int) {
	t.Helper()
	for _, s := range []string{`select pg_stat_force_next_flush()`, `begin`, statement} {
		Exec(t, conn, s)
	}
	if err := conn.QueryRow(t.Context(), `select coalesce(sum(pg_stat_get_xact_blocks_fetched(oid)), 0) from pg_class where relnamespace = 'pgmill'::regnamespace`).Scan(&pages); err != nil {
		t.Fatal(err)
	}
	Exec(t, conn, `commit`)
	return pages
}

// Session is a connection of its own in an open transaction, which the end of the
// test rolls back if it is still open. It goes past a pooler. options are begin's.
func Session(t testing.TB, dsn string, options ...string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), Direct(t, dsn))
	if err != nil {
		t.Fatalf("test session: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	Exec(t, conn, strings.Join(append([]string{"begin"}, options...), " "))
	return conn
}

// Role makes a role that owns nothing and is a member of groups only, dropped at the
// end of the test. It returns its name and the DSN with it.
func Role(t testing.TB, dsn string, groups ...string) (name, as string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal("test role: the DSN is no URL")
	}
	direct := Direct(t, dsn)
	name, password := "pgmill_test_"+strings.ToLower(rand.Text()[:10]), rand.Text()
	run := func(ctx context.Context, sql string) {
		t.Helper()
		conn, err := pgx.Connect(ctx, direct)
		if err != nil {
			t.Errorf("test role: %v", err)
			return
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Errorf("test role: %v", err) // not the statement: it has the password
		}
	}
	create := fmt.Sprintf("create role %s login password '%s'", name, password)
	for _, g := range groups {
		create += fmt.Sprintf("; grant %s to %s", quoted(g), name)
	}
	run(t.Context(), create)
	t.Cleanup(func() { run(context.Background(), fmt.Sprintf("drop owned by %s; drop role %s", name, name)) })
	u.User = url.UserPassword(name, password)
	return name, u.String()
}

// HeldBack asks who keeps vacuum back, for longer than a second: the reasons of mill.health.
const HeldBack = `with s as materialized (select set_config('pgmill.holder_age', '1 second', false))
	select array_to_string(h.reasons, ' ') from s cross join mill.health h where h.component = 'vacuum'`
