delete from {schema}.waits where partition = %(partition)s
