package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// demoArgs are what a person asks for.
type demoArgs struct {
	seconds int
	clients int
	scale   int // 0: what is there, at least clients
	anew    bool
}

// check reports all faults at once. With fewer branches than clients, pgbench's
// clients would only wait for each other.
func (a demoArgs) check() error {
	var faults []error
	if a.seconds < 1 {
		faults = append(faults, faultf("--seconds is %d; at least 1", a.seconds))
	}
	if a.clients < 1 {
		faults = append(faults, faultf("--clients is %d; at least 1", a.clients))
	}
	if a.scale < 0 {
		faults = append(faults, faultf("--scale is %d; at least 1", a.scale))
	}
	if a.scale > 0 && a.scale < a.clients {
		faults = append(faults, faultf("--scale is %d and --clients %d; pgbench wants at least as many branches as clients", a.scale, a.clients))
	}
	return errors.Join(faults...)
}

// run lets pgbench move money, waits until all of it is handled and compares.
func (d *demo) run(ctx context.Context, a demoArgs, p *progress) (demoReport, error) {
	p.say("pgbench's tables in schema %s", demoSchema)
	scale, err := d.prepare(ctx, max(a.scale, a.clients), a.anew, p.waiting)
	if err != nil {
		return demoReport{}, err
	}
	count, err := d.count(ctx)
	if err != nil {
		return demoReport{}, err
	}
	type end struct {
		result pgbenchResult
		err    error
	}
	done := make(chan end, 1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		result, err := d.pgbench.run(ctx, a.seconds, a.clients, 0)
		done <- end{result, err}
	}()
	began := time.Now()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case e := <-done:
			if e.err != nil {
				return demoReport{}, e.err
			}
			branches, err := d.balances(ctx, p.waiting)
			if err != nil {
				return demoReport{}, err
			}
			p.end()
			report := demoReport{Seconds: a.seconds, Clients: a.clients, Scale: scale, Transfers: e.result.transactions, TPS: e.result.tps}
			report.compare(branches)
			return report, nil
		case <-second.C:
			l, err := count.look(ctx)
			if err != nil {
				cancel(err)
				<-done // pgbench is gone when the demo is
				return demoReport{}, err
			}
			p.moving(time.Since(began), l)
		}
	}
}

// progress is one line that changes on a terminal, and a line each elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	quietTo  time.Time // when the next waiting line is due
	open     bool
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, terminal: isTerminal(out)}
}

func (p *progress) say(format string, args ...any) {
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K"+format, args...)
		p.open = true
		return
	}
	fmt.Fprintf(p.out, format+"\n", args...)
}

// end leaves the last line as it is.
func (p *progress) end() {
	if p.open {
		fmt.Fprintln(p.out)
		p.open = false
	}
}

func (p *progress) moving(since time.Duration, l demoLag) {
	p.say("%3.0f s  emitted %d  handled %d  lag %d (%.1f s)%s", since.Seconds(), l.emitted, l.handled, l.transfers(), l.seconds, standing(l))
}

// waiting is called often and speaks once a second.
func (p *progress) waiting(l demoLag) {
	now := time.Now()
	if p.quietTo.IsZero() {
		p.quietTo = now.Add(time.Second)
	}
	if now.Before(p.quietTo) {
		return
	}
	p.quietTo = now.Add(time.Second)
	p.say("waiting: at %d of %d (%.1f s behind)%s", l.position, l.head, l.seconds, standing(l))
}

func standing(l demoLag) string {
	switch l.state {
	case "running":
		return ""
	case "":
		return "  no host has declared " + demoFunction + " yet"
	}
	return "  " + l.state
}
