package fault

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// Relay is a way to a Postgres that can forget its open connections, as a firewall
// or a NAT does: their bytes vanish in both directions and nobody is told, while new
// connections are good. A Wire freezes those, too.
type Relay struct {
	// DSN is the database as it is seen through the relay.
	DSN string

	mu    sync.Mutex
	open  map[*link]struct{}
	group sync.WaitGroup
}

type link struct {
	client, server net.Conn
	forgotten      atomic.Bool
}

// NewRelay puts a relay before the database of a postgres:// DSN, until the test ends.
func NewRelay(t testing.TB, dsn string) *Relay {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("relay: not a postgres:// DSN")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("relay: %v", err)
	}
	r := &Relay{open: map[*link]struct{}{}}
	server := u.Host
	u.Host = l.Addr().String()
	r.DSN = u.String()
	r.group.Go(func() { r.accept(l, server) })
	t.Cleanup(func() {
		_ = l.Close()
		r.each(func(k *link) { k.close() })
		r.group.Wait()
	})
	return r
}

// Forget lets the bytes of all open connections vanish from now on.
func (r *Relay) Forget() {
	r.each(func(k *link) { k.forgotten.Store(true) })
}

func (r *Relay) each(f func(*link)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.open {
		f(k)
	}
}

func (r *Relay) accept(l net.Listener, server string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		upstream, err := net.Dial("tcp", server)
		if err != nil {
			_ = client.Close()
			continue
		}
		k := &link{client: client, server: upstream}
		r.mu.Lock()
		r.open[k] = struct{}{}
		r.mu.Unlock()
		r.group.Go(func() { r.copy(k, upstream, client) })
		r.group.Go(func() { r.copy(k, client, upstream) })
	}
}

// copy ends the link when one side ends, unless it is forgotten: then neither side
// hears of the other's end.
func (r *Relay) copy(k *link, to, from net.Conn) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !k.forgotten.Load() {
			k.close()
			delete(r.open, k)
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !k.forgotten.Load() {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (k *link) close() {
	_ = k.client.Close()
	_ = k.server.Close()
}
