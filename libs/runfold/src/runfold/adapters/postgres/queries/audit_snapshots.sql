-- Without the states' bytes: those are read run by run.
select s.run_id, s.seq, s."offset", s.next_offset, s.next_epoch, s.fold_version, s.message_count, ''::bytea as state,
       s.digest
from {schema}.snapshots s join {schema}.runs r using (run_id)
where r.partition = %(partition)s
