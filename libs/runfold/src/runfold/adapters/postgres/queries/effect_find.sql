select attempt, outcome, result, for_model, patch from {schema}.effects where run_id = %(run_id)s and step = %(step)s
