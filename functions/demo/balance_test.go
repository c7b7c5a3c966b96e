package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/platformtest/pgtest"
)

func transfer(target, data string) platform.Event {
	return platform.Event{Type: Transferred, Target: target, Data: json.RawMessage(data)}
}

func TestRegistered(t *testing.T) {
	t.Parallel()
	only, err := platform.Default.Only("demo.branch_balance")
	if err != nil {
		t.Fatal(err)
	}
	s := platform.Of[platform.Subscription](only)[0]
	if !s.Owners.Complete() || !s.Matches(Transferred) || s.From != platform.FromZero {
		t.Errorf("registered as %+v; want complete owners, %s, from zero", s, Transferred)
	}
}

func TestABatchAddsEachDeltaOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := table(t)
	for _, batch := range [][]platform.Event{
		{
			transfer("branch/2", `{"teller": 11, "account": 7, "delta": 300}`),
			transfer("branch/1", `{"teller": 1, "account": 9007199254740993, "delta": -5}`),
			transfer("branch/2", `{"teller": 12, "account": 8, "delta": -100}`),
		},
		{transfer("branch/2", `{"teller": 13, "account": 9, "delta": 1}`)},
	} {
		if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return addDeltas(ctx, tx, batch) }); err != nil {
			t.Fatal(err)
		}
	}
	var got string
	err := conn.QueryRow(ctx, `select string_agg(bid || ':' || balance, ' ' order by bid) from demo.branch_balance`).Scan(&got)
	if want := "1:-5 2:201"; err != nil || got != want {
		t.Errorf("balances = %q, %v; want %q", got, err, want)
	}
}

func TestAnEventThatCannotBeReadIsNamedByItsIndex(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		bad  platform.Event
	}{
		{name: "the target is no branch", bad: transfer("teller/3", `{"delta": 1}`)},
		{name: "the branch is no number", bad: transfer("branch/x", `{"delta": 1}`)},
		{name: "the branch is too large", bad: transfer("branch/2147483648", `{"delta": 1}`)},
		{name: "the delta is no number", bad: transfer("branch/3", `{"delta": "much"}`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := addDeltas(t.Context(), nil, []platform.Event{transfer("branch/1", `{"delta": 1}`), tt.bad})
			var batch *platform.BatchError
			if !errors.As(err, &batch) || batch.Index != 1 || platform.ReasonOf(err) != platform.ReasonBadData {
				t.Errorf("addDeltas = %v, reason %q; want event 1, %s", err, platform.ReasonOf(err), platform.ReasonBadData)
			}
		})
	}
}

// table is a connection to a database that has the table as `host demo` makes it.
func table(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Database(t, nil, "functions/demo"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, ddl := range []string{`create schema demo`, `create table demo.branch_balance (bid int primary key, balance bigint not null)`} {
		if _, err := conn.Exec(t.Context(), ddl); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", ddl, err))
		}
	}
	return conn
}
