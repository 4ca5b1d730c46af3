select cluster_id, topic_id, applied
from {schema}.partitions
where partition = %(partition)s
