delete from {schema}.snapshots where run_id = any(%(run_ids)s)
