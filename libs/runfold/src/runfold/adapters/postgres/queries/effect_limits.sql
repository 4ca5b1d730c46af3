-- For this transaction only. lock_timeout bounds the wait for another holder of the key; the idle time-out ends a session
-- whose client is paused; transaction_timeout exists from Postgres 17 on. A commit that is not durable would be believed.
select set_config(wanted.name, wanted.value, true)
from (values
    ('lock_timeout', %(wait)s),
    ('idle_in_transaction_session_timeout', %(hold)s),
    ('transaction_timeout', %(whole)s),
    ('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'on' end)
) as wanted (name, value)
join pg_settings using (name)
where wanted.value is not null
