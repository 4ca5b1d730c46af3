delete from {schema}.leases
where (run_id, step) in (
    select run_id, step
    from {schema}.leases join unnest(%(run_ids)s::text[], %(steps)s::bigint[]) as closed (run_id, step)
        using (run_id, step)
    order by run_id, step
    for update of leases
)
