delete from {schema}.message_chunks m
where exists (select from {schema}.runs r where r.run_id = m.run_id and r.partition = %(partition)s)
   or not exists (select from {schema}.runs r where r.run_id = m.run_id)
