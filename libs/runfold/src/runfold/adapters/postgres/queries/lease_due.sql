-- Of two reconcilers that see the same call, the second waits for the first one's commit and then finds it leased.
with clock as materialized (
    select clock_timestamp() as now
), judged as (
    select c.*, coalesce(l.tries, 0) as tries, l.until, clock.now,
           c.epoch < p.epoch as owner_gone,
           -- A time-out of more than a thousand years is no interval that could be added.
           clock.now > c.inserted_at
               + make_interval(secs => least(c.timeout_ms, 31536000000000) / 1000.0 + %(grace_s)s) as overdue,
           greatest(0, least(c.timeout_ms + c.settle_ms, 31536000000000) / 1000.0 + %(grace_s)s
               - extract(epoch from clock.now - c.inserted_at)) as settles_in_s
    from {schema}.open_calls c
    cross join clock
    join {schema}.partitions p using (partition)
    left join {schema}.leases l on l.run_id = c.run_id and l.step = c.step and l.attempt = c.attempt
    where c.recovery in ('lookup', 'manual')
      -- A run that is held back as a whole could not use a verdict: asking again would only fill the log. One that is
      -- being cancelled uses it, held or not; with a call open, its status says which of the two it is.
      and not exists (
          select from {schema}.waits w
          where w.run_id = c.run_id and w.reason in ('version_mismatch', 'unknown_agent', 'error', 'budget_exceeded')
            and not exists (select from {schema}.runs r where r.run_id = c.run_id and r.status = 'running')
      )
), due as (
    select * from judged
    where (overdue or (owner_gone and recovery = 'lookup')) and (until is null or until <= now)
    order by inserted_at
    limit %(limit)s
), leased as (
    insert into {schema}.leases as held (run_id, step, attempt, holder, until, tries)
    select run_id, step, attempt, %(holder)s, now + make_interval(secs => %(lease_s)s), tries
    from due
    order by run_id, step
    on conflict (run_id, step) do update
    set attempt = excluded.attempt, holder = excluded.holder, until = excluded.until, tries = excluded.tries
    where held.attempt < excluded.attempt or (held.attempt = excluded.attempt and held.until <= clock_timestamp())
    returning run_id, step
)
select due.run_id, due.step, due.partition, due.agent, due.tool, due.tool_call_id, due.arguments,
       due.arguments_sha256, due.arguments_size, due.attempt, due.epoch, due.recovery, due.timeout_ms, due.settle_ms,
       due.owner_gone, due.overdue, due.tries, due.settles_in_s
from due join leased using (run_id, step)
order by due.inserted_at
