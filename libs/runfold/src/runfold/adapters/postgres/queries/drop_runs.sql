delete from {schema}.runs where partition = %(partition)s
