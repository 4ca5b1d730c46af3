select partition, version, cluster_id, topic_id, applied, epoch, replay_from, replay_epoch, inputs
from {schema}.partitions
where partition = %(partition)s
