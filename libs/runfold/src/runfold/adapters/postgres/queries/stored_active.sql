-- What must be in the memory of whoever takes over a partition; a run without a snapshot is all in the tail of the log.
select run_id, partition, seq, first_offset, first_epoch
from {schema}.runs
where active and partition = %(partition)s
union
select r.run_id, r.partition, r.seq, r.first_offset, r.first_epoch
from {schema}.waits w join {schema}.runs r using (run_id)
where w.partition = %(partition)s and w.reason in ('version_mismatch', 'unknown_agent') and r.covered_seq >= 0
order by run_id
