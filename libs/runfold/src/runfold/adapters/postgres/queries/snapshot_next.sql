update {schema}.snapshots
set next_offset = %(next_offset)s, next_epoch = %(next_epoch)s
where run_id = %(run_id)s and seq = %(seq)s
