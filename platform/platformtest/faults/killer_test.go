package faults_test

import (
	"fmt"
	"testing"
)

// F36: a job that kills its host ends in the dead letters with host_lost after as many
// deaths as it has attempts; the fifty beside it, of few attempts themselves, are done.
// One that is cancelled while it is at it kills its host and is not started again.
func TestF36JobThatKillsItsHost(t *testing.T) {
	t.Parallel()
	const attempts = 3
	b := newJobBed(t)
	steps := []step{inside, outside}
	for i := range steps {
		steps[i].Attempts = attempts + 2
	}
	b.order(0, inside, `{"die": true}`, fmt.Sprintf(`{"max_attempts": %d}`, attempts))
	b.exec("update wanted set ends = 'FAILED'")
	for i := 1; i <= 50; i++ {
		b.order(i, steps[i%2], `{"millis": 50}`, `{}`)
	}
	f := b.keep(3, hostOptions{Steps: steps})
	b.endedJobs()
	const letters = "select concat_ws(' ', state, reason, attempts) from mill.dead_letters"
	if got := b.list(letters); got != "FAILED host_lost 3" {
		t.Errorf("the dead letters are\n%s", got)
	}
	deaths := f.died()
	if got := ask[int](b, "select count(*) from did where n = 0"); got > attempts || deaths > attempts {
		t.Errorf("it was started %d times and killed %d hosts; want at most %d", got, deaths, attempts)
	}

	b.order(51, outside, `{"gate": "die", "deaf": true, "die": true}`, `{}`)
	b.exec("update wanted set cancel = true where n = 51")
	b.wait("select count(*) = 1 from did where n = 51")
	holder := ask[string](b, "select attempted_by[1] from pgmill.river_job where queue = 'job'")
	b.exec("select mill.cancel(job) from wanted where n = 51")
	b.exec("insert into gate values ('die')")
	b.wait("select not live from mill.instances where id = $1", holder)
	b.order(52, outside, `{}`, `{}`)
	b.endedJobs()
	if got := ask[int](b, "select count(*) from did where n = 51"); got != 1 || f.died() != deaths+1 {
		t.Errorf("the cancelled one was started %d times and killed %d hosts; want 1", got, f.died()-deaths)
	}
	b.allOnce()
	if got := b.list(letters); got != "FAILED host_lost 3" {
		t.Errorf("the dead letters are\n%s", got)
	}
}
