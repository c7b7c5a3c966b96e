-- Policy's place in admission: one decision on each job that could run now, before it
-- does. Its verdict and the snapshot that it was given by are stored on the job.

-- Pure: allow, deny or require_approval, for which reason, by which snapshot of the
-- policy (null: none was asked). There is no policy yet, so everything is allowed, and
-- what is constant costs an admission nothing.
create or replace function pgmill.decide(job pgmill.job) returns table (verdict text, reason text, policy text)
language sql immutable parallel safe
as $$ select 'allow'::text, null::text, null::text $$;

-- The verdict on a job that does not run; null: nobody asked for one yet. That all is
-- allowed is written at no start, so what has started was allowed.
create or replace function pgmill.shown_verdict(verdict text, policy text, started_at timestamptz) returns text
language sql immutable parallel safe
as $$ select case when verdict <> 'allow' or policy is not null or started_at is not null then verdict end $$;

-- Carries out what was decided on the heads that have room (may; null: the first of
-- them). A job that is denied does not wait any more; one that needs an approval is in no
-- lane, and its row waits for the deadline alone.
create or replace function pgmill.judge(places tid[], may boolean[], first int) returns void
language plpgsql volatile
as $$
declare
  j record;
begin
  for j in
    select w.ctid as place, t.id, t.scope, t.topic, t.trace_id, t.attempt, t.unique_key, t.deadline_at, d.verdict, d.reason, d.policy
      from unnest(places, may) with ordinality as h(place, may, nth)
      join pgmill.job_waiting w on w.ctid = h.place
      join pgmill.job t on t.id = w.job
     cross join lateral pgmill.decide(t) d
     where coalesce(h.may, h.nth <= first) and (d.verdict <> 'allow' or d.policy is not null)
       for update of w skip locked
  loop
    update pgmill.job t
       set verdict = j.verdict, policy = j.policy, updated_at = clock_timestamp(),
           state = case j.verdict when 'deny' then 'DENIED' when 'require_approval' then 'APPROVAL_REQUIRED' else t.state end,
           reason = case when j.verdict = 'allow' then t.reason else coalesce(j.reason, j.verdict) end,
           finished_at = case when j.verdict = 'deny' then clock_timestamp() end
     where t.id = j.id and t.state = 'PENDING' and (j.verdict <> 'allow' or (t.verdict, t.policy) is distinct from (j.verdict, j.policy));
    continue when j.verdict = 'allow' or not found;
    if j.verdict = 'require_approval' then
      update pgmill.job_waiting w set due_at = 'infinity', expires_at = j.deadline_at, reason = 'approval_required', since = clock_timestamp() where w.ctid = j.place;
    else
      delete from pgmill.job_waiting w where w.ctid = j.place;
      insert into pgmill.dead_letter (job, scope, topic, state, reason, attempts, trace_id)
      values (j.id, j.scope, j.topic, 'DENIED', coalesce(j.reason, 'deny'), j.attempt, j.trace_id) on conflict (job) do nothing;
      delete from pgmill.job_unique u where j.unique_key is not null and u.scope = j.scope and u.topic = j.topic and u.key = j.unique_key and u.job = j.id;
    end if;
  end loop;
end $$;
