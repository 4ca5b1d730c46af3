-- Back to the session's own, for the author's statements.
select set_config('lock_timeout', reset_val, true) from pg_settings where name = 'lock_timeout'
