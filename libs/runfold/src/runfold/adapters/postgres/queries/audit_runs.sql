select run_id, partition, agent, status, step, seq, version, usage, cost_nano_usd, unpriced_calls, unaccounted_calls,
       first_offset, first_epoch, last_offset, started_at, updated_at, parked, output, output_sha256, output_size, error
from {schema}.runs
where partition = %(partition)s
