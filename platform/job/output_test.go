package job_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgmill/pgmill/platform"
)

// C184: an output above 256 KiB is a blob that the job points to, whichever way the job
// was done; it is the text that it would have been inline.
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
