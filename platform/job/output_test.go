package job_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
	"github.com/pgmill/pgmill/platform/job"
	"github.com/pgmill/pgmill/platform/platformtest"
)

// C184: an output above 256 KiB is a blob that the job points to, whichever way the job
// was done, of the scope and trace that the job is of.
func TestLargeOutputIsABlob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	type text struct {
		Text string `json:"text"`
	}
	long := func(in json.RawMessage) text {
		var n struct{ N int }
		_ = json.Unmarshal(in, &n)
		return text{strings.Repeat("ä", n.N)}
	}
	w.host(
		platform.Step[json.RawMessage, text]{Topic: "job.o.run", Run: func(_ context.Context, _ *platform.Attempt, in json.RawMessage) (text, error) { return long(in), nil }},
		platform.Step[json.RawMessage, text]{Topic: "job.o.tx", Handle: func(_ context.Context, _ pgx.Tx, in json.RawMessage) (text, error) { return long(in), nil }},
	)
	for _, topic := range []string{"job.o.run", "job.o.tx", "job.o.outside"} {
		for n, want := range map[int]string{ // letters of two bytes each: 262144 bytes are inline, with the name and as Postgres writes it
			131066:  "131066 ",
			131067:  "0 org:acme t1 true true 131067",
			1 << 20: "0 org:acme t1 true true 1048576",
		} {
			id := w.submit(topic, fmt.Sprintf(`{"n": %d}`, n), `{"scope":"org:acme","trace_id":"t1"}`)
			if topic == "job.o.outside" {
				_, token := w.claimed(topic)
				w.exec(`select mill.complete_job($1, $2, jsonb_build_object('text', repeat('ä', $3)))`, id, token, n)
			}
			w.becomes(id, "SUCCEEDED")
			const kept = `select coalesce(length(j.output ->> 'text'), 0) || ' ' || coalesce((select b.scope || ' ' || b.trace_id || ' ' || (b.size = octet_length(b.bytes)) || ' ' || (b.sha256 = sha256(b.bytes)) || ' '
				|| length(convert_from(b.bytes, 'UTF8')::jsonb ->> 'text') from pgmill.blob b where b.job = j.id and b.id = j.output_blob), '') from pgmill.job j where id = $1`
			if got := ask[string](w, kept, id); got != want {
				t.Errorf("%s of %d letters: %s, want %s", topic, n, got, want)
			}
		}
	}
	if n := ask[int64](w, `select count(*) from pgmill.blob`); n != 6 {
		t.Errorf("%d blobs, want 6", n)
	}
}

// The largest output there may be is stored, however many values it has and whichever way
// the job was done, or refused, in time.
func TestLargestOutputIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	outputs := map[string]json.RawMessage{
		"one text":    json.RawMessage(`"` + strings.Repeat("x", platform.MaxBlob-2) + `"`),
		"many values": json.RawMessage("[1" + strings.Repeat(",1", platform.MaxBlob/2-2) + "] "),
	}
	of := func(in json.RawMessage) json.RawMessage {
		var said struct{ Of string }
		_ = json.Unmarshal(in, &said)
		return outputs[said.Of]
	}
	w.host(
		platform.Step[json.RawMessage, json.RawMessage]{Topic: "job.o.most.run", MaxAttempts: 1, Run: func(_ context.Context, _ *platform.Attempt, in json.RawMessage) (json.RawMessage, error) {
			return of(in), nil
		}},
		platform.Step[json.RawMessage, json.RawMessage]{Topic: "job.o.most.tx", MaxAttempts: 1, Handle: func(_ context.Context, _ pgx.Tx, in json.RawMessage) (json.RawMessage, error) { return of(in), nil }},
	)
	for name, out := range outputs {
		for _, topic := range []string{"job.o.most.run", "job.o.most.tx"} {
			id := w.submit(topic, fmt.Sprintf(`{"of": %q}`, name), `{}`)
			platformtest.WaitWithin(t, w.pool, time.Minute, `select exists (select from pgmill.job where id = $1 and finished_at is not null)`, id)
			got := ask[string](w, `select concat_ws(' ', j.state, j.reason, b.size, b.sha256 = sha256($2)) from pgmill.job j left join pgmill.blob b on b.job = j.id where j.id = $1`, id, bytes.TrimSpace(out))
			switch got {
			case fmt.Sprintf("SUCCEEDED %d t", len(bytes.TrimSpace(out))):
			case "FAILED bad_output": // a machine with much else to do may not store it in time
				t.Logf("%s of %s was refused", name, topic)
			default:
				t.Errorf("%s of %s: %s", name, topic, got)
			}
		}
	}
}

// A database that does not store a large output in time, and would not the next time, is
// not asked for ever, while other jobs wait to be settled.
func TestLargeOutputThatIsNotStoredInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(60); return new; end'; create trigger slow before insert on pgmill.blob for each row execute function slow()`)
	large := strings.Repeat("x", platform.MaxOutput)
	w.host(
		platform.Step[json.RawMessage, string]{Topic: "job.o.slow.run", MaxAttempts: 1, Run: func(context.Context, *platform.Attempt, json.RawMessage) (string, error) { return large, nil }},
		platform.Step[json.RawMessage, string]{Topic: "job.o.slow.tx", MaxAttempts: 1, Handle: func(context.Context, pgx.Tx, json.RawMessage) (string, error) { return large, nil }},
	)
	for _, topic := range []string{"job.o.slow.run", "job.o.slow.tx"} {
		id := w.submit(topic, `{}`, `{}`)
		platformtest.WaitWithin(t, w.pool, time.Minute, `select exists (select from pgmill.job where id = $1 and state = 'FAILED' and reason = 'bad_output')`, id)
	}
}

// What Postgres would refuse in jsonb is refused in a large output, too, which it stores
// without a look.
func TestLargeOutputIsText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", platform.MaxOutput)
	for out, good := range map[string]bool{
		`"` + long + `"`:               true,
		`"` + long + `ä\u00e4\n\"\\"`:  true,
		`"` + long + `\ud83d\ude00"`:   true,
		`"\\u0000` + long + `"`:        true, // a backslash and letters
		`"\\\\ud800` + long + `"`:      true,
		`"` + long + `\u0000"`:         false,
		`"` + long + `\\\u0000"`:       false,
		`"` + long + `\ud83d"`:         false,
		`"` + long + `\ud83dx\ude00"`:  false,
		`"` + long + `\ud83d\n\ude00"`: false,
		`"` + long + `\ud83d\ud83d"`:   false,
		`"\uDE00` + long + `"`:         false,
		`"` + long + "\xff" + `"`:      false,
		`"\u0000"`:                     true, // not large: Postgres looks itself
	} {
		if err := job.CheckLarge([]byte(out)); (err == nil) != good {
			t.Errorf("%s: %v, want good %v", strings.ReplaceAll(out, long, "…"), err, good)
		}
	}
}

// A large output of a claim that is gone leaves nothing behind.
func TestLargeOutputIsFenced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("job.o", `{}`, `{}`)
	claim, token := w.claimed("job.o")
	w.exec(`select mill.cancel($1)`, id)
	for _, q := range []string{`select mill.complete_job($1, $2, to_jsonb(repeat('x', 300000)))`, `select pgmill.settle_large(` + fmt.Sprint(claim) + `, to_jsonb(repeat('x', 300000))) where $1 || $2 <> ''`} {
		if _, err := w.pool.Exec(t.Context(), q, id, token); err == nil || !strings.Contains(err.Error(), "MI101") {
			t.Errorf("%s = %v, want MI101", q, err)
		}
	}
	if n := ask[int64](w, `select count(*) from pgmill.blob`); n != 0 {
		t.Errorf("%d blobs are left", n)
	}
}
