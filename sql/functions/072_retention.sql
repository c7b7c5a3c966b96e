-- mill.retention_preview: what would be deleted now, by clean-up and scope. Counted up to
-- a thousand, for an organization a hundred (by the class's index), from there on the
-- planner's estimate, so that a million rows cost milliseconds; of clean-ups for each
-- organization the first twenty that have any rows of the class. Last, class events: what no reader needs any more, which only
-- the archive takes. Volatile, for an explain is.
create or replace function pgmill.preview_retention() returns table (class text, scope text, rows bigint, oldest timestamptz, blocked_by text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  scopes constant int := 20;
  counted int;
  r record;
  c record;
  n bigint;
  since timestamptz;
  kept boolean;
  plan json;
begin
  for r in
    select t.name, t.class, t.scope, t.keep, d.paused_at is not null as paused,
           exists (select from pgmill.instance_function f join pgmill.instance i on i.kind = 'worker' and i.id = f.instance
                    where f.function = t.name and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)) as live
      from pgmill.retention t left join pgmill.schedule d on d.name = t.name
     order by t.class nulls last, t.name
  loop
    preview_retention.scope := '';
    for i in 1 .. scopes loop
      preview_retention.scope := pgmill.next_scope(r.name, preview_retention.scope);
      exit when preview_retention.scope is null;
      counted := case when starts_with(preview_retention.scope, 'org:') then 100 else 1000 end;
      preview_retention.class := coalesce(r.class, r.name);
      preview_retention.rows := case when r.class is not null then 0 end;
      preview_retention.oldest := null;
      preview_retention.blocked_by := case when r.paused then 'paused' when not r.live then 'no_live_host' end;
      for c in select x.* from pgmill.cleanup_classes() x where x.class = r.class order by x.part loop
        execute format('select count(*), min(o) from (select %s as o %s) q', c.at, pgmill.cleanup_source(c.tbl, c.old, c.sort, c.kept_if))
           into n, since using now() - r.keep, preview_retention.scope, counted;
        if n = counted then
          execute 'explain (format json) select ' || pgmill.cleanup_source(c.tbl, c.old, c.sort, c.kept_if) into plan using now() - r.keep, preview_retention.scope, null::bigint;
          n := greatest(n, (plan #>> '{0,Plan,Plan Rows}')::bigint);
        end if;
        preview_retention.rows := preview_retention.rows + n;
        preview_retention.oldest := least(preview_retention.oldest, since);
        if c.kept_if is not null then
          execute format('select exists (select from pgmill.%I x where %s and (%s))', c.tbl, c.old, c.kept_if) into kept using now() - r.keep, preview_retention.scope;
          if kept then
            preview_retention.blocked_by := coalesce(preview_retention.blocked_by, c.kept_by);
          end if;
        end if;
      end loop;
      return next;
    end loop;
  end loop;
  return query
  select 'events', 'install', coalesce(b.pos - 1, h.last) - a.upto, (select l.at from pgmill.log l where l.pos > a.upto order by l.pos limit 1), b.what
    from pgmill.archive a
   cross join (select k.last from pgmill.step k order by k.k desc limit 1) h
    left join lateral (select x.pos, x.what from pgmill.archive_needs() x where x.pos <= h.last order by x.pos, x.what limit 1) b on true;
end $$;
