select *
from {schema}.open_calls
where partition = %(partition)s
