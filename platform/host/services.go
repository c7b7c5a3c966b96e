package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// service is one part of a process. Run returns nil once ctx has ended and it has
// drained; returning before is the end of the whole process.
type service struct {
	name string
	run  func(ctx context.Context) error
}

// errDrain is returned when a service did not drain in time: the process must end
// all the same, and what it held is taken over when its lease runs out.
var errDrain = errors.New("not drained in time")

// runServices starts services in order and, when ctx ends or one of them returns,
// stops them in the reverse order, each after the one that was started after it has
// returned. within bounds the stopping of all.
func runServices(ctx context.Context, within time.Duration, services []service) error {
	var group errgroup.Group
	stopped := make(chan struct{}) // closed by the first that returns
	first := make(chan struct{}, 1)
	first <- struct{}{}
	life := make([]struct {
		stop context.CancelFunc
		done chan struct{}
	}, len(services))
	for i, s := range services {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		life[i].stop, life[i].done = cancel, make(chan struct{})
		group.Go(func() error {
			defer close(life[i].done)
			err := s.run(own)
			select {
			case <-first:
				close(stopped)
			default:
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			return nil
		})
	}
	select {
	case <-ctx.Done():
	case <-stopped:
	}
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for i := len(services) - 1; i >= 0; i-- {
		life[i].stop()
		select {
		case <-life[i].done:
		case <-deadline.C:
			return fmt.Errorf("%s: %w", services[i].name, errDrain)
		}
	}
	return group.Wait()
}
