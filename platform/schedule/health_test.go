package schedule_test

import "testing"

// mill.health says when ticks are late, and when what they call is held. No host runs
// here: rows are moved by hand.
func TestHealthOfSchedules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, change string
		want         string
	}{
		{"all fire", `select 1`, "ok {} 1 0 0 0"},
		{"due a moment ago", `update pgmill.schedule set next_at = now() - interval '4 seconds'`, "ok {} 1 0 0 0"},
		{"a daily one is late by a minute", `update pgmill.schedule set last_at = now() - interval '1 day', next_at = now() - interval '61 seconds'`, "degraded {overdue} 1 1 0 0"},
		{"a daily one is late by less", `update pgmill.schedule set last_at = now() - interval '1 day', next_at = now() - interval '50 seconds'`, "ok {} 1 0 0 0"},
		{"one of each ten seconds is late by more", `update pgmill.schedule set last_at = now() - interval '25 seconds', next_at = now() - interval '15 seconds'`, "degraded {overdue} 1 1 0 0"},
		{"paused", `update pgmill.schedule set paused_at = now(), next_at = now() - interval '1 hour'`, "ok {} 1 0 0 1"},
		{"its subscription is held", `update pgmill.shard set failing_pos = 1, attempts = 5, reason = 'handler_error', failed_at = now(), held_at = now()`, "degraded {held} 1 0 1 0"},
		{"it cannot be read", `update pgmill.schedule set next_at = null, reason = 'bad_schedule'`, "degraded {bad_schedule} 1 0 0 0"},
		{"a function that was a schedule once", `update pgmill.schedule set next_at = now() - interval '1 hour'; update pgmill.function set kind = 'subscription'`, "ok {} 0 0 0 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.exec(`
				insert into pgmill.function (name, kind, module, listens) values ('test.one', 'schedule', 'test', '{schedule.test.one}');
				insert into pgmill.subscription (name, likes, order_by, shards, batch, max_attempts, on_poison, replayable, timeout)
				values ('test.one', '{schedule.test.one}', 'key', 1, 500, 5, 'hold', false, '30 s');
				insert into pgmill.cursor (subscription, shard, n, pos) values ('test.one', 0, 0, 0);
				insert into pgmill.shard (subscription, shard) values ('test.one', 0);
				insert into pgmill.schedule (name, cron, zone, missed, max_missed, overlap, next_at)
				values ('test.one', '* * * * *', 'UTC', 'latest', 100, 'queue', now() + interval '1 minute')`)
			w.exec(tt.change)
			w.want(tt.want, `select concat_ws(' ', status, reasons, counts ->> 'schedules', counts ->> 'overdue', counts ->> 'held', counts ->> 'paused')
				from mill.health where component = 'schedules'`)
		})
	}
}
