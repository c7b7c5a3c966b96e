package platform_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

func handle(context.Context, pgx.Tx, platform.Event) error { return nil }

func handleBatch(context.Context, pgx.Tx, []platform.Event) error { return nil }

// sub is a declaration that is right but for what change does to it.
func sub(change func(*platform.Subscription)) platform.Subscription {
	s := platform.Subscription{Name: "stock.reserve", Events: []string{"orders.placed"}, Owners: platform.OwnedBy("stock"), Handle: handle}
	if change != nil {
		change(&s)
	}
	return s
}

func TestAddSaysInOneLineWhatIsWrong(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*platform.Subscription)
		want   string // "": it is right
	}{
		{"the smallest one is right", nil, ""},
		{"HandleBatch instead of Handle is right", func(s *platform.Subscription) { s.Handle, s.HandleBatch = nil, handleBatch }, ""},
		{"a name of 100 bytes is right", func(s *platform.Subscription) { s.Name = strings.Repeat("n", 100) }, ""},
		{"incomplete owners are declared, and do not run (N40)", func(s *platform.Subscription) { s.Owners = platform.Owners{} }, ""},
		{"no name", func(s *platform.Subscription) { s.Name = "" }, `subscription ""`},
		{"a name of 101 bytes", func(s *platform.Subscription) { s.Name = strings.Repeat("n", 101) }, "at most 100 bytes"},
		{"a name with a quote", func(s *platform.Subscription) { s.Name = "stock.o'reserve" }, "lower-case words"},
		{"a name with a double quote", func(s *platform.Subscription) { s.Name = `stock"` }, "lower-case words"},
		{"a name with upper case", func(s *platform.Subscription) { s.Name = "Stock.Reserve" }, "lower-case words"},
		{"a name that ends with a dot", func(s *platform.Subscription) { s.Name = "stock." }, "lower-case words"},
		{"a name of two lines", func(s *platform.Subscription) { s.Name = "stock\n" }, "lower-case words"},
		{"a module that is no name", func(s *platform.Subscription) { s.Module = "The Stock" }, "module"},
		{"no events", func(s *platform.Subscription) { s.Events = nil }, "listens to nothing"},
		{"a star in the middle", func(s *platform.Subscription) { s.Events = []string{"orders.*.paid"} }, `"orders.*.paid"`},
		{"a star that ends a word", func(s *platform.Subscription) { s.Events = []string{"orders.pla*"} }, "* only as the last"},
		{"a percent sign", func(s *platform.Subscription) { s.Events = []string{"orders.%"} }, "event pattern"},
		{"an empty pattern", func(s *platform.Subscription) { s.Events = []string{"orders.placed", ""} }, `event pattern ""`},
		{"a pattern of 129 bytes", func(s *platform.Subscription) { s.Events = []string{strings.Repeat("p", 129)} }, "event pattern"},
		{"no handler", func(s *platform.Subscription) { s.Handle = nil }, "exactly one"},
		{"two handlers", func(s *platform.Subscription) { s.HandleBatch = handleBatch }, "exactly one"},
		{"an unknown order", func(s *platform.Subscription) { s.Key = "owner" }, `Key "owner"`},
		{"a negative number of shards", func(s *platform.Subscription) { s.Shards = -1 }, "Shards is -1"},
		{"too many shards", func(s *platform.Subscription) { s.Shards = 1025 }, "Shards is 1025"},
		{"negative attempts", func(s *platform.Subscription) { s.MaxAttempts = -2 }, "MaxAttempts is -2"},
		{"an unknown fate of poison", func(s *platform.Subscription) { s.OnPoison = "drop" }, `OnPoison "drop"`},
		{"an unknown start", func(s *platform.Subscription) { s.From = "yesterday" }, `From "yesterday"`},
		{"a negative timeout", func(s *platform.Subscription) { s.Timeout = -time.Second }, "Timeout is -1s"},
		{"a batch that is too large", func(s *platform.Subscription) { s.Batch = 10_001 }, "Batch is 10001"},
		{"a negative batch", func(s *platform.Subscription) { s.Batch = -1 }, "Batch is -1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := sub(tt.change)
			err := platform.NewRegistry().Add(s)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("Add(%q) = %v, want nil", s.Name, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")):
				t.Errorf("Add(%q) = %v; want one line with %q", s.Name, err, tt.want)
			}
		})
	}
}

func TestRegistryHoldsEachNameOnce(t *testing.T) {
	t.Parallel()
	r := platform.NewRegistry()
	for _, name := range []string{"b.two", "a.one"} {
		if err := r.Add(sub(func(s *platform.Subscription) { s.Name = name })); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Add(sub(func(s *platform.Subscription) { s.Name = "a.one" })); err == nil || !strings.Contains(err.Error(), "the name is taken") {
		t.Errorf("Add of a taken name = %v", err)
	}
	if err := r.Add(nil); err == nil {
		t.Error("Add(nil) = nil, want an error")
	}
	var names []string
	for _, f := range r.Functions() {
		names = append(names, f.Describe().Name)
	}
	if fmt.Sprint(names) != "[a.one b.two]" {
		t.Errorf("Functions = %v, want them by name", names)
	}
	some, err := r.Only("b.two")
	if err != nil || len(some.Functions()) != 1 {
		t.Errorf("Only(b.two) has %d functions, %v", len(some.Functions()), err)
	}
	if _, err := r.Only("b.two", "c"); err == nil || !strings.Contains(err.Error(), `"c"`) {
		t.Errorf("Only(c) = %v, want an error that names it", err)
	}
}

func TestRegisterPanicsWithOnePreciseLine(t *testing.T) {
	t.Parallel()
	defer func() {
		said, _ := recover().(string)
		if !strings.HasPrefix(said, "platform.Register: subscription stock.reserve: ") || strings.Contains(said, "\n") {
			t.Errorf("Register panicked with %q", said)
		}
	}()
	platform.Register(sub(func(s *platform.Subscription) { s.Events = nil }))
}

func TestDescribeFillsInWhatTheZeroValuesMean(t *testing.T) {
	t.Parallel()
	r := platform.NewRegistry()
	if err := r.Add(sub(nil)); err != nil {
		t.Fatal(err)
	}
	s := platform.Of[platform.Subscription](r)[0]
	got := fmt.Sprint(s.Module, s.Key, s.Shards, s.MaxAttempts, s.OnPoison, s.From, s.Timeout, s.Batch)
	want := fmt.Sprint("stock", platform.ByKey, 1, 5, platform.Hold, platform.FromNow, 30*time.Second, 500)
	if got != want {
		t.Errorf("zero values became %s, want %s", got, want)
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, pattern, event string
		want                 bool
	}{
		{"the same type", "orders.placed", "orders.placed", true},
		{"a longer type", "orders.placed", "orders.placed.again", false},
		{"a type with the pattern as the start of a word", "orders.placed", "orders.placed2", false},
		{"the star stands for the rest", "orders.*", "orders.placed.again", true},
		{"the star needs a rest", "orders.*", "orders", false},
		{"the star begins at a dot", "orders.*", "orders_old.placed", false},
		{"an underscore is no wildcard", "a_b", "axb", false},
		{"an underscore before a star is no wildcard", "a_b.*", "axb.c", false},
		{"a star alone is everything", "*", "orders.placed", true},
	}
	for _, tt := range tests {
		s := sub(func(s *platform.Subscription) { s.Events = []string{"never.this", tt.pattern} })
		if got := s.Matches(tt.event); got != tt.want {
			t.Errorf("%s: %q matches %q = %v, want %v", tt.name, tt.pattern, tt.event, got, tt.want)
		}
	}
}

func TestOwnersAreCompleteOnlyWithAllSeven(t *testing.T) {
	t.Parallel()
	all := platform.OwnedBy("stock", "billing")
	tests := []struct {
		name   string
		owners platform.Owners
		want   bool
	}{
		{"one module for all", all, true},
		{"none", platform.Owners{}, false},
		{"no hand-offs are fine", platform.OwnedBy("stock"), true},
	}
	for i, forget := range []func(*platform.Owners){
		func(o *platform.Owners) { o.SourceEvent = "" }, func(o *platform.Owners) { o.SourceData = "" },
		func(o *platform.Owners) { o.Projection = "" }, func(o *platform.Owners) { o.Status = "" },
		func(o *platform.Owners) { o.Result = "" }, func(o *platform.Owners) { o.Evidence = "" },
		func(o *platform.Owners) { o.SecurityEvent = "" },
	} {
		o := all
		forget(&o)
		tests = append(tests, struct {
			name   string
			owners platform.Owners
			want   bool
		}{fmt.Sprintf("all but number %d", i+1), o, false})
	}
	for _, tt := range tests {
		if got := tt.owners.Complete(); got != tt.want {
			t.Errorf("%s: Complete(%+v) = %v, want %v", tt.name, tt.owners, got, tt.want)
		}
		for _, name := range tt.owners.Missing() {
			if f := reflect.ValueOf(tt.owners).FieldByName(name); !f.IsValid() || f.String() != "" {
				t.Errorf("%s: Missing names %s, which is %v", tt.name, name, f)
			}
		}
	}
}
