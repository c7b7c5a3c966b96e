package job_test

import (
	"fmt"
	"math"
)

// A model of admission, small enough to be believed: which jobs wait, run or have ended,
// and what may run by the limits. Which of them is next is left to the priorities, the
// lanes' order and, for lanes without limits, to fair_test.go.
type model struct {
	topics map[string]*gates
	scopes map[string]int // max_running; 0: no limit
	jobs   []*modelJob
	byID   map[string]*modelJob
}

// gates are what a topic declares; 0: no limit.
type gates struct {
	concurrency, perScope, perKey, rate int
	used                                float64 // starts that the rate has not forgotten yet
}

type modelJob struct {
	n                    int // in the order of submits
	id, topic, scope     string
	key, unique          string
	priority, cost, most int
	state                string // PENDING, RUNNING or an end
	rest                 int    // minutes until it may start
	late                 bool   // it rested: its place is not by n
	attempt, deaths      int
	suspect              bool
	host                 string
	claim                int64
}

func (j *modelJob) String() string {
	return fmt.Sprintf("#%d %s %s key %q priority %d", j.n, j.topic, j.scope, j.key, j.priority)
}

// running counts jobs that run and fit.
func (m *model) running(fits func(j *modelJob) bool) (n int) {
	for _, j := range m.jobs {
		if j.state == "RUNNING" && fits(j) {
			n++
		}
	}
	return n
}

// room reports whether one more job like j may start on a host, by each limit.
func (m *model) room(j *modelJob, host string) bool {
	t := m.topics[j.topic]
	for _, gate := range []struct {
		most int
		fits func(o *modelJob) bool
	}{
		{t.concurrency, func(o *modelJob) bool { return o.topic == j.topic }},
		{t.perScope, func(o *modelJob) bool { return o.topic == j.topic && o.scope == j.scope }},
		{t.perKey, func(o *modelJob) bool {
			return j.key != "" && o.topic == j.topic && o.scope == j.scope && o.key == j.key
		}},
		{m.scopes[j.scope], func(o *modelJob) bool { return o.scope == j.scope }},
		{map[bool]int{true: 1}[j.suspect], func(o *modelJob) bool { return o.suspect && o.host == host }},
	} {
		if gate.most > 0 && m.running(gate.fits) >= gate.most {
			return false
		}
	}
	return t.rate == 0 || math.Floor(float64(t.rate)-t.used+0.0001) >= 1
}

// may reports whether a job that waits may start now.
func (m *model) may(j *modelJob, host string) bool {
	return j.state == "PENDING" && j.rest == 0 && m.room(j, host)
}

// start admits a job and answers what is wrong with that.
func (m *model) start(j *modelJob, host string) string {
	switch {
	case j.state != "PENDING":
		return fmt.Sprintf("%v was admitted while %s", j, j.state)
	case j.rest > 0:
		return fmt.Sprintf("%v was admitted while it rests for %d more minutes", j, j.rest)
	case !m.room(j, host):
		return fmt.Sprintf("%v was admitted beyond a limit", j)
	}
	for _, o := range m.jobs { // first attempts in one lane, of one key where keys count
		if o.n < j.n && o.state == "PENDING" && !o.late && !j.late && o.attempt == 0 && j.attempt == 0 && o.topic == j.topic && o.scope == j.scope && o.priority == j.priority &&
			(m.topics[j.topic].perKey == 0 || o.key == j.key) {
			return fmt.Sprintf("%v was admitted before %v", j, o)
		}
	}
	j.state, j.host = "RUNNING", host
	m.topics[j.topic].used++
	return ""
}

// passed answers which job that may start was passed over by one of a lesser priority.
func (m *model) passed(worst int, host string) string {
	for _, j := range m.jobs {
		if j.priority < worst && m.may(j, host) {
			return fmt.Sprintf("%v still waits and one of priority %d was admitted", j, worst)
		}
	}
	return ""
}

// end ends an attempt as outcome and reason say.
func (m *model) end(j *modelJob, outcome, reason string, final bool) {
	if outcome == "released" {
		j.state, j.late = "PENDING", true // and a suspect stays one
		return
	}
	j.attempt++
	again := outcome == "failed" && !final && j.attempt < j.most
	j.suspect = false
	if reason == "host_lost" {
		j.deaths++
		j.suspect = again && j.deaths > 1
	}
	switch {
	case outcome == "succeeded":
		j.state = "SUCCEEDED"
	case again:
		j.state, j.late, j.rest = "PENDING", true, 60
		if reason == "host_lost" && j.attempt == 1 {
			j.rest = 0
		}
	case reason == "timeout":
		j.state = "TIMEOUT"
	default:
		j.state = "FAILED"
	}
}

// pass lets time go by.
func (m *model) pass(minutes int) {
	for _, j := range m.jobs {
		j.rest = max(0, j.rest-minutes)
	}
	for _, t := range m.topics {
		t.used = max(0, t.used-float64(t.rate)*float64(minutes)/60)
	}
}

// holder is the job that has a unique key; nil: none.
func (m *model) holder(topic, scope, unique string) *modelJob {
	for _, j := range m.jobs {
		if unique != "" && j.topic == topic && j.scope == scope && j.unique == unique && (j.state == "PENDING" || j.state == "RUNNING") {
			return j
		}
	}
	return nil
}
