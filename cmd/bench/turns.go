package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/pgmill/pgmill/cmd/bench/internal/lab"
	"github.com/pgmill/pgmill/cmd/bench/internal/report"
)

// run measures the comparisons in turns and prints the table.
func (o *options) run(ctx context.Context, all []report.Comparison) error {
	if o.form != "table" && o.form != "json" {
		return fmt.Errorf("output %q: table or json", o.form)
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	sink, err := o.open()
	if err != nil {
		return err
	}
	defer sink.close()
	server, err := openServer(ctx, o.dir)
	if err != nil {
		return err
	}
	defer server.close()
	t := &turns{options: o, server: server, sink: sink, session: time.Now().UTC().Format("20060102T150405")}
	if err := sink.add(lab.Line{Machine: server.machine, Session: t.session}); err != nil {
		return err
	}
	for _, c := range all {
		if only.MatchString(c.Name) {
			err = errors.Join(err, t.compare(ctx, c))
		}
	}
	if o.form == "table" {
		err = errors.Join(err, report.Table(os.Stdout, sink.lines, known()))
	}
	if err == nil && t.failed > 0 {
		err = fmt.Errorf("%d runs failed", t.failed)
	}
	return err
}

type turns struct {
	*options
	server  *server
	sink    *sink
	session string
	failed  int
}

func (t *turns) compare(ctx context.Context, c report.Comparison) error {
	for round := 1; round <= max(1, cmp.Or(t.rounds, c.Rounds)); round++ {
		for _, e := range c.Runs {
			spec, err := t.adapt(e.Spec)
			if err != nil {
				return err
			}
			for try := 1; try <= 3; try++ {
				line := t.one(ctx, spec)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				line.Comparison, line.Run, line.Base, line.Session, line.Round = c.Name, e.Label(), c.Base, t.session, round
				line.Rejected = try < 3 && line.Values["foreign_cpu"] > t.noise
				if err := t.sink.add(line); err != nil {
					return err
				}
				t.tell(c, line)
				if !line.Rejected {
					break
				}
			}
		}
	}
	return nil
}

// adapt applies the flags to a spec. What a tenth of an unstated n is, only the
// scenario's defaults can say.
func (t *turns) adapt(text string) (lab.Spec, error) {
	s, err := lab.ParseSpec(text)
	if err != nil {
		return s, err
	}
	if t.tenth {
		for _, sc := range scenarios {
			if sc.Name == s.Name {
				for _, name := range []string{"n", "secs"} {
					if v := cmp.Or(s.Params[name], sc.Defaults[name]); v > 0 {
						s.Params[name] = max(v/10, 10)
					}
				}
			}
		}
	}
	if t.n > 0 {
		s.Params["n"] = t.n
	}
	if t.c > 0 {
		s.Params["c"] = t.c
	}
	return s, nil
}

// one runs a spec in a process of its own: this program's, or the peers'.
func (t *turns) one(ctx context.Context, spec lab.Spec) lab.Line {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	fail := func(err error) lab.Line {
		t.failed++
		return lab.Line{N: spec.Params["n"], C: spec.Params["c"], Failed: err.Error()}
	}
	program, args, err := t.program(spec)
	if err != nil {
		return fail(err)
	}
	host, err := t.server.hostBinary(ctx, spec)
	if err != nil {
		return fail(err)
	}
	var out, why bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "PG_DSN="+t.server.dsn, "BENCH_HOST="+host)
	cmd.Stdout, cmd.Stderr = &out, &why
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(why.String())
		if _, last, ok := strings.Cut(said[strings.LastIndexByte(said, '\n')+1:], "bench: "); ok {
			err = errors.New(last)
		}
		return fail(err)
	}
	lines, err := lab.ReadLines(&out)
	if err != nil || len(lines) != 1 {
		return fail(fmt.Errorf("no result: %v", err))
	}
	return lines[0]
}

func (t *turns) program(spec lab.Spec) (string, []string, error) {
	for _, s := range scenarios {
		if s.Name == spec.Name {
			self, err := os.Executable()
			return self, []string{"one", spec.String()}, err
		}
	}
	if t.peers == "" {
		return "", nil, fmt.Errorf("no scenario %s here; for other systems give --peers", spec.Name)
	}
	return t.peers, []string{spec.String()}, nil
}

func (t *turns) tell(c report.Comparison, l lab.Line) {
	what := fmt.Sprintf("%.0f/s", l.Values["rate"])
	if c.Metric != "" {
		what = fmt.Sprintf("%s %.4g", c.Metric, l.Values[c.Metric])
	}
	switch {
	case l.Failed != "":
		what = "FAILED " + l.Failed
	case l.Rejected:
		what += fmt.Sprintf(", repeated: %.0f %% foreign CPU", 100*l.Values["foreign_cpu"])
	}
	fmt.Fprintf(os.Stderr, "%-28s %d  %-32s %s\n", c.Name, l.Round, l.Run, what)
}
