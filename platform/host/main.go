package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/cleanup"
	"github.com/pgmill/pgmill/platform/pg"
	"github.com/pgmill/pgmill/platform/policy"
)

// Main runs the command line with what is registered in platform.Default, and
// exits. It is the whole main of a host; the rest are imports of functions.
func Main() {
	pg.KeeperMain() // this process may be the private Postgres's keeper
	// Whoever logs by the default logger, or by package log, is redacted too.
	slog.SetDefault(NewLogger(os.Stderr, "auto", slog.LevelInfo))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	for _, c := range cleanup.Builtin() {
		platform.Register(c)
	}
	o := &options{
		reg: platform.Default, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		environ: os.Environ(), self: os.Args[0], signals: signals, setDefault: slog.SetDefault,
	}
	os.Exit(o.run(context.Background(), os.Args[1:]))
}

// Run is Main for a test or a program of one's own: it answers the exit code. ctx
// ending is what the first SIGTERM is to Main. The environment is the process's.
func Run(ctx context.Context, args []string, reg *platform.Registry, stdout, stderr io.Writer) int {
	o := &options{reg: reg, stdin: strings.NewReader(""), stdout: stdout, stderr: stderr, environ: os.Environ(), self: "host"}
	return o.run(ctx, args)
}

// options are what all commands share.
type options struct {
	reg            *platform.Registry
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	self           string             // how this program was called, for hints
	signals        <-chan os.Signal   // nil: none
	setDefault     func(*slog.Logger) // nil: the process's default logger is left alone

	output string // -o: table or json
	parsed bool   // the command line was understood
	secret policy.Redactor
}

// run executes one command. The first signal ends its context, the second the
// process.
func (o *options) run(ctx context.Context, args []string) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	root := rootCommand(o)
	root.SetArgs(args)
	done := make(chan error, 1)
	asked := root
	go func() {
		var err error
		asked, err = root.ExecuteContextC(ctx)
		done <- err
	}()
	interrupted := false
	for {
		select {
		case err := <-done:
			switch {
			case err != nil && !o.parsed:
				err = usageError{err}
			case interrupted && errors.Is(err, context.Canceled):
				err = errStopped
			}
			return o.report(err, asked.CommandPath())
		case <-o.signals:
			if interrupted {
				return o.report(errStopped, root.Name())
			}
			interrupted = true
			cancel(errStopped)
		}
	}
}

// report says what went wrong with a command, without secrets, and answers the exit
// code.
func (o *options) report(err error, command string) int {
	if err == nil {
		return exitOK
	}
	for _, line := range errorLines(err) {
		fmt.Fprintln(o.stderr, "host: "+o.secret.Text(line))
	}
	if errors.Is(err, errUsage) {
		fmt.Fprintln(o.stderr, "host: see "+command+" --help")
	}
	return exitCode(err)
}

// config loads the configuration of a command from its flags and the environment.
func (o *options) config(cmd *cobra.Command, needDatabase bool) (Config, error) {
	cfg, err := loadConfig(sources{flags: cmd.Flags(), environ: o.environ}, o.reg, needDatabase)
	o.secret = policy.NewRedactor(cfg.Database, cfg.ListenURL)
	return cfg, err
}

// logger is the command's logger; it knows the configured DSNs.
func (o *options) logger(cfg Config) *slog.Logger {
	log := NewLogger(o.stderr, cfg.LogFormat, cfg.LogLevel, cfg.Database, cfg.ListenURL)
	if o.setDefault != nil {
		o.setDefault(log)
	}
	return log
}
