insert into {schema}.runs as stored
    (run_id, partition, agent, status, step, seq, version, usage, cost_nano_usd, unpriced_calls, unaccounted_calls,
     first_offset, first_epoch, last_offset, started_at, updated_at, parked, output, output_sha256, output_size, error)
values
    (%(run_id)s, %(partition)s, %(agent)s, %(status)s, %(step)s, %(seq)s, %(version)s, %(usage)s, %(cost_nano_usd)s,
     %(unpriced_calls)s, %(unaccounted_calls)s, %(first_offset)s, %(first_epoch)s, %(last_offset)s, %(started_at)s,
     %(updated_at)s, %(parked)s, %(output)s, %(output_sha256)s, %(output_size)s, %(error)s)
on conflict (run_id) do update
set agent = excluded.agent, status = excluded.status, step = excluded.step, seq = excluded.seq,
    version = excluded.version, usage = excluded.usage, cost_nano_usd = excluded.cost_nano_usd,
    unpriced_calls = excluded.unpriced_calls, unaccounted_calls = excluded.unaccounted_calls,
    last_offset = excluded.last_offset, updated_at = excluded.updated_at, parked = excluded.parked,
    output = excluded.output, output_sha256 = excluded.output_sha256, output_size = excluded.output_size,
    error = excluded.error
where excluded.seq >= stored.seq
