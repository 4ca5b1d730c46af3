-- Removes what a set-aside snapshot left behind where the new chunks begin; normally nothing.
delete from {schema}.message_chunks old
using unnest(%(run_ids)s::text[], %(first_indexes)s::integer[]) as written (run_id, first_index)
where old.run_id = written.run_id and old.first_index >= written.first_index
