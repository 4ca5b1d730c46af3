update {schema}.runs
set covered_seq = %(seq)s
where run_id = %(run_id)s and covered_seq < %(seq)s
