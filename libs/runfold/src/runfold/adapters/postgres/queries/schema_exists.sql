select from pg_catalog.pg_namespace where nspname = %(schema)s
