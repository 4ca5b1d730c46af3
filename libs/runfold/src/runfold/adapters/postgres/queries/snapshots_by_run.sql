select run_id, seq, "offset", next_offset, next_epoch, fold_version, message_count, state, digest
from {schema}.snapshots
where run_id = any(%(run_ids)s)
order by run_id, seq desc
