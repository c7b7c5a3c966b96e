package platform_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

func handleTick(context.Context, pgx.Tx, platform.Tick) error { return nil }

func TestAddSaysInOneLineWhatIsWrongWithASchedule(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*platform.Schedule)
		want   string // "": it is right
	}{
		{"the smallest one is right", func(*platform.Schedule) {}, ""},
		{"incomplete owners are declared, and do not run (N40)", func(s *platform.Schedule) { s.Owners = platform.Owners{} }, ""},
		{"ticks side by side are right", func(s *platform.Schedule) { s.Overlap, s.Together = platform.AllowOverlap, 64 }, ""},
		{"no name", func(s *platform.Schedule) { s.Name = "" }, `schedule ""`},
		{"a name of two lines", func(s *platform.Schedule) { s.Name = "nightly\n" }, "lower-case words"},
		{"a name of 101 bytes", func(s *platform.Schedule) { s.Name = strings.Repeat("n", 101) }, "at most 100 bytes"},
		{"a module that is no name", func(s *platform.Schedule) { s.Module = "The Stock" }, "module"},
		{"no cron line", func(s *platform.Schedule) { s.Cron = "" }, "empty"},
		{"a bad cron line", func(s *platform.Schedule) { s.Cron = "61 * * * *" }, `cron "61 * * * *"`},
		{"31 February (F63)", func(s *platform.Schedule) { s.Cron = "0 0 31 2 *" }, "never fires"},
		{"an interval below a second (F63)", func(s *platform.Schedule) { s.Cron = "@every 10ms" }, "at least 1s"},
		{"a bad zone", func(s *platform.Schedule) { s.Zone = "Europe/Bonn" }, `zone "Europe/Bonn"`},
		{"no handler", func(s *platform.Schedule) { s.Handle = nil }, "Handle is not set"},
		{"an unknown fate of what was missed", func(s *platform.Schedule) { s.Missed = "some" }, `Missed "some"`},
		{"too many of what was missed", func(s *platform.Schedule) { s.MaxMissed = 1001 }, "MaxMissed is 1001"},
		{"an unknown fate of what overlaps", func(s *platform.Schedule) { s.Overlap = "replace" }, `Overlap "replace"`},
		{"side by side in a queue", func(s *platform.Schedule) { s.Together = 2 }, "Overlap is queue"},
		{"too many side by side", func(s *platform.Schedule) { s.Overlap, s.Together = platform.AllowOverlap, 65 }, "Together is 65"},
		{"negative attempts", func(s *platform.Schedule) { s.MaxAttempts = -1 }, "MaxAttempts is -1"},
		{"an unknown fate of poison", func(s *platform.Schedule) { s.OnPoison = "drop" }, `OnPoison "drop"`},
		{"a negative timeout", func(s *platform.Schedule) { s.Timeout = -time.Second }, "Timeout is -1s"},
	}
	for _, tt := range tests {
		s := platform.Schedule{Name: "stock.nightly", Cron: "30 2 * * *", Zone: "Europe/Berlin", Owners: platform.OwnedBy("stock"), Handle: handleTick}
		tt.change(&s)
		err := platform.NewRegistry().Add(s)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v, want nil", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v; want one line with %q", tt.name, err, tt.want)
		}
	}
}

func TestScheduleIsASubscriptionOfItsTicks(t *testing.T) {
	t.Parallel()
	var got platform.Tick
	r := platform.NewRegistry()
	if err := r.Add(platform.Schedule{Name: "stock.nightly", Cron: "30 2 * * *", Zone: "Europe/Berlin", Owners: platform.OwnedBy("stock"),
		Handle: func(_ context.Context, _ pgx.Tx, t platform.Tick) error { got = t; return nil }}); err != nil {
		t.Fatal(err)
	}
	s := platform.Of[platform.Schedule](r)[0]
	sub := s.Subscription()
	if err := platform.NewRegistry().Add(sub); err != nil {
		t.Errorf("Add of the subscription = %v", err)
	}
	if d := fmt.Sprintf("%v %v %v %v %v", sub.Describe(), sub.Events, sub.OnPoison, sub.Batch, sub.Shards); d != "{stock.nightly schedule stock [30 2 * * * Europe/Berlin]} [schedule.stock.nightly] park 1 1" {
		t.Errorf("it is %s", d)
	}
	if err := sub.Handle(t.Context(), nil, platform.Event{ID: 7, Data: json.RawMessage(`{"at": "2026-03-29T01:00:00Z", "missed": 2}`)}); err != nil {
		t.Fatal(err)
	}
	if said := fmt.Sprint(got.Name, " ", got.At, " ", got.Missed, got.Manual, got.Event.ID); said != "stock.nightly 2026-03-29 03:00:00 +0200 CEST 2 false 7" {
		t.Errorf("the handler got %s", said)
	}
	if err := sub.Handle(t.Context(), nil, platform.Event{Data: json.RawMessage(`{"at": 5}`)}); platform.ReasonOf(err) != platform.ReasonBadData {
		t.Errorf("a bad tick: %v", err)
	}
}

func ExampleSchedule() {
	registry := platform.NewRegistry()
	err := registry.Add(platform.Schedule{
		Name:   "stock.nightly",
		Cron:   "30 2 * * *",
		Zone:   "Europe/Berlin",
		Owners: platform.OwnedBy("stock"),
		Handle: func(ctx context.Context, tx pgx.Tx, t platform.Tick) error {
			_, err := tx.Exec(ctx, `select stock.close_day($1::date)`, t.At.Format(time.DateOnly))
			return err
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// A preview of the fire times around the last Sunday in March, when 02:30 does
	// not exist.
	cadence := platform.Of[platform.Schedule](registry)[0].Cadence()
	at := time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)
	for range 3 {
		at = cadence.Next(at)
		fmt.Println(at)
	}
	// Output:
	// 2026-03-28 02:30:00 +0100 CET
	// 2026-03-29 03:00:00 +0200 CEST
	// 2026-03-30 02:30:00 +0200 CEST
}
