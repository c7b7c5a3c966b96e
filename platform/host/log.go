package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lmittmann/tint"
	"github.com/mattn/go-isatty"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/policy"
)

// NewLogger is the only way to log: everything goes through policy.Redact, and
// secrets, such as the configured DSNs, are taken out wherever they turn up. format
// "" or auto is text on a terminal and JSON elsewhere.
//
// Texts and numbers are logged, and errors by their text; of a structure, a map or
// bytes only the type is, since nobody can say what is in it (N84).
func NewLogger(w io.Writer, format string, level slog.Leveler, secrets ...string) *slog.Logger {
	var inner slog.Handler
	tty := isTerminal(w)
	if format == "text" || format != "json" && tty {
		inner = tint.NewTextHandler(w, &tint.Options{Level: level, NoColor: !tty || os.Getenv("NO_COLOR") != ""})
	} else {
		inner = slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
	}
	return slog.New(redacting{inner, policy.NewRedactor(secrets...)})
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// redacting hands records on without secrets: message, keys, values, groups.
type redacting struct {
	inner  slog.Handler
	secret policy.Redactor
}

func (h redacting) Enabled(ctx context.Context, l slog.Level) bool { return h.inner.Enabled(ctx, l) }

func (h redacting) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, h.secret.Text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.attr(a))
		return true
	})
	return h.inner.Handle(ctx, clean)
}

func (h redacting) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.attr(a)
	}
	return redacting{h.inner.WithAttrs(clean), h.secret}
}

func (h redacting) WithGroup(name string) slog.Handler {
	return redacting{h.inner.WithGroup(h.secret.Text(name)), h.secret}
}

// secretNames in an attribute's name make its text a secret, whatever it looks like.
var secretNames = []string{"password", "passwd", "secret", "token", "api_key", "apikey", "authorization", "cookie", "credential", "dsn"}

func (h redacting) attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		members := make([]slog.Attr, len(v.Group()))
		for i, m := range v.Group() {
			members[i] = h.attr(m)
		}
		return slog.Attr{Key: h.secret.Text(a.Key), Value: slog.GroupValue(members...)}
	}
	v = h.value(v)
	if v.Kind() == slog.KindString && isSecretName(a.Key) {
		v = slog.StringValue(policy.Mark)
	}
	return slog.Attr{Key: h.secret.Text(a.Key), Value: v}
}

func isSecretName(key string) bool {
	key = strings.ToLower(key)
	for _, name := range secretNames {
		if strings.Contains(key, name) {
			return true
		}
	}
	return false
}

// value keeps numbers and times; texts are redacted; what is neither is
// reduced to a text or to its type.
func (h redacting) value(v slog.Value) slog.Value {
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(h.secret.Text(v.String()))
	case slog.KindDuration: // JSON would give nanoseconds
		return slog.StringValue(v.Duration().String())
	case slog.KindAny:
		return slog.StringValue(h.secret.Text(safeText(v.Any())))
	default:
		return v
	}
}

// safeText is what may be said of a value that is no slog kind of its own. A value
// that panics while it is asked must not end the process.
func safeText(v any) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("[%T]", v)
		}
	}()
	switch v := v.(type) {
	case nil:
		return "null"
	case error:
		return errorText(v)
	case []byte:
		return fmt.Sprintf("[%d bytes]", len(v))
	case json.RawMessage:
		return fmt.Sprintf("[%d bytes of JSON]", len(v))
	case platform.Event:
		return fmt.Sprintf("event %d %s at %d", v.ID, v.Type, v.Pos)
	case fmt.Stringer:
		return v.String()
	}
	rv := reflect.ValueOf(v)
	switch k := rv.Kind(); {
	case k == reflect.Slice || k == reflect.Array:
		return sliceText(rv)
	case isScalar(k):
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("[%T]", v)
}

func sliceText(rv reflect.Value) string {
	const most = 50
	if !isScalar(rv.Type().Elem().Kind()) {
		return fmt.Sprintf("[%d %s]", rv.Len(), rv.Type().Elem())
	}
	var parts []string
	for i := range min(rv.Len(), most) {
		parts = append(parts, fmt.Sprint(rv.Index(i).Interface()))
	}
	if rv.Len() > most {
		parts = append(parts, fmt.Sprintf("and %d more", rv.Len()-most))
	}
	return strings.Join(parts, ", ")
}

func isScalar(k reflect.Kind) bool {
	return k >= reflect.Bool && k <= reflect.Complex128 && k != reflect.Uintptr || k == reflect.String
}

// errorText leaves out what Postgres quotes of the data: the message of a data or
// raised exception holds the value that was wrong.
func errorText(err error) string {
	text := err.Error()
	var pe *pgconn.PgError
	if errors.As(err, &pe) && pe.Message != "" && (strings.HasPrefix(pe.Code, "22") || strings.HasPrefix(pe.Code, "P0")) {
		text = strings.ReplaceAll(text, pe.Message, "data exception")
	}
	return text
}
