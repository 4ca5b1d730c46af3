select 1 from pg_catalog.pg_tables where schemaname = %(schema)s and tablename = 'effects'
