select run_id, partition, seq, first_offset, first_epoch
from {schema}.runs
where run_id = any(%(run_ids)s)
