package host

import (
	"context"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// readyEvery is how often a host that is not ready yet looks whether it is.
const readyEvery = 100 * time.Millisecond

// tellSupervisor tells systemd, if it asks (NOTIFY_SOCKET), that the process is ready,
// that it lives (each half of WATCHDOG_USEC, as long as its loop turns, be the database
// there or not), and that it stops. Elsewhere it does nothing.
func (p *process) tellSupervisor(ctx context.Context) error {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		<-ctx.Done()
		return nil
	}
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		p.log.Warn("the supervisor's watchdog interval is not understood; it is told nothing", "error", err)
	}
	for len(p.NotReady()) > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(readyEvery):
		}
	}
	p.tell(daemon.SdNotifyReady)
	beat := make(<-chan time.Time)
	if watchdog > 0 {
		t := time.NewTicker(watchdog / 2)
		defer t.Stop()
		beat = t.C
	}
	for {
		select {
		case <-ctx.Done():
			p.tell(daemon.SdNotifyStopping)
			return nil
		case <-beat:
			if r := p.runtime.Load(); r == nil || r.turning() {
				p.tell(daemon.SdNotifyWatchdog)
			}
		}
	}
}

func (p *process) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		p.log.Warn("the supervisor was not told", "state", state, "error", err)
	}
}
