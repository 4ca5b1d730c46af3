-- How long after a call has ended its lookup may still miss it. The default serves a compactor of the release before.
alter table {schema}.open_calls add column settle_ms bigint not null default 0;
