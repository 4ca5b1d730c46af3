"""What `runfold rebuild` works on."""

from __future__ import annotations

from dataclasses import dataclass

from runfold.ports.audit import AuditStore
from runfold.ports.clock import Chance, Clock
from runfold.ports.inputs import Inputs
from runfold.ports.log import Log
from runfold.ports.publisher import Publisher
from runfold.ports.topics import Topics


@dataclass(frozen=True, slots=True)
class World:
    """The ports."""

    log: Log
    inputs: Inputs
    store: AuditStore
    topics: Topics
    partitions: int
    publisher: Publisher
    clock: Clock
    chance: Chance
