-- Gives a row where the claim is granted: the key is new, is this very claim's, or belongs to an attempt that is known
-- not to have happened.
insert into {schema}.effects as held (run_id, step, attempt, holder)
values (%(run_id)s, %(step)s, %(attempt)s, %(holder)s)
on conflict (run_id, step) do update
set attempt = excluded.attempt, holder = excluded.holder, written_at = clock_timestamp()
where held.outcome is null
  and (
      (held.attempt = excluded.attempt and held.holder is not distinct from excluded.holder)
      or (held.attempt < excluded.attempt and held.attempt <= %(absent_upto)s)
  )
returning attempt
