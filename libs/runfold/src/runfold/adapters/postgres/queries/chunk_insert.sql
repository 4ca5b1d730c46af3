insert into {schema}.message_chunks (run_id, first_index, count, data)
values (%(run_id)s, %(first_index)s, %(count)s, %(data)s)
