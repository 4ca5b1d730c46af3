delete from {schema}.open_calls c
using unnest(%(run_ids)s::text[], %(steps)s::bigint[]) as closed (run_id, step)
where c.run_id = closed.run_id and c.step = closed.step
