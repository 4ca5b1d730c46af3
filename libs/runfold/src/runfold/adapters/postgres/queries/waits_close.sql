-- Closes waits, and of rebuilt runs those that are not open any more; one that stays keeps its opened_at.
delete from {schema}.waits
where wait_id = any(%(closed)s)
   or (run_id = any(%(rebuilt)s) and wait_id <> all(%(opened)s))
