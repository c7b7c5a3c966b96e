-- mill.retention_preview: what would be deleted now, by clean-up and scope, in the rows
-- of the class's own table. Exact if there are at most a thousand old ones, for an
-- organization fifty; else an estimate: as many as the planner thinks there are old ones,
-- times the share of those that may go among some from each part of the time. So a scope
-- costs the same, a millisecond, whatever it has. Of clean-ups for each organization the
-- first twenty that have any rows of the class. Last, class events: what no reader needs
-- any more, which only the archive takes. Volatile, for an explain is.
create or replace function pgmill.preview_retention() returns table (class text, scope text, rows bigint, oldest timestamptz, blocked_by text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  r record;
  p record;
  plan json;
begin
  for r in
    select t.name, t.class, t.keep, d.paused_at is not null as paused,
           exists (select from pgmill.instance_function f join pgmill.instance i on i.kind = 'worker' and i.id = f.instance
                    where f.function = t.name and pgmill.is_live(i.last_seen, i.ttl, i.deregistered_at)) as live,
           c.tbl, c.range, c.kept_by, s.scopes, case when t.scope = 'org:*' then 50 else 1000 end as exact
      from pgmill.retention t
      left join pgmill.schedule d on d.name = t.name
      left join (select distinct on (x.class) x.* from pgmill.cleanup_classes() x order by x.class, x.part desc) c on c.class = t.class
     cross join lateral (select pgmill.some_scopes(t.name, 20) as scopes) s
     order by t.class nulls last, t.name
  loop
    for p in
      select s.scope, v.rows, v.oldest, v.kept, v.of_thousand
        from unnest(r.scopes) with ordinality s(scope, ord)
        left join pgmill.preview_class(r.class, now() - r.keep, r.scopes, r.exact) v on v.scope = s.scope
       order by s.ord
    loop
      preview_retention.class := coalesce(r.class, r.name);
      preview_retention.scope := p.scope;
      preview_retention.rows := case when r.class is not null then coalesce(p.rows, 0) end;
      preview_retention.oldest := p.oldest;
      preview_retention.blocked_by := case when r.paused then 'paused' when not r.live then 'no_live_host' when p.kept then r.kept_by end;
      if p.of_thousand is not null then
        execute format('explain (format json) select from pgmill.%I x where %s', r.tbl, r.range) into plan using now() - r.keep, p.scope;
        preview_retention.rows := greatest(p.rows, p.of_thousand * (plan #>> '{0,Plan,Plan Rows}')::bigint / 1000);
      end if;
      return next;
    end loop;
  end loop;
  return query
  select 'events', 'install', coalesce(b.pos - 1, h.last) - a.upto, (select l.at from pgmill.log l where l.pos > a.upto order by l.pos limit 1), b.what
    from pgmill.archive a
   cross join (select k.last from pgmill.step k order by k.k desc limit 1) h
    left join lateral (select x.pos, x.what from pgmill.archive_needs() x where x.pos <= h.last order by x.pos, x.what limit 1) b on true;
end $$;

-- The scopes that a rule is for; of one for each organization the first that have rows
-- of the class.
create or replace function pgmill.some_scopes(name text, most int) returns text[]
language plpgsql stable
as $$
declare
  scopes text[] := '{}';
  s text := '';
begin
  for i in 1 .. most loop
    s := pgmill.next_scope(name, s);
    exit when s is null;
    scopes := scopes || s;
  end loop;
  return scopes;
end $$;

-- How many rows of a class may go in these scopes, and whether some are kept because they
-- are needed. If more than exact are old, only some were looked at, and of_thousand says
-- how many of a thousand may go.
create or replace function pgmill.preview_class(class text, older timestamptz, scopes text[], exact int)
returns table (scope text, rows bigint, oldest timestamptz, kept boolean, of_thousand bigint)
language plpgsql stable
set enable_seqscan = off
set jit = off
as $$
declare
  parts constant int := 25;
  c record;
begin
  select x.* into c from pgmill.cleanup_classes() x where x.class = preview_class.class order by x.part desc limit 1;
  if not found then
    return;
  end if;
  return query execute format($q$
    with old as materialized (
        select o.scope, f.many, f.first
          from unnest($2) o(scope)
         cross join lateral (select count(*) > $3 as many, min(q.sort) as first from (select %3$s as sort from pgmill.%1$I x where %2$s order by %3$s limit $3 + 1) q) f
    ), looked as materialized (
        select o.scope, o.many, l.due and not l.kept as may, l.due and l.kept as kept, l.at
          from old o
         cross join generate_series(0, case when o.many then $4 - 1 else 0 end) part
         cross join lateral (select %4$s as due, %5$s as kept, %6$s as at
                               from (select x.* from pgmill.%1$I x where %2$s and %3$s >= o.first + part * ($1 - o.first) / $4
                                      order by %3$s limit case when o.many then 2 else $3 end) x) l
         where o.first is not null
    )
    select l.scope, count(*) filter (where l.may), min(l.at) filter (where l.may), bool_or(l.kept),
           case when l.many then 1000 * count(*) filter (where l.may) / count(*) end
      from looked l group by l.scope, l.many $q$,
    c.tbl, replace(c.range, '$2', 'o.scope'), c.sort, c.due, coalesce(c.kept_if, 'false'), c.at)
    using older, scopes, exact, parts;
end $$;
