package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// limitUnanswered is best effort: without it the connection is only given up later.
func limitUnanswered(fd uintptr, d time.Duration) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}
