insert into {schema}.waits as stored
    (wait_id, run_id, partition, step, seq, reason, opened_at, detail, detail_sha256, detail_size, tool, tool_call_id,
     arguments, arguments_sha256, arguments_size, arguments_digest, expires_at)
values
    (%(wait_id)s, %(run_id)s, %(partition)s, %(step)s, %(seq)s, %(reason)s, %(opened_at)s, %(detail)s,
     %(detail_sha256)s, %(detail_size)s, %(tool)s, %(tool_call_id)s, %(arguments)s, %(arguments_sha256)s,
     %(arguments_size)s, %(arguments_digest)s, %(expires_at)s)
on conflict (wait_id) do update
set step = excluded.step, seq = excluded.seq, reason = excluded.reason,
    opened_at = case when stored.seq = excluded.seq then stored.opened_at else excluded.opened_at end,
    detail = excluded.detail, detail_sha256 = excluded.detail_sha256, detail_size = excluded.detail_size,
    tool = excluded.tool, tool_call_id = excluded.tool_call_id, arguments = excluded.arguments,
    arguments_sha256 = excluded.arguments_sha256, arguments_size = excluded.arguments_size,
    arguments_digest = excluded.arguments_digest, expires_at = excluded.expires_at
