insert into {schema}.partitions
    (partition, version, cluster_id, topic_id, applied, epoch, replay_from, replay_epoch, inputs, tail_offset,
     tail_digest, input_ids)
values
    (%(partition)s, 1, %(cluster_id)s, %(topic_id)s, %(applied)s, %(epoch)s, %(replay_from)s, %(replay_epoch)s,
     %(inputs)s, %(tail_offset)s, %(tail_digest)s, %(input_ids)s)
on conflict (partition) do nothing
