"""Codec: from the core's values to bytes and back. Avro for the log and the snapshots, JSON for everything else.

* ``log``            records of the log: ``encode``, ``decode``, ``check_head``
* ``snapshots``      a state, and its transcript in chunks
* ``input_types``    what an input asks for, as plain data
* ``inputs``         reads and writes their JSON, by the models of ``input_models`` (both need pydantic)
* ``strict_json``    JSON that a stranger wrote
* ``origin``         where a forwarded input came from
* ``events_json``    an event as the contract shows it
* ``notifications``  what the outside is told
* ``avro``, ``shapes``, ``oldest`` serve the first two; ``compiled`` and ``source`` make them fast
"""
