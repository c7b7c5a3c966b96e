package host

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// F38, F42: the kernel gives up a connection whose other end is gone without a word
// in seconds, whether it rests (keepalive) or waits for an acknowledgement.
func TestDialerGivesUpSilentConnections(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := dialer().DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for _, tt := range []struct {
			name        string
			level, what int
			want        int
		}{
			{"TCP_USER_TIMEOUT in ms", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 10_000},
			{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{"TCP_KEEPIDLE in s", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 5},
			{"TCP_KEEPINTVL in s", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 2},
			{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
		} {
			if got, err := unix.GetsockoptInt(int(fd), tt.level, tt.what); err != nil || got != tt.want {
				t.Errorf("%s = %d, %v; want %d", tt.name, got, err, tt.want)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
