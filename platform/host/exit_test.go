package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform/pg"
)

func sqlstate(code string) error { return sqlError(code, "because") }

func sqlError(code, message string) error { return &pgconn.PgError{Code: code, Message: message} }

func TestExitCodes(t *testing.T) {
	t.Parallel()
	_, refused := pgx.Connect(t.Context(), "postgres://127.0.0.1:1/none?connect_timeout=2")
	for _, tt := range []struct {
		name string
		err  error
		want int
	}{
		{"went well", nil, exitOK},
		{"anything else", errors.New("oops"), exitFailed},
		{"not drained", errDrain, exitFailed},
		{"no", errAborted, exitFailed},
		{"a wrong command line", usageError{errors.New("x")}, exitUsage},
		{"faults of a configuration", errors.Join(faultf("a"), faultf("b")), exitUsage},
		{"a bad value for the database", sqlstate("MI001"), exitUsage},
		{"refused", refused, exitUnreachable},
		{"no route", &net.OpError{Op: "dial", Err: errors.New("no route")}, exitUnreachable},
		{"no answer", context.DeadlineExceeded, exitUnreachable},
		{"starting up", sqlstate("57P03"), exitUnreachable},
		{"too many connections", sqlstate("53300"), exitUnreachable},
		{"no such database", sqlstate("3D000"), exitUnreachable},
		{"connection lost", sqlstate("08006"), exitUnreachable},
		{"no Postgres here", pg.ErrNoBinaries, exitUnreachable},
		{"not migrated", pg.ErrNotMigrated, exitNotMigrated},
		{"a grant is missing", fmt.Errorf("%w: x", pg.ErrGrantMissing), exitNotMigrated},
		{"pending", errPending, exitNotMigrated},
		{"no such function of ours", sqlError("42883", `function mill.pause_subscription(text, text) does not exist`), exitNotMigrated},
		{"no such view of ours", sqlError("42P01", `relation "mill.subscriptions" does not exist`), exitNotMigrated},
		{"no schema of ours", sqlError("3F000", `schema "pgmill" does not exist`), exitNotMigrated},
		{"a handler's own missing table", sqlError("42P01", `relation "stock.reservation" does not exist`), exitFailed},
		{"a missing table of a schema with a similar name", sqlError("42P01", `relation "windmill.part" does not exist`), exitFailed},
		{"a handler's own missing function", sqlError("42883", `function reserve(text) does not exist`), exitFailed},
		{"a handler's own missing schema", sqlError("3F000", `schema "stock" does not exist`), exitFailed},
		{"a missing column of who knows what", sqlError("42703", `column "colour" does not exist`), exitFailed},
		{"not found", sqlstate("MI404"), exitNotFound},
		{"the state does not allow it", sqlstate("MI409"), exitConflict},
		{"locked", pg.ErrBusy, exitConflict},
		{"not allowed", sqlstate("42501"), exitDenied},
		{"a wrong password", sqlstate("28P01"), exitDenied},
		{"PgBouncer: a wrong password", sqlError("08P01", "password authentication failed"), exitDenied},
		{"PgBouncer: an unknown user", sqlError("08P01", "no such user: ann"), exitDenied},
		{"PgBouncer: an unknown database", sqlError("08P01", "no such database: d"), exitUnreachable},
		{"PgBouncer: an unknown parameter", sqlError("08P01", "unsupported startup parameter: sslmod"), exitFailed},
		{"PgBouncer: the server is gone", sqlError("08P01", "server login failed: FATAL: the database system is starting up"), exitUnreachable},
		{"a second signal", errStopped, exitSignal},
	} {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("%s: exit code of %v = %d, want %d", tt.name, tt.err, got, tt.want)
		}
		if tt.err != nil {
			if got := exitCode(fmt.Errorf("doing something: %w", tt.err)); got != tt.want {
				t.Errorf("%s, wrapped: %d, want %d", tt.name, got, tt.want)
			}
		}
	}
}

func TestErrorLines(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want []string
	}{
		{errors.Join(faultf("a"), errors.Join(faultf("b"), faultf("c"))), []string{"a", "b", "c"}},
		{fmt.Errorf("x: %w and %w", errors.New("a"), errors.New("b")), []string{"x: a and b"}},
		{fmt.Errorf("pause: %w", sqlstate("MI404")), []string{"because"}},
		{sqlError("3F000", `schema "mill" does not exist`), []string{pg.ErrNotMigrated.Error()}},
		{fmt.Errorf("sell: %w", sqlError("42P01", `relation "sale" does not exist`)), []string{`sell: : relation "sale" does not exist (SQLSTATE 42P01)`}},
		{errors.New("two\n  lines"), []string{"two lines"}},
	} {
		if got := errorLines(tt.err); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}
