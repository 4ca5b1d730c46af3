"""A wait is written down three times: as the event that opens it, in the state, and as a row for people."""

from __future__ import annotations

from dataclasses import fields

from runfold.core.events import Interrupted
from runfold.core.state import Wait
from runfold.ports.store import WaitRow


def test_what_a_wait_is_said_to_be_is_the_same_in_the_event_the_state_and_the_row() -> None:
    """Every field of the state's ``Wait`` has its twin, of the same type, in the other two.

    They are not one class: the event's fields are its Avro schema, flat and frozen with its release, and a row is flat
    too. So it is here that a field added to one of them is missed in another.
    """
    wait = {field.name: field.type for field in fields(Wait)}
    for twin, own in ((Interrupted, {"sequential"}), (WaitRow, {"run_id", "partition", "opened_at"})):
        known = {field.name: field.type for field in fields(twin)}
        envelope = {"run_id", "seq", "epoch", "at", "cause"} if twin is Interrupted else set()
        assert {name: known.get(name) for name in wait} == wait, twin
        assert set(known) - set(wait) == (own | envelope) - set(wait), twin
