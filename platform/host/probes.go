package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/pgmill/pgmill/platform"
)

// status is what the probes ask of a process. None of it may block.
type status interface {
	NotReady() []platform.Reason // empty: ready
	Degraded() []platform.Reason // shown, but no reason to be taken out (N76)
	Identity() string            // "" before it is registered
}

// probe is the body of /livez and /readyz: these fields and no others (N77).
type probe struct {
	Status  string            `json:"status"` // live, ready, degraded or not_ready
	Reasons []platform.Reason `json:"reasons"`

	// With ?verbose only.
	Worker       string   `json:"worker,omitempty"`
	Kind         string   `json:"kind,omitempty"`
	Version      string   `json:"version,omitempty"`
	Target       string   `json:"target,omitempty"`
	Dependencies []string `json:"dependencies,omitempty"`
}

// newProbes is the one probe contract of all our processes (N72): /livez touches
// nothing (N73), /readyz is 503 while the process cannot do its work or is stopping
// (N74, N75), /metrics are the numbers.
func newProbes(kind string, s status, m *metrics) *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(io.Discard) // echo's own; ours is redacted
	live := func(c echo.Context) error {
		return c.JSON(http.StatusOK, probe{Status: "live", Reasons: []platform.Reason{}})
	}
	ready := func(c echo.Context) error {
		code, p := readiness(s)
		if c.QueryParams().Has("verbose") {
			p.Worker, p.Kind, p.Version = s.Identity(), kind, Version()
			p.Target, p.Dependencies = "install", []string{"postgres"}
		}
		return c.JSON(code, p)
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		e.Add(method, "/livez", live)
		e.Add(method, "/readyz", ready)
	}
	e.GET("/metrics", echo.WrapHandler(m.Handler()))
	return e
}

func readiness(s status) (int, probe) {
	not, degraded := s.NotReady(), s.Degraded()
	p := probe{Status: "ready", Reasons: append(append([]platform.Reason{}, not...), degraded...)}
	switch {
	case len(not) > 0:
		p.Status = "not_ready"
		return http.StatusServiceUnavailable, p
	case len(degraded) > 0:
		p.Status = "degraded"
	}
	return http.StatusOK, p
}

// serveHTTP serves on l until ctx ends, and then finishes what is being answered.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve probes: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := s.Shutdown(last)
	<-done
	if errors.Is(err, context.DeadlineExceeded) { // a client that keeps its connection is no fault of ours
		return s.Close()
	}
	return err
}
