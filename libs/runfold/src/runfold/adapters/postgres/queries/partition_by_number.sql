select partition, version, cluster_id, topic_id, applied, epoch, replay_from, replay_epoch, inputs, tail_offset, tail_digest,
       input_ids
from {schema}.partitions
where partition = %(partition)s
