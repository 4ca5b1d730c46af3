-- Of rebuilt runs, removes the calls that are not open any more; one that stays keeps its inserted_at.
delete from {schema}.open_calls c
where c.run_id = any(%(rebuilt)s)
  and not exists (
      select from unnest(%(run_ids)s::text[], %(steps)s::bigint[]) as opened (run_id, step)
      where opened.run_id = c.run_id and opened.step = c.step
  )
