-- Which idempotency keys have had their effect. It may stand in the author's own database instead, next to what the
-- tools write: so it refers to no other table, and this file alone makes it there (adapters/postgres/effects.py).
create table if not exists {schema}.effects (
    run_id     text        not null,
    step       bigint      not null,
    attempt    bigint      not null,        -- that executed, claimed or closed it
    holder     text,                        -- of a claim: which execution of the attempt
    outcome    text,                        -- success, failed, retried; null: begun, and nobody knows how it ended
    result     bytea,                       -- JSON, with for_model and patch as in the log
    for_model  bytea,
    patch      bytea,
    written_at timestamptz not null default clock_timestamp(),
    primary key (run_id, step)
);
