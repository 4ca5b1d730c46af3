update {schema}.leases
set until = clock_timestamp() + make_interval(secs => %(delay_s)s), tries = %(tries)s
where run_id = %(run_id)s and step = %(step)s and attempt = %(attempt)s and holder = %(holder)s
