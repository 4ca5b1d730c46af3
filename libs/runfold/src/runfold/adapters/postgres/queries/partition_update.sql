update {schema}.partitions
set version = version + 1, cluster_id = %(cluster_id)s, topic_id = %(topic_id)s, applied = %(applied)s,
    epoch = %(epoch)s, replay_from = %(replay_from)s, replay_epoch = %(replay_epoch)s, inputs = %(inputs)s
where partition = %(partition)s and version = %(version)s
