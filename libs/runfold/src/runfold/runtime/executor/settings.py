"""What an executor is told at its start."""

from __future__ import annotations

from dataclasses import dataclass, field

from runfold.core.policy import GRACE_S, MODEL_TIMEOUT_S
from runfold.ports.log import MAX_RECORD
from runfold.ports.topics import Topics


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """Names and numbers; times in seconds.

    Attributes:
        owner: Who claims, for people: host name and pid.
        partitions: Of every topic.
        freshness_s: An acknowledgement older than this, counted from the produce, proves nothing: half a session.
        drain_s: How long a hand-over waits for what runs.
        evict_every_s: How often runs at rest are taken out of memory.
        look_behind_every_s: How often an owner looks for a claim that landed after its own.
        max_busy_runs: Of one partition; above it, inputs wait in their topics.
        max_stale: How often a request is appended again for want of a fresh acknowledgement.
    """

    owner: str
    partitions: int
    topics: Topics = field(default_factory=Topics)
    freshness_s: float = 5.0
    drain_s: float = 20.0
    grace_s: float = GRACE_S
    model_timeout_s: float = MODEL_TIMEOUT_S
    inline_limit: int = 65_536
    max_record: int = MAX_RECORD
    evict_every_s: float = 1.0
    look_behind_every_s: float = 5.0
    max_busy_runs: int = 20_000
    max_stale: int = 5
