package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// Who mistypes a topic is told on the error output; the standard output stays what
// programs read.
func TestSubmitNamesTheTopicThatMayBeMeant(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, args := range [][]string{nil, {"-o", "json"}} {
		stdout, stderr := d.apart(0, append([]string{"job", "submit", "--topic", "job.t.ehco"}, args...)...)
		if want := "pgmill: no host or worker knows the topic job.t.ehco: the job waits until one does; did you mean job.t.echo?\n"; stderr != want {
			t.Errorf("%v: the error output is %q, want %q", args, stderr, want)
		}
		if one := strings.Count(stdout, "\n") == 1; args == nil && !one || args != nil && !json.Valid([]byte(stdout)) {
			t.Errorf("%v: the output is %q", args, stdout)
		}
	}
	if _, stderr := d.apart(0, "job", "submit", "--topic", "job.t.fail"); stderr != "" {
		t.Errorf("of a topic that is known it says %q", stderr)
	}
}

// Who is answered another job than a new one is told, and programs can see it.
func TestSubmitSaysThatAnotherJobIsInTheWay(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	submit := []string{"job", "submit", "--topic", "job.t.nobody", "--unique-key", "u"}
	first, stderr := d.apart(0, submit...)
	if strings.Contains(stderr, "in the way") {
		t.Errorf("of the first job it says %q", stderr)
	}
	stdout, stderr := d.apart(0, append(submit, "-o", "json")...)
	id := strings.TrimSpace(first)
	if want := "pgmill: rejected: " + id + " is in the way until it has ended (unique_key)\n"; !strings.HasPrefix(stderr, want) {
		t.Errorf("of the second it says %q, want %q", stderr, want)
	}
	d.shows(stdout, `"job_id": "`+id+`"`, `"outcome": "rejected"`, `"reason": "unique_key"`)
}
