package main

import (
	"fmt"

	"github.com/pgmill/pgmill/cmd/bench/internal/report"
)

// emitComparisons hold Emit itself, without its bell, against what one writes by
// hand; the run with a host awake is the same with everything on.
var emitComparisons = []report.Comparison{
	{
		Name: "emit, three round trips", Base: "emit:hand", Rounds: 3,
		Runs: entries("emit:hand", "emit:pgmill_quiet", "emit:pgmill_awake", "emit:river", "emit:business"),
		Goals: []report.Goal{
			atLeast("emit:pgmill_quiet", "emit:hand", 0.93),
			atLeast("emit:pgmill_quiet", "emit:river", 1.8),
			atLeast("emit:pgmill_awake", "emit:river", 1.8),
		},
	},
	{
		Name: "emit, one round trip", Base: "emit:hand_1rt", Rounds: 3,
		Runs: entries("emit:hand_1rt", "emit:pgmill_quiet_1rt", "emit:pgmill_awake_1rt", "emit:river", "emit:business_1rt"),
		Goals: []report.Goal{
			atLeast("emit:pgmill_quiet_1rt", "emit:hand_1rt", 0.93),
			atLeast("emit:pgmill_quiet_1rt", "emit:river", 2.5),
			atLeast("emit:pgmill_awake_1rt", "emit:river", 2.5),
		},
	},
}

// bellComparisons hold bells on against bells off, the same host beside both or none
// beside both (what a host takes of the machine is not the bell's), and at work, at two numbers of clients, on this disk and on one whose flush takes a
// millisecond.
var bellComparisons = []report.Comparison{
	bells("bells, 16 clients", "c=16", 20_000, 10_000, 0.95),
	bells("bells, 64 clients", "c=64", 20_000, 10_000, 0.90),
	bells("bells, 16 clients, 1 ms disk", "c=16,delay=1000", 10_000, 2_000, 0.95),
	bells("bells, 64 clients, 1 ms disk", "c=64,delay=1000", 20_000, 2_000, 0.90),
}

// bells compares n transactions of each, fewer of the one that notifies in each.
func bells(name, params string, n, notifying int, want float64) report.Comparison {
	entry := func(variant, as string, n int) report.Entry {
		return report.Entry{Spec: fmt.Sprintf("emit:%s,%s,n=%d", variant, params, n), As: as + ", " + params}
	}
	off, alone := entry("pgmill_quiet", "off", n), entry("pgmill", "on, no host", n)
	polled, awake := entry("pgmill_quiet_awake", "off, host there", n), entry("pgmill_awake", "on, host awake", n)
	return report.Comparison{
		Name: name, Base: off.As, Rounds: 3,
		Runs: []report.Entry{
			off, alone, polled, awake,
			entry("pgmill_works", "on, host at work", n),
			entry("hand_notify", "NOTIFY in each", notifying),
		},
		Goals: []report.Goal{atLeast(alone.As, off.As, want), atLeast(awake.As, polled.As, want), atMost(awake.As, "notifies_s", 50)},
	}
}
