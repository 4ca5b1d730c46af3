-- Waits for whoever holds the key; then no row, if that one has committed.
insert into {schema}.effects (run_id, step, attempt)
values (%(run_id)s, %(step)s, %(attempt)s)
on conflict (run_id, step) do nothing
