package host

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// What the doctor counts for a host are the sizes of its pools and the connection that
// listens; the page for operators says the same.
func TestAHostTakesTheConnectionsThatTheDoctorCounts(t *testing.T) {
	t.Parallel()
	for _, w := range []*Worker{{}, {MaxConns: 7}, {api: func(*pgxpool.Pool) {}}} {
		w.Database = "postgres://h/d" // nobody connects
		w.once.Do(w.defaults)
		sum := 1
		for use := range conns(w.MaxConns, w.api != nil) {
			if use == "listen" {
				continue
			}
			pool, err := w.pool(t.Context(), use)
			if err != nil {
				t.Fatal(err)
			}
			sum += int(pool.Config().MaxConns)
			pool.Close()
		}
		if want := connsOf(w.MaxConns, w.api != nil); sum != want {
			t.Errorf("%d handlers, API %t: a host takes %d connections, %d are counted", w.MaxConns, w.api != nil, sum, want)
		}
	}
	page, err := os.ReadFile("../../deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("`PGMILL_MAX_CONNS` and %d more each, %d without the API", connsOf(0, true), connsOf(0, false)); !strings.Contains(string(page), want) {
		t.Errorf("deploy/README.md does not say %q", want)
	}
}
