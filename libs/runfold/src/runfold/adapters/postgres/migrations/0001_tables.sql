-- The tables of the first release. All of them can be rebuilt from the log; none of them is the truth.
-- {schema} is the quoted name of the installation's schema.

-- How far the compactor has come with each partition of the log.
create table {schema}.partitions (
    partition    integer primary key,
    version      bigint  not null,          -- raised by every commit: a stale compactor's commit fails on it
    cluster_id   text    not null,
    topic_id     text    not null,
    applied      bigint  not null,          -- offset of the next log record to fold
    epoch        bigint  not null,          -- in force there; -1 before any claim
    replay_from  bigint  not null,          -- first valid event of any run that no snapshot covers
    replay_epoch bigint  not null,          -- in force there
    inputs       jsonb   not null           -- topic: next (lowest offset not settled), above (settled ones above it)
);

-- One row per run: what people ask about.
create table {schema}.runs (
    run_id            text     primary key,
    partition         integer  not null,
    agent             text     not null,
    status            text     not null,
    step              bigint   not null,
    seq               bigint   not null,    -- of the last event folded; never lowered
    version           jsonb    not null,
    usage             jsonb    not null,
    cost_nano_usd     bigint,
    unpriced_calls    bigint   not null,
    unaccounted_calls bigint   not null,
    first_offset      bigint   not null,
    first_epoch       bigint   not null,
    last_offset       bigint   not null,
    started_at        bigint   not null,    -- milliseconds since 1970, by the writers' clocks
    updated_at        bigint   not null,
    parked            text,                 -- why the compactor cannot fold it
    output            bytea,
    output_sha256     text,                 -- set where the output is in the object store
    output_size       bigint,
    error             text,
    covered_seq       bigint   not null default -1,  -- seq of the newest snapshot; -1: none
    -- Has to be in the memory of whoever takes over the partition. A column of its own, since an index over seq itself
    -- would make every update of a run write to it.
    active            boolean  not null generated always as (
        covered_seq >= 0 and (status = 'running' or parked is not null or covered_seq < seq)
    ) stored
);
create index runs_active on {schema}.runs (partition) where active;
create index runs_newest on {schema}.runs (started_at desc, run_id);
create index runs_by_status on {schema}.runs (status, started_at desc, run_id);
create index runs_by_agent on {schema}.runs (agent, started_at desc, run_id);

-- The newest two states of each run, without their transcripts.
create table {schema}.snapshots (
    run_id        text    not null,
    seq           bigint  not null,
    "offset"      bigint  not null,
    next_offset   bigint,                   -- of the run's next valid event, where a replay starts
    next_epoch    bigint,                   -- in force there
    fold_version  integer not null,
    message_count integer not null,
    state         bytea   not null,
    digest        text    not null,
    primary key (run_id, seq)
);

-- Transcript entries [first_index, first_index + count): written once, referred to by every later snapshot.
create table {schema}.message_chunks (
    run_id      text    not null,
    first_index integer not null,
    count       integer not null,
    data        bytea   not null,
    primary key (run_id, first_index)
);

create table {schema}.waits (
    wait_id          text    primary key,
    run_id           text    not null,
    partition        integer not null,
    step             bigint  not null,
    seq              bigint  not null,
    reason           text    not null,
    opened_at        bigint  not null,      -- milliseconds since 1970
    detail           bytea,
    detail_sha256    text,
    detail_size      bigint,
    tool             text,
    tool_call_id     text,
    arguments        bytea,
    arguments_sha256 text,
    arguments_size   bigint,
    arguments_digest text,
    expires_at       bigint
);
create index waits_by_run on {schema}.waits (run_id);
create index waits_oldest on {schema}.waits (opened_at, run_id, seq);
create index waits_held_back on {schema}.waits (partition) where reason in ('version_mismatch', 'unknown_agent');

-- Tool calls that were requested and have not returned.
create table {schema}.open_calls (
    run_id           text        not null,
    step             bigint      not null,
    partition        integer     not null,
    agent            text        not null,
    tool             text        not null,
    tool_call_id     text        not null,
    arguments        bytea,
    arguments_sha256 text,
    arguments_size   bigint,
    attempt          integer     not null,
    epoch            bigint      not null,
    recovery         text        not null,
    timeout_ms       bigint      not null,
    inserted_at      timestamptz not null,  -- of this attempt, by this server's clock
    primary key (run_id, step)
);
create index open_calls_dangling on {schema}.open_calls (inserted_at) where recovery in ('lookup', 'manual');

-- Which reconciler looks at which open call: a table of its own, so that no lookup holds a lock the compactor needs.
create table {schema}.leases (
    run_id  text        not null,
    step    bigint      not null,
    attempt integer     not null,
    holder  text        not null,
    until   timestamptz not null,           -- nobody else looks at this attempt before
    tries   integer     not null,
    primary key (run_id, step)
);
