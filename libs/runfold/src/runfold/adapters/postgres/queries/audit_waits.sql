select wait_id, run_id, partition, step, seq, reason, opened_at, detail, detail_sha256, detail_size, tool, tool_call_id,
       arguments, arguments_sha256, arguments_size, arguments_digest, expires_at
from {schema}.waits
where partition = %(partition)s
