package main

import (
	"slices"

	"github.com/pgmill/pgmill/cmd/bench/internal/report"
)

// entries is for runs whose row is called as their spec is written.
func entries(specs ...string) []report.Entry {
	var all []report.Entry
	for _, s := range specs {
		all = append(all, report.Entry{Spec: s})
	}
	return all
}

func atLeast(of, than string, want float64) report.Goal {
	return report.Goal{Of: of, Than: than, Op: ">=", Want: want}
}

func atMost(of, metric string, want float64) report.Goal {
	return report.Goal{Of: of, Metric: metric, Op: "<=", Want: want}
}

// comparisons are what `bench all` measures, and the goals. They take about 30
// minutes together on two cores.
var comparisons = slices.Concat(emitComparisons, bellComparisons, []report.Comparison{
	{
		Name: "advance", Rounds: 3,
		Runs: entries("advance:backlog", "advance:steps"),
		Goals: []report.Goal{
			{Of: "advance:backlog", Op: ">=", Want: 300_000},
		},
	},
	{
		Name: "subscribe: no-op batch", Base: "subscribe:log_noop", Rounds: 3,
		Runs:  entries("subscribe:log_noop", "subscribe:pgmill_noop", "subscribe:outbox_noop"),
		Goals: []report.Goal{{Of: "subscribe:pgmill_noop", Op: ">=", Want: 200_000}},
	},
	{
		Name: "subscribe: one insert a batch", Base: "subscribe:log_unnest", Rounds: 3,
		Runs: entries("subscribe:log_unnest", "subscribe:pgmill_unnest", "subscribe:outbox_unnest"),
		Goals: []report.Goal{
			atLeast("subscribe:pgmill_unnest", "subscribe:log_unnest", 0.65),
			atLeast("subscribe:pgmill_unnest", "subscribe:outbox_unnest", 0.65),
		},
	},
	{
		Name: "subscribe: one insert an event", Base: "subscribe:log_each", Rounds: 3,
		Runs: entries("subscribe:log_each", "subscribe:pgmill_each", "subscribe:outbox_each"),
		Goals: []report.Goal{
			atLeast("subscribe:pgmill_each", "subscribe:log_each", 0.65),
			atLeast("subscribe:pgmill_each", "subscribe:outbox_each", 0.65),
		},
	},
	{
		Name: "subscribe: far behind", Base: "20,000 behind", Rounds: 2,
		Runs: []report.Entry{
			{Spec: "subscribe:pgmill_noop,n=20000,times=10", As: "20,000 behind"},
			{Spec: "subscribe:pgmill_noop,n=2000000", As: "2,000,000 behind"},
		},
		Goals: []report.Goal{atLeast("2,000,000 behind", "20,000 behind", 0.9)},
	},
	{
		Name: "subscribe: nothing matches", Metric: "us_per_event", Rounds: 3,
		Runs: []report.Entry{
			{Spec: "subscribe:pgmill_nothing,n=500000", As: "one subscription"},
			{Spec: "subscribe:pgmill_nothing,n=50000,subs=100", As: "100 subscriptions"},
		},
		Goals: []report.Goal{atMost("one subscription", "us_per_event", 1.5), atMost("100 subscriptions", "us_per_event", 1.5)},
	},
	{
		Name: "latency at 100/s", Metric: "p50_ms", Base: "latency:river_tuned", Rounds: 3,
		Runs: entries("latency:river_tuned", "latency:pgmill", "latency:river_stock", "latency:notify_claim"),
		Goals: []report.Goal{
			{Of: "latency:pgmill", Than: "latency:river_tuned", Metric: "p50_ms", Op: "<=", Want: 1},
			{Of: "latency:pgmill", Than: "latency:river_tuned", Metric: "p99_ms", Op: "<=", Want: 1},
			atMost("latency:pgmill", "p50_ms", 0.65),
			atMost("latency:pgmill", "p99_ms", 2),
		},
	},
	{
		Name: "two emits 50 ms apart", Metric: "p99_ms", Base: "pairs:river_stock", Rounds: 1,
		Runs:  entries("pairs:river_stock", "pairs:pgmill"),
		Goals: []report.Goal{atMost("pairs:pgmill", "p99_ms", 10)},
	},
	{
		Name: "a cold cursor, ten million behind", Rounds: 1,
		Runs: entries("long:cold"),
		Goals: []report.Goal{
			atMost("long:cold", "p50_last_of_first", 1.2),
			atMost("long:cold", "p99_last_of_first", 1.2),
			atMost("long:cold", "rss_mb", 150),
		},
	},
	{
		Name: "beside an old snapshot", Metric: "p99_last_of_first", Rounds: 1,
		Runs: []report.Entry{
			{Spec: "long:pinned,secs=30", As: "snapshot held"},
			{Spec: "long:unpinned,secs=30", As: "none held"},
		},
		Goals: []report.Goal{atMost("snapshot held", "p99_last_of_first", 1.2)},
	},
	{
		Name: "jobs: drain", Base: "job:drain_river", Rounds: 3,
		Runs:  entries("job:drain_river", "job:drain"),
		Goals: []report.Goal{atLeast("job:drain", "job:drain_river", 0.6), {Of: "job:drain", Op: ">=", Want: 10_300}},
	},
	{
		Name: "jobs: an effect that commits with the job", Base: "job:business", Rounds: 3,
		Runs:  entries("job:business", "job:drain_tx"),
		Goals: []report.Goal{atLeast("job:drain_tx", "job:business", 0.5)},
	},
	{
		Name: "jobs: submit in the caller's transaction", Base: "emit:river", Rounds: 3,
		Runs:  entries("emit:river", "emit:pgmill_job"),
		Goals: []report.Goal{atLeast("emit:pgmill_job", "emit:river", 1)},
	},
	{
		Name: "jobs: submit many", Rounds: 3, Runs: entries("job:submit_many", "job:submit_many,c=2"),
		Goals: []report.Goal{{Of: "job:submit_many,c=2", Op: ">=", Want: 50_000}},
	},
	{
		Name: "jobs: latency at 100/s", Metric: "p50_ms", Base: "latency:river_tuned", Rounds: 3,
		Runs: entries("latency:river_tuned", "latency:pgmill_job"),
		Goals: []report.Goal{
			{Of: "latency:pgmill_job", Than: "latency:river_tuned", Metric: "p50_ms", Op: "<=", Want: 1.3},
			{Of: "latency:pgmill_job", Than: "latency:river_tuned", Metric: "p99_ms", Op: "<=", Want: 1.3},
		},
	},
	{
		Name: "jobs: claim beside a million that wait", Metric: "p99_ms", Base: "20,000 wait", Rounds: 3,
		Runs: []report.Entry{
			{Spec: "job:claim,waiting=20000", As: "20,000 wait"},
			{Spec: "job:claim,waiting=1000000", As: "a million wait"},
		},
		Goals: []report.Goal{{Of: "a million wait", Than: "20,000 wait", Metric: "p99_ms", Op: "<=", Want: 1.2}},
	},
	{
		Name: "jobs: limits that are not met", Base: "no limits", Rounds: 3,
		Runs: []report.Entry{
			{Spec: "job:drain,n=20000", As: "no limits"},
			{Spec: "job:drain,limits=1,n=20000", As: "of topic and scope"},
		},
		Goals: []report.Goal{atLeast("of topic and scope", "no limits", 0.9)},
	},
	{
		Name: "jobs: one scope's flood", Metric: "small_p99_ms", Base: "nobody floods", Rounds: 3,
		Runs: []report.Entry{
			{Spec: "job:flood,big=0", As: "nobody floods"},
			{Spec: "job:flood", As: "one has 100,000"},
		},
		Goals: []report.Goal{{Of: "one has 100,000", Than: "nobody floods", Metric: "small_p99_ms", Op: "<=", Want: 2}},
	},
	{
		Name: "jobs: a killed host with 5,000 claims", Metric: "claimable_s", Rounds: 1, Runs: entries("process:killed"),
		Goals: []report.Goal{atMost("process:killed", "claimable_s", 11)}, // a lease of 10 s and one more
	},
	{
		Name: "startup", Metric: "ready_s", Rounds: 5,
		Runs:  entries("process:startup"),
		Goals: []report.Goal{atMost("process:startup", "ready_s", 1)},
	},
	{
		Name: "idle", Metric: "statements_s", Rounds: 1,
		Runs:  entries("process:idle"),
		Goals: []report.Goal{atMost("process:idle", "core_percent", 1), atMost("process:idle", "statements_s", 5)},
	},
}, operateComparisons)

// soaks is what `bench soak` measures.
var soaks = []report.Comparison{{
	Name: "twenty minutes beside an old snapshot", Metric: "p99_last_of_first", Rounds: 1,
	Runs:  []report.Entry{{Spec: "long:pinned,secs=1200", As: "pinned for 20 minutes"}},
	Goals: []report.Goal{atMost("pinned for 20 minutes", "p99_last_of_first", 1.2)},
}}
