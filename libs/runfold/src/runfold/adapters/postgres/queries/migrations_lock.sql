select pg_advisory_xact_lock(hashtextextended('runfold.migrations.' || %(schema)s, 0))
