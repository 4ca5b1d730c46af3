select run_id, first_index, count, data
from {schema}.message_chunks
where run_id = any(%(run_ids)s)
order by run_id, first_index
