package api_test

import (
	"strings"
	"testing"
)

// C26, C27: a document is set and shown; one with faults changes nothing, names each of
// them, and that it was refused is seen afterwards, without what it said.
func TestDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tt := range []struct{ name, good, better, bad, path, says string }{
		{"pools", `{"topics":{"job.a":"p"},"pools":{"p":{"requires":["gpu"]}}}`, `{"topics":{"job.a":"default"}}`,
			`{"topics":{"job.a":"C4NARY"}}`, "", "each pool of a topic must be listed in pools"},
		{"timeouts", `{"topics":{"job.a":{"timeout_seconds":60.0}}}`, `{}`,
			`{"topics":{"job.a":{"timeout_seconds":"C4NARY"}}}`, "/topics/job.a/timeout_seconds", "must be a whole number, 0 to 315360000"},
	} {
		path := "/api/v1/config/" + tt.name
		shows := func(version, document, by string, rejected bool) {
			t.Helper()
			a := w.want(w.call(root, "GET", path, ""), 200, "")
			kept := ask[bool](w, `select ($1::text::jsonb -> 'document')::text = $2::text::jsonb::text and $1::text::jsonb ->> 'version' = $3`, a.body, document, version)
			r, _ := a.object["rejected"].(map[string]any)
			if !kept || a.text("name") != tt.name || a.text("set_by") != by || (a.text("set_at") != "") != (by != "") || (r != nil) != rejected {
				t.Errorf("shown is %s; want version %s of %s, by %q, a later one refused: %v", a.body, version, document, by, rejected)
			}
			if rejected && (r["by"] != "key:root" || r["reason"] != "schema_validation_failed" || r["at"] == "") {
				t.Errorf("refused was %v", r)
			}
		}
		shows("0", `{}`, "", false)
		if a := w.want(w.call(root, "PUT", path+"?reason=ops.first", tt.good), 200, ""); strings.TrimSpace(a.body) != `{"name":"`+tt.name+`","version":1}` {
			t.Errorf("answered %s", a.body)
		}
		shows("1", tt.good, "key:root", false)
		for _, bad := range []string{tt.bad, `[]`} {
			a := w.want(w.call(root, "PUT", path, bad), 422, "schema_validation_failed")
			if f := a.items("faults"); bad == tt.bad && (len(f) != 1 || f[0]["path"] != tt.path || f[0]["message"] != tt.says) || strings.Contains(a.body, "C4NARY") {
				t.Errorf("%s is refused with %s", bad, a.body)
			}
		}
		shows("1", tt.good, "key:root", true)
		for body, code := range map[string]string{`{`: "invalid_json", ``: "invalid_json", `{"topics":{},"topics":{}}`: "duplicate_key", `{"a":"\u0000"}`: "invalid_json"} {
			w.want(w.call(root, "PUT", path, body), 400, code) // no documents at all
		}
		w.want(w.call(root, "PUT", path+"?reason=It+broke", tt.better), 400, "invalid_field")
		if got := ask[string](w, `select string_agg(concat_ws(' ', actor, action, subject, reason), ', ' order by at) from mill.audit where action like '%' || $1 || '%'`, tt.name); got !=
			strings.ReplaceAll("key:root set_NAME version 1 ops.first, key:root NAME_rejected version 1 schema_validation_failed, key:root NAME_rejected version 1 schema_validation_failed", "NAME", tt.name) {
			t.Errorf("the audit has %s", got)
		}
		w.want(w.call(root, "PUT", path, tt.better), 200, "")
		shows("2", tt.better, "key:root", false)
	}
	if ask[bool](w, `select exists (select from pgmill.audit a where a::text like '%C4NARY%') or exists (select from pgmill.document d where d::text like '%C4NARY%')`) {
		t.Error("what was refused is kept")
	}
	w.want(w.call(root, "GET", "/api/v1/config/more", ""), 404, "not_found")
}

// The configuration is the install's: another scope's key, or one without the right, sees
// and changes nothing, and leaves no note.
func TestDocumentsAreTheInstalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, key := range []string{acme, reads, works} {
		for _, path := range []string{"/api/v1/config/pools", "/api/v1/config/timeouts"} {
			w.want(w.call(key, "GET", path, ""), 403, "denied")
			w.want(w.call(key, "PUT", path, `{"topics":{"job.a":"default"}}`), 403, "denied")
			w.want(w.call(key, "PUT", path, `[]`), 403, "denied")
		}
	}
	if n := ask[int](w, `select count(*) from mill.audit`) + ask[int](w, `select count(*) from pgmill.document`); n != 0 {
		t.Errorf("%d rows are there", n)
	}
}
