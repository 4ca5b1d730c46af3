delete from {schema}.effects
where run_id = %(run_id)s and step = %(step)s and attempt = %(attempt)s and holder = %(holder)s and outcome is null
