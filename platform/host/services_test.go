package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// diary notes what services do.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// drains is a service that takes d to drain.
func (d *diary) drains(name string, takes time.Duration) service {
	return service{name, func(ctx context.Context) error {
		<-ctx.Done()
		d.note("%s stops", name)
		time.Sleep(takes) // the fake clock of synctest
		d.note("%s ends", name)
		return nil
	}}
}

func TestServicesStopInReverseOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := runServices(ctx, 10*time.Second, []service{d.drains("probes", 0), d.drains("runtime", 5*time.Second)}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"runtime stops", "runtime ends", "probes stops", "probes ends"}; !slices.Equal(d.lines, want) {
			t.Errorf("got %q, want %q", d.lines, want)
		}
	})
}

func TestServicesEndWithTheFirst(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{errors.New("broken"), nil} {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			err := runServices(t.Context(), time.Second, []service{d.drains("probes", 0),
				{"runtime", func(context.Context) error { return failure }}})
			if !errors.Is(err, failure) || failure != nil && err.Error() != "runtime: broken" {
				t.Errorf("got %v, want %v", err, failure)
			}
			if !slices.Contains(d.lines, "probes ends") {
				t.Errorf("probes were left running: %q", d.lines)
			}
		})
	}
}

func TestServicesThatDoNotDrainAreLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		err := runServices(ctx, 11500*time.Millisecond, []service{d.drains("probes", 0), d.drains("runtime", time.Hour)})
		if !errors.Is(err, errDrain) || time.Since(began) != 11500*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		time.Sleep(time.Hour) // the straggler's: no goroutine may be left in the bubble
	})
}
