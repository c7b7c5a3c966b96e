package lease_test

import (
	"testing"

	"github.com/pgmill/pgmill/platform/platformtest"
)

// A poll comes at the moment that somebody's lease ends, so that what it had is claimable
// then and not up to a poll later.
func TestPollIsDueWhenALeaseEnds(t *testing.T) {
	t.Parallel()
	pool := platformtest.DB(t)
	due := func() (ms *int64) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `call pgmill.tick('me', 0, false, null, null, null, null, null, null, null)`).Scan(nil, nil, nil, nil, nil, &ms, nil); err != nil {
			t.Fatal(err)
		}
		return ms
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`insert into pgmill.instance (kind, id, ttl) values ('worker', 'me', '10 s')`)
	if ms := due(); ms != nil {
		t.Errorf("next due in %d ms, for one host", *ms)
	}
	exec(`insert into pgmill.instance (kind, id, ttl, last_seen) values ('worker', 'other', '1 h', now() - interval '59 min')`)
	if ms := due(); ms == nil || *ms < 1 || *ms > 60_001 {
		t.Errorf("next due in %v ms, want within a minute", ms)
	}
	exec(`update pgmill.instance set last_seen = now() - ttl where id = 'other'`)
	if ms := due(); ms != nil {
		t.Errorf("next due in %d ms after the lease had ended", *ms)
	}
	exec(`insert into pgmill.job_lease (claim, worker, token, ttl, until) values (1, 'w', '1-x', '1 min', now() + interval '30 s')`)
	if ms := due(); ms == nil || *ms < 1 || *ms > 30_000 {
		t.Errorf("next due in %v ms, want within thirty seconds", ms)
	}
	exec(`delete from pgmill.job_lease`)
}
