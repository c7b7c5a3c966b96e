package host

import (
	"strings"
	"time"

	"github.com/pgmill/pgmill/platform"
)

// EventsAdvanced and the methods below count; none of them blocks.
func (m *metrics) EventsAdvanced(n int) { m.advanced.Add(float64(n)) }

// Looked counts a look at the outbox: advanced, empty or busy.
func (m *metrics) Looked(outcome string) { m.looks.count(outcome, "busy") }

// BellHeard counts notifications that came.
func (m *metrics) BellHeard() { m.bells.count("heard", "heard") }

// BellRung counts notifications that this host sent.
func (m *metrics) BellRung() { m.bells.count("rung", "rung") }

// Polled counts a look that only the clock asked for.
func (m *metrics) Polled() { m.polls.Inc() }

// ClaimsDerived counts claims that were made.
func (m *metrics) ClaimsDerived(n int) { m.derived.Add(float64(n)) }

// ClaimsHeld sets how many claims are held now.
func (m *metrics) ClaimsHeld(n int) { m.claims.Set(float64(n)) }

// ClaimsRescued counts claims taken from dead hosts.
func (m *metrics) ClaimsRescued(n int) { m.rescued.Add(float64(n)) }

// ClaimsReturned counts claims given back unfinished.
func (m *metrics) ClaimsReturned(n int) { m.returned.Add(float64(n)) }

// StaleWriterRejected counts a result that the fence refused.
func (m *metrics) StaleWriterRejected() { m.stale.Inc() }

// BatchDone counts a handler's transaction: ok, failed or lost.
func (m *metrics) BatchDone(outcome string) { m.batches.count(outcome, "failed") }

// EventsHandled counts events whose effects are committed.
func (m *metrics) EventsHandled(n int) { m.handled.Add(float64(n)) }

// EventFailed counts a failed attempt; a reason that is not the system's is author.
func (m *metrics) EventFailed(r platform.Reason) { m.failed.count(string(r), string(byAuthor)) }

// EventParked counts an event set aside.
func (m *metrics) EventParked() { m.parked.Inc() }

// ShardHeld counts a shard that stopped at an event.
func (m *metrics) ShardHeld() { m.held.Inc() }

// LeaseRenewed counts a renewal: ok, failed or broken.
func (m *metrics) LeaseRenewed(outcome string) { m.renewals.count(outcome, "failed") }

// ListenUp says whether notifications are heard.
func (m *metrics) ListenUp(up bool) {
	if up {
		m.listen.Set(1)
	} else {
		m.listen.Set(0)
	}
}

// ListenReconnected counts a listening connection made anew.
func (m *metrics) ListenReconnected() { m.reconnects.Inc() }

// HandlerTook observes the time in a handler.
func (m *metrics) HandlerTook(d time.Duration) { m.handlerTime.Observe(d.Seconds()) }

// LagOf sets a subscription's lag; several shards: their sum is the caller's.
func (m *metrics) LagOf(subscription string, events int64) {
	m.Lag.WithLabelValues(subscription).Set(float64(events))
}

// TicksEmitted counts the ticks of schedules that this host emitted.
func (m *metrics) TicksEmitted(n int) { m.ticks.Add(float64(n)) }

// RowsCleaned counts what a clean-up's batch deleted, by platform.Cleanup.Key.
func (m *metrics) RowsCleaned(key string, rows int) { m.cleaned[key].Add(float64(rows)) }

// CleanupDone notes that a clean-up's tick went well.
func (m *metrics) CleanupDone(key string) { m.cleanedAt[key].SetToCurrentTime() }

// DeadLetters sets how many jobs ended without success lately, by state.
func (m *metrics) DeadLetters(counts map[string]int64) {
	for state, g := range m.dead {
		g.Set(float64(counts[state]))
	}
}

// JobEnded counts a settled attempt of a job.
func (m *metrics) JobEnded(_, state string, took time.Duration) {
	m.jobs.count(strings.ToLower(state), "failed")
	m.handlerTime.Observe(took.Seconds())
}
