-- States and chunks go as arrays beside the other columns, not as text among them: they are large.
with kept as (
    insert into {schema}.message_chunks (run_id, first_index, count, data)
    select run_id, first_index, count, data
    from rows from (
        json_to_recordset(%(chunks)s::json) as (run_id text, first_index integer, count integer),
        unnest(%(data)b::bytea[])
    ) as chunk (run_id, first_index, count, data)
), covered as (
    update {schema}.runs r
    set covered_seq = newest.seq
    from (
        select run_id, max(seq) as seq
        from json_to_recordset(%(snapshots)s::json) as snapshot (run_id text, seq bigint)
        group by run_id
    ) as newest
    where r.run_id = newest.run_id and r.covered_seq < newest.seq
)
insert into {schema}.snapshots
    (run_id, seq, "offset", next_offset, next_epoch, fold_version, message_count, state, digest)
select run_id, seq, "offset", next_offset, next_epoch, fold_version, message_count, state, digest
from rows from (
    json_to_recordset(%(snapshots)s::json) as
        (run_id text, seq bigint, "offset" bigint, next_offset bigint, next_epoch bigint, fold_version integer,
         message_count integer, digest text),
    unnest(%(states)b::bytea[])
) as snapshot (run_id, seq, "offset", next_offset, next_epoch, fold_version, message_count, digest, state)
on conflict (run_id, seq) do update
set "offset" = excluded."offset", next_offset = excluded.next_offset, next_epoch = excluded.next_epoch,
    fold_version = excluded.fold_version, message_count = excluded.message_count, state = excluded.state,
    digest = excluded.digest
