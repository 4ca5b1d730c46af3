select s.run_id
from unnest(%(run_ids)s::text[], %(seqs)s::bigint[]) as asked (run_id, seq)
join {schema}.snapshots s using (run_id, seq)
