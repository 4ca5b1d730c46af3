select run_id, partition, agent, status, step, seq, version, usage, cost_nano_usd, unpriced_calls, unaccounted_calls,
       first_offset, first_epoch, last_offset, started_at, updated_at, parked, output, output_sha256, output_size, error
from {schema}.runs
where (%(status)s::text is null or status = %(status)s) and (%(agent)s::text is null or agent = %(agent)s)
order by started_at desc, run_id
limit %(limit)s
