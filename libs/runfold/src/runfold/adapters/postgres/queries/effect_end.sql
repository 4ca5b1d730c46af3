update {schema}.effects
set outcome = %(outcome)s, result = %(result)s, for_model = %(for_model)s, patch = %(patch)s,
    written_at = clock_timestamp()
where run_id = %(run_id)s and step = %(step)s and attempt = %(attempt)s and outcome is null
  and holder is not distinct from %(holder)s
