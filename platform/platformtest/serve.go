package platformtest

import (
	"bufio"
	"context"
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/host"
)

var answersAt = regexp.MustCompile(`"msg":"probes answer","addr":"([^"]+)"`)

// Serve starts `host serve` on the database, in this process, with these further
// arguments, and answers the URL of its API, which is open unless keys are given. It is
// stopped at the end of the test.
func Serve(t testing.TB, dsn string, reg *platform.Registry, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	read, write := io.Pipe()
	ended := make(chan int, 1)
	args = append([]string{"serve", "--profile", "local", "--database-url", dsn, "--addr", "127.0.0.1:0", "--log-format", "json"}, args...)
	go func() {
		ended <- host.Run(ctx, args, reg, io.Discard, write)
		_ = write.Close()
	}()
	at := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(read); lines.Scan(); {
			if m := answersAt.FindStringSubmatch(lines.Text()); m != nil {
				at <- m[1]
			}
		}
		_, _ = io.Copy(io.Discard, read)
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("host serve ended with code %d", code)
		}
	})
	select {
	case addr := <-at:
		return "http://" + addr
	case code := <-ended:
		ended <- code
		t.Fatalf("host serve ended at once with code %d", code)
	case <-time.After(patience):
		t.Fatal("host serve does not answer")
	}
	return ""
}
