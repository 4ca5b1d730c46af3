delete from {schema}.waits
where wait_id = any(%(wait_ids)s) or run_id = any(%(rebuilt)s)
