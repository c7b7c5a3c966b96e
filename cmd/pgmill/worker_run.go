package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/platform/client"
)

// worker runs one command per job.
type worker struct {
	api     *client.Client
	claim   client.Claim
	command []string
	lease   time.Duration
	say     func(format string, args ...any)
}

func (p *program) workerRun() *cobra.Command {
	w := &worker{}
	var slots, jobs int
	cmd := &cobra.Command{Use: "run --topic TOPIC | --pools POOL -- COMMAND [ARG…]", Short: "Run a command for each job: the input on its standard input, the output from its standard output",
		Long: `Run a command for each job. It gets the input as JSON on its standard input and the variables
PGMILL_JOB_ID, PGMILL_TOPIC and PGMILL_ATTEMPT; what it prints is the output (a text that is no
JSON becomes {"stdout": …}). Exit code 0 completes the job, 65 fails it for good, any other
fails the attempt with the reason worker.exit_N. When the job is cancelled, its lease is lost
or this program is told to stop, the command gets SIGTERM and five seconds; what was not
done is given back.`,
		Args: cobra.MinimumNArgs(1)}
	flags := cmd.Flags()
	claimFlags(flags, &w.claim)
	flags.DurationVar(&w.lease, "lease", 30*time.Second, "how long a claim outlives this program")
	flags.IntVar(&slots, "slots", 1, "jobs at once")
	flags.IntVar(&jobs, "jobs", 0, "stop after so many (0: never)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if w.lease < time.Second || slots < 1 {
			return usage{errors.New("--lease is at least 1s, --slots at least 1")}
		}
		w.api, w.command = p.api, args
		var mu sync.Mutex
		w.say = func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(p.stderr, format+"\n", args...)
		}
		return w.run(cmd.Context(), slots, jobs)
	}
	return cmd
}

// run claims and works until ctx ends or jobs are done; 0 is no end.
func (w *worker) run(ctx context.Context, slots, jobs int) error {
	one, secs := int64(1), int64(w.lease.Seconds())
	w.claim.N, w.claim.LeaseSecs, w.claim.WaitMs = &one, &secs, 20_000
	free := make(chan struct{}, slots)
	var busy sync.WaitGroup
	defer busy.Wait()
	pause := time.Second
	for done := 0; ctx.Err() == nil && (jobs == 0 || done < jobs); {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		got, err := w.api.Claim(ctx, w.claim)
		if err != nil {
			<-free
			if ctx.Err() != nil {
				return nil
			} else if code := exitCode(err); code == exitUsage || code == exitDenied {
				return err
			}
			w.say("no claim: %v; trying again in %v", err, pause)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, 15*time.Second)
			continue
		}
		pause = time.Second
		if len(got.Jobs) == 0 {
			<-free
			continue
		}
		done++
		busy.Go(func() {
			defer func() { <-free }()
			w.do(ctx, got.Jobs[0])
		})
	}
	return nil
}

var errDropped = errors.New("cancelled, or the lease is lost")

// do runs the command for one job and reports how it went.
func (w *worker) do(ctx context.Context, j client.ClaimedJob) {
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	beats := make(chan struct{})
	go func() { defer close(beats); w.beat(run, j, stop) }()
	cmd := exec.CommandContext(run, w.command[0], w.command[1:]...)
	cmd.Stdin = bytes.NewReader(j.Input)
	cmd.Env = append(os.Environ(), "PGMILL_JOB_ID="+j.JobID, "PGMILL_TOPIC="+j.Topic, "PGMILL_ATTEMPT="+strconv.Itoa(j.Attempt))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	err := cmd.Run()
	why := context.Cause(run)
	stop(nil)
	<-beats
	r := client.Report{ID: j.JobID, Token: j.Token}
	var exit *exec.ExitError
	switch {
	case errors.Is(why, errDropped):
		w.say("%s dropped: %v", j.JobID, why)
	case err == nil:
		r.Output = output(out.Bytes())
		w.report("complete", r)
	case why != nil:
		w.report("release", r)
	default:
		r.Reason = "worker.no_start"
		if errors.As(err, &exit) {
			r.Reason = fmt.Sprintf("worker.exit_%d", max(0, exit.ExitCode()))
			retry := exit.ExitCode() != 65
			r.Retry = &retry
		}
		w.report("fail", r)
	}
}

// beat renews the claim each third of its lease; a cancel, a lost lease or a lease's
// length without an answer stops the work. The clock starts before the call.
func (w *worker) beat(ctx context.Context, j client.ClaimedJob, stop context.CancelCauseFunc) {
	tick := time.NewTicker(w.lease / 3)
	defer tick.Stop()
	end := time.AfterFunc(w.lease, func() { stop(errDropped) })
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		answer, err := w.api.Heartbeat(ctx, client.Heartbeat{IDs: []string{j.JobID}, Tokens: []string{j.Token}})
		switch {
		case err != nil:
			continue
		case len(answer.Jobs) == 1 && answer.Jobs[0].Cancelled:
			stop(errDropped)
			return
		}
		end.Reset(w.lease - time.Since(began))
	}
}

// report sends the end of a job, again while the host does not answer and the lease may
// be good.
func (w *worker) report(what string, r client.Report) {
	ctx, cancel := context.WithTimeout(context.Background(), w.lease)
	defer cancel()
	for {
		done, err := w.api.Report(ctx, what, r)
		var p *client.Problem
		switch {
		case err == nil:
			w.say("%s %s: %s", r.ID, what, done.State)
			return
		case errors.As(err, &p) && p.Status == http.StatusRequestEntityTooLarge && what == "complete":
			what, r = "fail", client.Report{ID: r.ID, Token: r.Token, Reason: "worker.output_too_large", Retry: new(bool)}
			continue
		case errors.As(err, &p) && p.Status == http.StatusUnprocessableEntity && what == "complete":
			w.say("%s: %v", r.ID, p)
			what, r = "fail", client.Report{ID: r.ID, Token: r.Token, Reason: "bad_output", Retry: new(bool)}
			continue
		case errors.As(err, &p) && p.Status < 500:
			w.say("%s %s refused: %v", r.ID, what, p)
			return
		}
		select {
		case <-ctx.Done():
			w.say("%s %s not told: %v", r.ID, what, err)
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
}
