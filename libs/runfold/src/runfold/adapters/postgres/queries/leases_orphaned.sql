-- Leases whose call was closed while they were being taken.
delete from {schema}.leases
where (run_id, step) in (
    select l.run_id, l.step
    from {schema}.leases l
    where not exists (select from {schema}.open_calls c where c.run_id = l.run_id and c.step = l.step)
    for update skip locked
)
