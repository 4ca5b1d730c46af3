insert into {schema}.waits as stored
    (wait_id, run_id, partition, step, seq, reason, opened_at, detail, detail_sha256, detail_size, tool, tool_call_id,
     arguments, arguments_sha256, arguments_size, arguments_digest, expires_at)
select wait_id, run_id, partition, step, seq, reason, opened_at, detail, detail_sha256, detail_size, tool,
       tool_call_id, arguments, arguments_sha256, arguments_size, arguments_digest, expires_at
from json_to_recordset(%(waits)s::json) as wait
    (wait_id text, run_id text, partition integer, step bigint, seq bigint, reason text, opened_at bigint,
     detail bytea, detail_sha256 text, detail_size bigint, tool text, tool_call_id text, arguments bytea,
     arguments_sha256 text, arguments_size bigint, arguments_digest text, expires_at bigint)
on conflict (wait_id) do update
set step = excluded.step, seq = excluded.seq, reason = excluded.reason,
    opened_at = case when stored.seq = excluded.seq then stored.opened_at else excluded.opened_at end,
    detail = excluded.detail, detail_sha256 = excluded.detail_sha256, detail_size = excluded.detail_size,
    tool = excluded.tool, tool_call_id = excluded.tool_call_id, arguments = excluded.arguments,
    arguments_sha256 = excluded.arguments_sha256, arguments_size = excluded.arguments_size,
    arguments_digest = excluded.arguments_digest, expires_at = excluded.expires_at
