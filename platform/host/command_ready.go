package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgmill/pgmill/platform"
)

var errNotReady = errors.New("not ready")

// readyCommand asks a running host, where nothing else is there to ask it: in an image
// without a shell.
func readyCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "ready", Short: "Ask the host at --addr whether it is ready; exit code 1 if not", Args: cobra.NoArgs}
	addSettings(cmd.Flags(), false)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := o.config(cmd, false)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
		defer cancel()
		return o.ready(ctx, cfg.Addr)
	}
	return cmd
}

func (o *options) ready(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "localhost" // it listens everywhere
	}
	asked, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(asked)
	if err != nil {
		return fmt.Errorf("no host answers at %s: %w", addr, errNotReady)
	}
	defer answer.Body.Close() //nolint:errcheck // nothing is lost
	var p struct {
		Reasons []platform.Reason `json:"reasons"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&p); err != nil {
		return fmt.Errorf("what answers at %s is no host: %w", addr, errNotReady)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %v", errNotReady, p.Reasons)
	}
	fmt.Fprintln(o.stdout, "ready")
	return nil
}
