select run_id
from {schema}.runs
where partition = %(partition)s and last_offset >= %(offset)s
order by last_offset
limit %(limit)s
