package api

import (
	"context"
	"testing"
	"time"
)

// Whoever rests goes on at the bell and goes home when the host stops.
func TestRest(t *testing.T) {
	t.Parallel()
	b := &Bell{}
	ring := b.heard()
	b.Ring()
	b.Ring() // nobody listens
	s := &Server{Bell: b}
	if !s.rest(t.Context(), ring, time.Hour) {
		t.Error("the bell is not heard")
	}
	stopping, stop := context.WithCancel(t.Context())
	stop()
	s.Stopping = stopping
	if s.rest(t.Context(), b.heard(), time.Hour) {
		t.Error("a host that stops lets it wait")
	}
}
