package fault

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Wire is a proxy before a Postgres, for the faults that a network has.
type Wire struct {
	// DSN is the database as it is seen through the wire.
	DSN string

	t     testing.TB
	proxy *toxiproxy.Proxy
	mu    sync.Mutex
	cut   bool
	on    map[string]bool
}

// NewWire puts a proxy before the database of a postgres:// DSN, until the test ends.
func NewWire(t testing.TB, dsn string) *Wire {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("wire: not a postgres:// DSN")
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	w := &Wire{t: t, proxy: toxiproxy.NewProxy(server, "wire", "127.0.0.1:0", u.Host), on: map[string]bool{}}
	if err := w.proxy.Start(); err != nil {
		t.Fatalf("wire: %v", err)
	}
	t.Cleanup(w.proxy.Stop)
	u.Host = w.proxy.Listen
	w.DSN = u.String()
	return w
}

// Port is where the wire begins.
func (w *Wire) Port() int {
	_, port, _ := net.SplitHostPort(w.proxy.Listen)
	n, _ := strconv.Atoi(port)
	return n
}

// Cut ends all connections and refuses new ones.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proxy.Stop()
	w.cut = true
}

// Freeze lets bytes vanish in both directions. Nothing is closed, no RST is sent:
// neither end can know.
func (w *Wire) Freeze() {
	w.toxic("timeout", "upstream", `{"timeout": 0}`)
	w.toxic("timeout", "downstream", `{"timeout": 0}`)
}

// Slow delays what is sent to the server.
func (w *Wire) Slow(d time.Duration) {
	w.toxic("latency", "upstream", fmt.Sprintf(`{"latency": %d}`, d.Milliseconds()))
}

// Mend makes the wire whole. Connections that were frozen end.
func (w *Wire) Mend() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.on {
		if err := w.proxy.Toxics.RemoveToxic(context.Background(), name); err != nil {
			w.t.Errorf("wire: %v", err)
		}
		delete(w.on, name)
	}
	if !w.cut {
		return
	}
	if err := w.proxy.Start(); err != nil {
		w.t.Errorf("wire: %v", err)
	}
	w.cut = false
}

func (w *Wire) toxic(kind, direction, attributes string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	name := kind + "_" + direction
	_, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(
		`{"name": %q, "type": %q, "stream": %q, "toxicity": 1, "attributes": %s}`, name, kind, direction, attributes)))
	if err != nil {
		w.t.Fatalf("wire: %v", err)
	}
	w.on[name] = true
}
