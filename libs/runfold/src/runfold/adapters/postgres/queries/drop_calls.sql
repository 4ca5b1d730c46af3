delete from {schema}.open_calls where partition = %(partition)s
