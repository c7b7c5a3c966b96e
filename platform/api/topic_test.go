package api_test

import "testing"

// A job of a topic that nobody knows is taken, and whoever submits it is told, with the
// topic that may be meant. A worker of another scope does not count.
func TestATopicThatNobodyKnows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`select mill.set_pools('{"pools": {"p": {}}, "topics": {"job.pooled.mail": "p"}}')`)
	for key, topic := range map[string]string{acme: "job.shop.thumbnail", other: "job.hidden.thing"} {
		w.want(w.call(key, "POST", "/api/v1/worker/claim", `{"worker": "w1", "topics": ["`+topic+`"]}`), 200, "")
	}
	const nobody = "no host or worker knows the topic "
	for _, tt := range []struct{ topic, want string }{
		{"job.shop.thumbnail", ""},
		{"job.pooled.mail", ""},
		{"job.shop.tumbnail", nobody + "job.shop.tumbnail: the job waits until one does; did you mean job.shop.thumbnail?"},
		{"job.pooled.male", nobody + "job.pooled.male: the job waits until one does; did you mean job.pooled.mail?"},
		{"job.hidden.thing", nobody + "job.hidden.thing: the job waits until one does"},
		{"job.unknown", nobody + "job.unknown: the job waits until one does"},
	} {
		a := w.want(w.call(acme, "POST", "/api/v1/jobs", `{"topic": "`+tt.topic+`", "input": {}}`), 200, "")
		if got := a.header.Get("X-Warning"); got != tt.want || a.text("job_id") == "" {
			t.Errorf("%s: job %q, X-Warning %q; want %q", tt.topic, a.text("job_id"), got, tt.want)
		}
	}
}
