insert into {schema}.migrations (version, name, checksum) values (%(version)s, %(name)s, %(checksum)s)
