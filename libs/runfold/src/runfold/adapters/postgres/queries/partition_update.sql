update {schema}.partitions
set version = version + 1, cluster_id = %(cluster_id)s, topic_id = %(topic_id)s, applied = %(applied)s,
    epoch = %(epoch)s, replay_from = %(replay_from)s, replay_epoch = %(replay_epoch)s, inputs = %(inputs)s,
    tail_offset = %(tail_offset)s, tail_digest = %(tail_digest)s, input_ids = %(input_ids)s
where partition = %(partition)s and version = %(version)s
  and (%(expected_applied)s::bigint is null or applied = %(expected_applied)s)
