select version, name, checksum from {schema}.migrations order by version
