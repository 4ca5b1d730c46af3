-- Keeps the newest two of each run.
delete from {schema}.snapshots old
using unnest(%(run_ids)s::text[]) as written (run_id)
where old.run_id = written.run_id
  and old.seq < (
      select kept.seq from {schema}.snapshots kept
      where kept.run_id = written.run_id
      order by kept.seq desc
      offset 1 limit 1
  )
