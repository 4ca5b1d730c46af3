insert into {schema}.open_calls as stored
    (run_id, step, partition, agent, tool, tool_call_id, arguments, arguments_sha256, arguments_size, attempt, epoch,
     recovery, timeout_ms, settle_ms, inserted_at)
values
    (%(run_id)s, %(step)s, %(partition)s, %(agent)s, %(tool)s, %(tool_call_id)s, %(arguments)s, %(arguments_sha256)s,
     %(arguments_size)s, %(attempt)s, %(epoch)s, %(recovery)s, %(timeout_ms)s, %(settle_ms)s, clock_timestamp())
on conflict (run_id, step) do update
set tool = excluded.tool, tool_call_id = excluded.tool_call_id, arguments = excluded.arguments,
    arguments_sha256 = excluded.arguments_sha256, arguments_size = excluded.arguments_size,
    attempt = excluded.attempt, epoch = excluded.epoch, recovery = excluded.recovery,
    timeout_ms = excluded.timeout_ms, settle_ms = excluded.settle_ms,
    inserted_at = case when stored.attempt = excluded.attempt then stored.inserted_at else excluded.inserted_at end
