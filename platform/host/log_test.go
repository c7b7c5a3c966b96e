package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmill/pgmill/platform"
)

const canary = "C4naryPassw0rd"

// shy redacts nothing by itself and panics when it is asked for its text.
type shy struct{}

func (shy) String() string { panic(canary) }

type lazy struct{ text string }

func (l lazy) LogValue() slog.Value { return slog.StringValue(l.text) }

// F73: none of what can hold a secret gets into the log, wherever it stands.
func TestLogHoldsNoCanary(t *testing.T) {
	t.Parallel()
	dsn := "postgres://ann:" + canary + "@db:5432/app"
	data := &pgconn.PgError{Severity: "ERROR", Code: "22P02", Message: "invalid input syntax for type integer: " + fmt.Sprintf("%q", canary), Detail: canary}
	for _, format := range []string{"json", "text"} {
		for name, log := range map[string]func(*slog.Logger){
			"message":            func(l *slog.Logger) { l.Info("dial " + dsn) },
			"the password":       func(l *slog.Logger) { l.Info("it is " + canary) },
			"a text":             func(l *slog.Logger) { l.Info("x", "url", dsn) },
			"a secret's name":    func(l *slog.Logger) { l.Info("x", "api_token", "other"+"C4nary") },
			"an error":           func(l *slog.Logger) { l.Info("x", "error", fmt.Errorf("dial: %w", errors.New(dsn))) },
			"what SQL quotes":    func(l *slog.Logger) { l.Info("x", "error", fmt.Errorf("handle: %w", data)) },
			"a group":            func(l *slog.Logger) { l.Info("x", slog.Group("g", slog.Group("h", "url", "amqp://u:"+canary+"@mq"))) },
			"with":               func(l *slog.Logger) { l.With("url", "redis://:"+canary+"@c").Info("x") },
			"with group":         func(l *slog.Logger) { l.WithGroup("g").With("url", dsn).Info("x", "ref", "secret://"+canary) },
			"a group's name":     func(l *slog.Logger) { l.WithGroup(dsn).Info("x", "a", 1) },
			"a key":              func(l *slog.Logger) { l.Info("x", dsn, 1) },
			"a value of its own": func(l *slog.Logger) { l.Info("x", "v", lazy{dsn}) },
			"bytes":              func(l *slog.Logger) { l.Info("x", "v", []byte(canary)) },
			"JSON":               func(l *slog.Logger) { l.Info("x", "v", json.RawMessage(`{"a":"C4nary"}`)) },
			"an event":           func(l *slog.Logger) { l.Info("x", "v", platform.Event{ID: 7, Data: json.RawMessage(`{"a":"C4nary"}`)}) },
			"an event's pointer": func(l *slog.Logger) { l.Info("x", "v", &platform.Event{Data: json.RawMessage(`{"a":"C4nary"}`)}) },
			"a structure":        func(l *slog.Logger) { l.Info("x", "v", struct{ A string }{"C4nary"}) },
			"a map":              func(l *slog.Logger) { l.Info("x", "v", map[string]string{"a": "C4nary"}) },
			"a slice":            func(l *slog.Logger) { l.Info("x", "v", []string{"a", "bearer " + canary}) },
			"events":             func(l *slog.Logger) { l.Info("x", "v", []platform.Event{{Target: "C4nary"}}) },
			"one that panics":    func(l *slog.Logger) { l.Info("x", "v", shy{}) },
			"a line break":       func(l *slog.Logger) { l.Info("a\nAuthorization: " + canary) },
		} {
			var out bytes.Buffer
			log(NewLogger(&out, format, slog.LevelDebug, dsn))
			if out.Len() == 0 || strings.Contains(out.String(), "C4nary") {
				t.Errorf("%s, %s: %s", format, name, out.String())
			}
		}
	}
}

func TestLogKeepsWhatIsNoSecret(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	NewLogger(&out, "auto", slog.LevelInfo).Info("shard held", "subscription", "a.one", "shard", 3, "waits", 1500*time.Millisecond,
		"reason", platform.ReasonPanic, "names", []string{"a", "b"}, "error", errors.New("no route to host"), "nothing", nil)
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	delete(got, "time")
	want := map[string]any{"level": "INFO", "msg": "shard held", "subscription": "a.one", "shard": 3.0, "waits": "1.5s", "reason": "panic",
		"names": "a, b", "error": "no route to host", "nothing": "null"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestLogLevel(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	NewLogger(&out, "json", slog.LevelWarn).Info("not this")
	if out.Len() != 0 {
		t.Errorf("logged %s", out.String())
	}
}

// A logger that does not redact is not made anywhere.
func TestLoggersAreMadeInOnePlace(t *testing.T) {
	t.Parallel()
	makes := regexp.MustCompile(`slog\.New(JSON|Text)Handler|tint\.New|zerolog\.New|[^s]log\.New\(`)
	look := func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == "../../platform/host/log.go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil && makes.Match(text) {
			t.Errorf("%s makes a logger: use host.NewLogger, or take one", path)
		}
		return err
	}
	for _, dir := range []string{"../../platform", "../../functions", "../../cmd/host"} {
		if err := filepath.WalkDir(dir, look); err != nil {
			t.Error(err)
		}
	}
}
