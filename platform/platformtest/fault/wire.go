package fault

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Wire is a way to a Postgres, with the faults that a network has. It stands where
// toxiproxy would: that has no fault for open connections alone, and hung now and
// then when one was taken away.
type Wire struct {
	// DSN is the database as it is seen through the wire.
	DSN string

	t      testing.TB
	server string
	frozen atomic.Bool
	slow   atomic.Int64
	group  sync.WaitGroup

	mu       sync.Mutex
	addr     string
	listener net.Listener // nil while cut
	open     map[*link]struct{}
}

// link is one connection; lost ones have had bytes swallowed.
type link struct {
	client, server net.Conn
	lost           atomic.Bool
}

// NewWire puts a wire before the database of a postgres:// DSN, until the test ends.
func NewWire(t testing.TB, dsn string) *Wire {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("wire: not a postgres:// DSN")
	}
	w := &Wire{t: t, server: u.Host, addr: "127.0.0.1:0", open: map[*link]struct{}{}}
	w.listen()
	u.Host = w.addr
	w.DSN = u.String()
	t.Cleanup(func() {
		w.Cut()
		w.group.Wait()
	})
	return w
}

// Cut ends all connections and refuses new ones.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != nil {
		_ = w.listener.Close()
		w.listener = nil
	}
	for k := range w.open {
		k.close()
	}
}

// Freeze lets bytes vanish in both directions, those of new connections too. Nothing
// is closed, no RST is sent: neither end can know.
func (w *Wire) Freeze() { w.frozen.Store(true) }

// Forget freezes the open connections for ever, as a firewall does that has lost its
// table; new ones are good.
func (w *Wire) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.open {
		k.lost.Store(true)
	}
}

// Slow delays what is sent to the server.
func (w *Wire) Slow(d time.Duration) { w.slow.Store(int64(d)) }

// Mend makes the wire whole. Connections that lost bytes end.
func (w *Wire) Mend() {
	w.t.Helper()
	w.frozen.Store(false)
	w.slow.Store(0)
	w.mu.Lock()
	for k := range w.open {
		if k.lost.Load() {
			k.close()
		}
	}
	cut := w.listener == nil
	w.mu.Unlock()
	if cut {
		w.listen()
	}
}

func (w *Wire) listen() {
	w.t.Helper()
	l, err := net.Listen("tcp", w.addr)
	if err != nil {
		w.t.Fatalf("wire: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addr, w.listener = l.Addr().String(), l
	w.group.Go(func() { w.accept(l) })
}

func (w *Wire) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		k := &link{client: client, server: server}
		w.mu.Lock()
		if w.listener != l { // cut meanwhile
			k.close()
		}
		w.open[k] = struct{}{}
		w.mu.Unlock()
		w.group.Go(func() {
			var both sync.WaitGroup
			both.Go(func() { w.carry(k, client, server, &w.slow) })
			both.Go(func() { w.carry(k, server, client, nil) })
			both.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.open, k)
		})
	}
}

// carry takes bytes from one end to the other until one of them ends, and then ends
// both, unless the link is lost: then neither hears of the other.
func (w *Wire) carry(k *link, from, to net.Conn, slow *atomic.Int64) {
	type chunk struct {
		bytes []byte
		due   time.Time
	}
	way := make(chan chunk, 1024)
	var out sync.WaitGroup
	out.Go(func() {
		for c := range way {
			if wait := time.Until(c.due); wait > 0 {
				time.Sleep(wait) // that is what it is for
			}
			if _, err := to.Write(c.bytes); err != nil {
				_ = from.Close()
			}
		}
	})
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		if n > 0 && w.frozen.Load() {
			k.lost.Store(true)
		}
		if n > 0 && !k.lost.Load() {
			c := chunk{bytes: buf[:n]}
			if slow != nil {
				c.due = time.Now().Add(time.Duration(slow.Load()))
			}
			way <- c
		}
		if err != nil {
			break
		}
	}
	close(way)
	out.Wait()
	if !k.lost.Load() {
		k.close()
	}
}

func (k *link) close() {
	_ = k.client.Close()
	_ = k.server.Close()
}
