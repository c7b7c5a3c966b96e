package host

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pgmill/pgmill/platform"
)

// metrics are this process's numbers. Every series is there at 0 from the start,
// so that a rate over it is right from the first event. Engines do not know of it:
// they are given its methods.
type metrics struct {
	registry *prometheus.Registry

	advanced, polls, derived, rescued, returned, stale, handled, parked, held, ticks, reconnects prometheus.Counter
	looks, bells, batches, failed, renewals, cleaned, jobs                                       series
	claims, listen                                                                               prometheus.Gauge
	handlerTime                                                                                  prometheus.Histogram

	cleanedAt, dead map[string]prometheus.Gauge

	// Lag is pgmill_subscription_lag_events by subscription.
	Lag *prometheus.GaugeVec
}

// eventReasons are the label values of pgmill_events_failed_total: the system
// reasons, and one for all that authors give.
var eventReasons = []platform.Reason{
	platform.ReasonHandlerError, platform.ReasonPanic, platform.ReasonTimeout, platform.ReasonBadData, platform.ReasonBadBatch, platform.ReasonBatchTooBig,
	platform.ReasonBadReason, platform.ReasonHostLost, platform.ReasonLeaseLost, platform.ReasonCommitFailed, platform.ReasonConflict, platform.ReasonPermissionDenied,
	platform.ReasonOwnersIncomplete, platform.ReasonNoLiveHost, platform.ReasonClaimable, platform.ReasonPaused, platform.ReasonHeld, platform.ReasonExpired, platform.ReasonListenUnavailable, platform.ReasonDatabaseUnreachable,
	platform.ReasonMissed, platform.ReasonOverlap, platform.ReasonBadSchedule, platform.ReasonDraining,
	platform.ReasonSchema, platform.ReasonBadOutput, platform.ReasonDeadline, platform.ReasonCancelled, platform.ReasonLateResult, platform.ReasonNoPoolMapping,
	platform.ReasonNoWorkers, platform.ReasonQueued, platform.ReasonPoolOverloaded, platform.ReasonTenantLimit, platform.ReasonTopicLimit, platform.ReasonKeyLimit, platform.ReasonScheduled,
	platform.ReasonApprovalRequired, byAuthor,
}

const byAuthor platform.Reason = "author"

func newMetrics(reg *platform.Registry) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	f := factory{m.registry}
	m.advanced = f.counter("events_advanced_total", "Events given their position by this host.")
	m.looks = f.counters("looks_total", "Looks for new events.", "outcome", "advanced", "empty", "busy")
	m.bells = f.counters("bells_total", "Notifications heard and rung.", "kind", "heard", "rung")
	m.polls = f.counter("polls_total", "Polls, which find what no bell told.")
	m.derived = f.counter("claims_derived_total", "Claims made for shards that had work and none.")
	m.claims = f.gauge("claims_held", "Claims this host works on.")
	m.rescued = f.counter("claims_rescued_total", "Claims taken from hosts without a live lease.")
	m.returned = f.counter("claims_returned_total", "Claims handed back unfinished.")
	m.stale = f.counter("stale_writer_rejected_total", "Results dropped because the lease was lost.")
	m.batches = f.counters("batches_total", "Handler transactions.", "outcome", "ok", "failed", "lost")
	m.handled = f.counter("events_handled_total", "Events whose handler's work is committed.")
	m.failed = f.counters("events_failed_total", "Failed attempts at an event.", "reason", asStrings(eventReasons)...)
	m.parked = f.counter("events_parked_total", "Events set aside after their last attempt.")
	m.held = f.counter("shards_held_total", "Shards stopped at an event after its last attempt.")
	m.jobs = f.counters("job_attempts_total", "Attempts at jobs that were settled by this host, by what became of the job; pending: it comes again.", "state", "succeeded", "failed", "timeout", "denied", "pending")
	m.dead = f.gauges("dead_letters_last_hour", "Jobs that ended without success in the last hour, whoever ended them: any host, a worker, a rescue, a deadline. All hosts show the same; counted to 10000.", "state", "failed", "timeout", "denied")
	m.ticks = f.counter("ticks_emitted_total", "Ticks of schedules emitted by this host.")
	cleanups := cleanupKeys(reg)
	m.cleaned = f.counters("cleanup_rows_total", "Rows that clean-ups deleted.", "class", cleanups...)
	m.cleanedAt = f.gauges("cleanup_last_success_timestamp_seconds", "When this host last finished a clean-up; 0: not since it started.", "class", cleanups...)
	m.renewals = f.counters("lease_renewals_total", "Renewals of this host's lease; broken: it came too late.", "outcome", "ok", "failed", "broken")
	m.listen = f.gauge("listen_up", "1 while notifications are heard.")
	m.reconnects = f.counter("listen_reconnects_total", "Times the listening connection was made anew.")
	m.handlerTime = f.histogram("handler_seconds", "Time of a handler's transaction, from its beginning to its commit.")

	m.Lag = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "pgmill_subscription_lag_events", Help: "Head minus position."}, []string{"subscription"})
	for _, fn := range platform.Of[platform.Subscription](reg) {
		m.Lag.WithLabelValues(fn.Name)
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "pgmill_build_info", Help: "1; the label is the build."}, []string{"version"})
	build.WithLabelValues(Version()).Set(1)
	m.registry.MustRegister(m.Lag, build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the numbers.
func (m *metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
