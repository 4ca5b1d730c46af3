-- Waits for whoever holds the key, as any execution of it does.
insert into {schema}.effects (run_id, step, attempt, outcome, result, for_model, patch)
values (%(run_id)s, %(step)s, %(attempt)s, %(outcome)s, %(result)s, %(for_model)s, %(patch)s)
on conflict (run_id, step) do nothing
