-- What every commit writes, as one statement: most commits are nothing else, and cost one round trip.
-- Where another compactor has written the partition's row, or has made it, the division fails and nothing is written.
with given as (
    select * from json_to_record(%(row)s::json) as given
        (partition integer, version bigint, cluster_id text, topic_id text, applied bigint, epoch bigint,
         replay_from bigint, replay_epoch bigint, inputs jsonb, tail_offset bigint, tail_digest text, input_ids jsonb,
         expected_applied bigint)
), moved as (
    update {schema}.partitions p
    set version = p.version + 1, cluster_id = given.cluster_id, topic_id = given.topic_id, applied = given.applied,
        epoch = given.epoch, replay_from = given.replay_from, replay_epoch = given.replay_epoch,
        inputs = given.inputs, tail_offset = given.tail_offset, tail_digest = given.tail_digest,
        input_ids = given.input_ids
    from given
    where p.partition = given.partition and p.version = given.version
      and (given.expected_applied is null or p.applied = given.expected_applied)
    returning p.partition
), made as (
    insert into {schema}.partitions
        (partition, version, cluster_id, topic_id, applied, epoch, replay_from, replay_epoch, inputs, tail_offset,
         tail_digest, input_ids)
    select partition, 1, cluster_id, topic_id, applied, epoch, replay_from, replay_epoch, inputs, tail_offset,
           tail_digest, input_ids
    from given
    where version = 0
    on conflict (partition) do nothing
    returning partition
), told as (
    insert into {schema}.runs as stored
        (run_id, partition, agent, status, step, seq, version, usage, cost_nano_usd, unpriced_calls,
         unaccounted_calls, first_offset, first_epoch, last_offset, started_at, updated_at, parked, output,
         output_sha256, output_size, error)
    select run_id, partition, agent, status, step, seq, version, usage, cost_nano_usd, unpriced_calls,
           unaccounted_calls, first_offset, first_epoch, last_offset, started_at, updated_at, parked, output,
           output_sha256, output_size, error
    from json_to_recordset(%(runs)s::json) as run
        (run_id text, partition integer, agent text, status text, step bigint, seq bigint, version jsonb, usage jsonb,
         cost_nano_usd bigint, unpriced_calls bigint, unaccounted_calls bigint, first_offset bigint,
         first_epoch bigint, last_offset bigint, started_at bigint, updated_at bigint, parked text, output bytea,
         output_sha256 text, output_size bigint, error text)
    on conflict (run_id) do update
    set agent = excluded.agent, status = excluded.status, step = excluded.step, seq = excluded.seq,
        version = excluded.version, usage = excluded.usage, cost_nano_usd = excluded.cost_nano_usd,
        unpriced_calls = excluded.unpriced_calls, unaccounted_calls = excluded.unaccounted_calls,
        last_offset = excluded.last_offset, updated_at = excluded.updated_at, parked = excluded.parked,
        output = excluded.output, output_sha256 = excluded.output_sha256, output_size = excluded.output_size,
        error = excluded.error
    where excluded.seq >= stored.seq
), followed as (
    update {schema}.snapshots s
    set next_offset = event.next_offset, next_epoch = event.next_epoch
    from json_to_recordset(%(next_events)s::json) as event
        (run_id text, seq bigint, next_offset bigint, next_epoch bigint)
    where s.run_id = event.run_id and s.seq = event.seq
), closed as (
    select * from json_to_recordset(%(closed_calls)s::json) as closed (run_id text, step bigint)
), returned as (
    delete from {schema}.open_calls c
    using closed
    where c.run_id = closed.run_id and c.step = closed.step
), unleased as (
    -- In an order, since a reconciler locks several at once.
    delete from {schema}.leases
    where (run_id, step) in (
        select run_id, step
        from {schema}.leases join closed using (run_id, step)
        order by run_id, step
        for update of leases
    )
), opened as (
    insert into {schema}.open_calls as stored
        (run_id, step, partition, agent, tool, tool_call_id, arguments, arguments_sha256, arguments_size, attempt,
         epoch, recovery, timeout_ms, settle_ms, inserted_at)
    select run_id, step, partition, agent, tool, tool_call_id, arguments, arguments_sha256, arguments_size, attempt,
           epoch, recovery, timeout_ms, settle_ms, clock_timestamp()
    from json_to_recordset(%(opened_calls)s::json) as call
        (run_id text, step bigint, partition integer, agent text, tool text, tool_call_id text, arguments bytea,
         arguments_sha256 text, arguments_size bigint, attempt integer, epoch bigint, recovery text,
         timeout_ms bigint, settle_ms bigint)
    on conflict (run_id, step) do update
    set tool = excluded.tool, tool_call_id = excluded.tool_call_id, arguments = excluded.arguments,
        arguments_sha256 = excluded.arguments_sha256, arguments_size = excluded.arguments_size,
        attempt = excluded.attempt, epoch = excluded.epoch, recovery = excluded.recovery,
        timeout_ms = excluded.timeout_ms, settle_ms = excluded.settle_ms,
        inserted_at = case when stored.attempt = excluded.attempt then stored.inserted_at else excluded.inserted_at end
)
select 1 / ((select count(*) from moved) + (select count(*) from made))
