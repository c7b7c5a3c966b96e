package host

import (
	"net"
	"syscall"
	"time"
)

// unanswered is how long a connection may stay without an acknowledgement of the
// other end before the kernel gives it up; its default is a quarter of an hour.
const unanswered = 10 * time.Second

// dialer makes connections that end when the other end is gone without a word: a
// machine that lost its power, a firewall that forgot them (F38, F42).
func dialer() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
		Control: func(network, _ string, c syscall.RawConn) error {
			if network != "tcp4" && network != "tcp6" {
				return nil
			}
			return c.Control(func(fd uintptr) { limitUnanswered(fd, unanswered) })
		},
	}
}
