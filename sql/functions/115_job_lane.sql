-- A lane that nobody has used for an hour is removed, so that a scope that came once does
-- not keep its lanes for ever. What must not happen: somebody saw the lane open, puts a
-- job into it and commits when it is gone, and the job waits where nobody looks. Hence
-- three visits, each a transaction of its own under admission's lock:
--   1. closes it: its newest row has mark -1. From then on pgmill.open_lane opens it again.
--   2. finds it closed, so that whoever starts now does, too, and notes its own number
--      (mark -2, mark_xid): all who may have seen the lane open have lower ones.
--   3. when no transaction below mark_xid is left, and nothing waits: deletes its rows.
-- Admission does not care: it reads a closed lane as any other. Whoever opens it again
-- does so far above (see pgmill.open_lane), so a row of somebody's open transaction is
-- in nobody's way, and stays when the rows below it go.

-- One visit to some lanes, at most a hundred; answers how many are gone. Looks at ten
-- pages of the table, others each time. Must be the first in its transaction: a number
-- from before the visit would be too low a mark_xid.
create or replace function pgmill.remove_lanes(idle interval default '1 hour') returns int
language plpgsql volatile
set enable_seqscan = off
as $$
declare
  pages constant float8 := pg_relation_size('pgmill.lane') / 8192.0;
  old pgmill.lane[];
  l pgmill.lane;
  is_empty boolean;
  gone int := 0;
begin
  old := array(select s from (select x as s from pgmill.lane x tablesample system (least(100, 1000 / greatest(pages, 1)))
                                where x.at < now() - idle or x.mark < 0 limit 1000) y
                 where not exists (select from pgmill.lane z where (z.topic, z.priority, z.demand, z.scope) = ((y.s).topic, (y.s).priority, (y.s).demand, (y.s).scope) and z.n > (y.s).n)
                 limit 100);
  if old = '{}' or pg_current_xact_id_if_assigned() is not null or not pg_try_advisory_xact_lock(hashtextextended('pgmill.admit', 0)) then
    return 0;
  end if;
  for l in
    select n.* from unnest(old) x
     cross join lateral (select y.* from pgmill.lane y where y.topic = x.topic and y.priority = x.priority and y.demand = x.demand and y.scope = x.scope order by y.n desc limit 1) n
     where n.mark < 0 or n.at < now() - idle
  loop
    is_empty := not exists (select from pgmill.job_waiting w where w.topic = l.topic and w.priority = l.priority and w.demand = l.demand and w.scope = l.scope and w.due_at is null);
    if l.mark = -2 and is_empty then
      if pg_snapshot_xmin(pg_current_snapshot()) >= l.mark_xid then
        delete from pgmill.lane x where x.topic = l.topic and x.priority = l.priority and x.demand = l.demand and x.scope = l.scope and x.n <= l.n;
        gone := gone + 1;
      end if;
    elsif l.mark < 0 or is_empty then
      insert into pgmill.lane (topic, priority, demand, scope, n, vt, low, mark, mark_xid)
      values (l.topic, l.priority, l.demand, l.scope, l.n + 1, l.vt, l.low, case when not is_empty then 0 when l.mark = -1 then -2 else -1 end, pg_current_xact_id());
    end if;
  end loop;
  return gone;
end $$;
