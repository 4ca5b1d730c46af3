insert into {schema}.snapshots
    (run_id, seq, "offset", next_offset, next_epoch, fold_version, message_count, state, digest)
values
    (%(run_id)s, %(seq)s, %(offset)s, %(next_offset)s, %(next_epoch)s, %(fold_version)s, %(message_count)s, %(state)s,
     %(digest)s)
on conflict (run_id, seq) do update
set "offset" = excluded."offset", next_offset = excluded.next_offset, next_epoch = excluded.next_epoch,
    fold_version = excluded.fold_version, message_count = excluded.message_count, state = excluded.state,
    digest = excluded.digest
