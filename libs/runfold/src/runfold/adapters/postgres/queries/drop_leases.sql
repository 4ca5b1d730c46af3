delete from {schema}.leases l
using {schema}.open_calls c
where l.run_id = c.run_id and l.step = c.step and c.partition = %(partition)s
