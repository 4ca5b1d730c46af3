-- Those of the partition's runs, and what no run belongs to any more.
delete from {schema}.snapshots s
where exists (select from {schema}.runs r where r.run_id = s.run_id and r.partition = %(partition)s)
   or not exists (select from {schema}.runs r where r.run_id = s.run_id)
