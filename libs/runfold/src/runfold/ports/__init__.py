"""Ports: what the runtime needs from the world, as Protocols.

Each contract is written once, in the docstring here. One contract suite (``tests/contract``) runs against the
in-memory implementation and the real one. Every ``offset`` in this package is that of a record that exists; where
the offset of the *next* record is meant, the name says ``next`` or ``end``.
"""
