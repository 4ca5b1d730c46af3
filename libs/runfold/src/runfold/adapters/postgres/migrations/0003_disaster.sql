-- What tells a log, and input topics, from others that look like them.

alter table {schema}.partitions
    add column tail_offset bigint,                          -- of the last record folded; null: not known
    add column tail_digest text,                            -- its digest
    add column input_ids   jsonb not null default '{{}}';   -- input topic: its id, as far as known
