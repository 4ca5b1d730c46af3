"""Runs that step all the time, one in each partition, and what the log says of their owners, partition by partition.

Times are the producers' own (CreateTime): wall-clock milliseconds of the machine that everything runs on.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from demo.installation import Installation
from demo.processes import Services
from demo.watching import await_state
from runfold.codec import log as log_codec
from runfold.core.events import PartitionClaimed
from runfold.core.fence import HEADER, Head, Kind
from runfold.core.partitioning import partition_of

_PATIENCE_S: Final = 30.0
_POLL_S: Final = 0.2
_BATCH: Final = 500
_BEAT_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of the log; ``claimed_by``: the process id of the owner, of a claim only; ``at``: seconds since 1970."""

    at: float
    epoch: int
    kind: Kind
    seq: int
    run_id: str | None
    claimed_by: int | None


class LogWatch:
    """Reads the whole log in a thread, as it grows."""

    def __init__(self, installation: Installation, partitions: int) -> None:
        self.partitions = partitions
        self._topic = f"{installation.topics}log"
        self._bootstrap = installation.bootstrap
        self._lock = threading.Lock()
        self._entries: dict[int, list[Entry]] = defaultdict(list)
        self._error: BaseException | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="log watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(_PATIENCE_S)

    def entries(self, partition: int) -> list[Entry]:
        """Give what stands in a partition so far."""
        if self._error is not None:
            raise self._error
        with self._lock:
            return list(self._entries[partition])

    def claims(self, partition: int) -> int:
        """Count the claims of a partition so far."""
        return sum(entry.claimed_by is not None for entry in self.entries(partition))

    def seq_of(self, run_id: str) -> int:
        """Give the ``seq`` of the last event of a run; -1: it has none yet."""
        seqs = [
            entry.seq for number in range(self.partitions) for entry in self.entries(number) if entry.run_id == run_id
        ]
        return max(seqs, default=-1)

    def owners(self) -> dict[int, int]:
        """Give partition -> process id of the latest claim."""
        found = {}
        for partition in range(self.partitions):
            claims = [entry.claimed_by for entry in self.entries(partition) if entry.claimed_by is not None]
            if claims:
                found[partition] = claims[-1]
        return found

    def of(self, pid: int) -> set[int]:
        """Give the partitions whose latest claim is of a process."""
        return {partition for partition, owner in self.owners().items() if owner == pid}

    def stepping(self, since: float) -> set[int]:
        """Give the partitions that have an event of a run in their latest epoch, produced later than ``since``."""
        found = set()
        for partition in range(self.partitions):
            entries = self.entries(partition)
            epoch = max((entry.epoch for entry in entries), default=-1)
            if any(entry.kind is Kind.EVENT and entry.epoch == epoch and entry.at > since for entry in entries):
                found.add(partition)
        return found

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"watch-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
        )
        try:
            consumer.assign([TopicPartition(self._topic, partition, 0) for partition in range(self.partitions)])
            while not self._is_over.is_set():
                first = consumer.poll(_POLL_S)
                if first is not None:
                    self._note([first, *consumer.consume(_BATCH, 0)])
        except Exception as error:  # noqa: BLE001 - raised to who asks
            self._error = error
        finally:
            consumer.close()

    def _note(self, messages: list[Message]) -> None:
        for message in messages:
            if message.error() is None:
                entry = _entry(message)
                with self._lock:
                    self._entries[message.partition() or 0].append(entry)


def _entry(message: Message) -> Entry:
    headers: dict[str, Any] = dict(message.headers() or [])
    head = Head.decode(headers.get(HEADER))
    key, claimed_by, epoch = message.key(), None, head.epoch
    if head.kind is Kind.CLAIM:
        claim = log_codec.decode(message.value() or b"")
        if isinstance(claim, PartitionClaimed):
            claimed_by, epoch = int(claim.owner.rpartition(":")[2]), message.offset() or 0
    run_id = None if key is None else key.decode()
    return Entry(message.timestamp()[1] / 1000, epoch, head.kind, head.seq, run_id, claimed_by)


def gap(entries: list[Entry], since: float) -> tuple[float, float] | None:
    """Give the times of the last event before, and of the first event behind, the first claim later than ``since``."""
    events = [entry for entry in entries if entry.kind is Kind.EVENT]
    claim = next((entry for entry in entries if entry.claimed_by is not None and entry.at > since), None)
    if claim is None:
        return None
    before = [entry.at for entry in events if entry.epoch < claim.epoch]
    behind = [entry.at for entry in events if entry.epoch >= claim.epoch]
    return (before[-1], behind[0]) if before and behind else None


def longest_pause(entries: list[Entry], since: float, until: float) -> float:
    """Give the longest time between two events in a span, in seconds; the span's own ends count as events."""
    times = [entry.at for entry in entries if entry.kind is Kind.EVENT and since <= entry.at <= until]
    marks = [since, *times, until]
    return max(later - earlier for earlier, later in itertools.pairwise(marks))


def start_runs(installation: Installation, partitions: set[int], count: int, agent: str = "stepper") -> list[str]:
    """Start a run in each of some partitions of ``count``; gives their ids."""
    producer = Producer({"bootstrap.servers": installation.bootstrap, "partitioner": "murmur2_random"})
    run_ids = []
    for partition in sorted(partitions):
        run_id = next(name for name in _names() if partition_of(name, count) == partition)
        run_ids.append(run_id)
        value = json.dumps({"type": "run_started", "run_id": run_id, "agent": agent, "input": "go"})
        producer.produce(f"{installation.topics}requests", key=run_id, value=value)
    if producer.flush(_PATIENCE_S):
        raise TimeoutError("the broker should have acknowledged the starts of the runs")
    return run_ids


def _names() -> Any:  # noqa: ANN401 - an endless iterator of names
    while True:
        yield f"run-{uuid.uuid4().hex[:10]}"


def settle(services: Services, watch: LogWatch, pids: set[int], timeout_s: float = 60.0) -> None:
    """Wait until each of some processes owns its fair share, and every other none."""
    least = watch.partitions // len(pids)

    def ask() -> bool | None:
        owned = {pid: len(watch.of(pid)) for pid in pids}
        return True if sum(owned.values()) == watch.partitions and min(owned.values()) >= least else None

    await_state(services, f"a fair share for each of {len(pids)} executors", ask, timeout_s)


def await_steps(services: Services, watch: LogWatch, since: float, timeout_s: float = 60.0) -> None:
    """Wait until a run steps in every partition, later than ``since``."""
    everywhere = set(range(watch.partitions))
    await_state(
        services,
        "steps in every partition",
        lambda: True if watch.stepping(since) >= everywhere else None,
        timeout_s,
    )


class Metronome:
    """Says how long the machine kept a thread waiting that had next to nothing to do: what no service is to blame for.

    Attributes:
        worst_s: The longest delay so far, in seconds.
    """

    def __init__(self) -> None:
        self.worst_s = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="metronome", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(_PATIENCE_S)

    def _beat(self) -> None:
        before = time.monotonic()
        while not self._is_over.wait(_BEAT_S):
            now = time.monotonic()
            self.worst_s = max(self.worst_s, now - before - _BEAT_S)
            before = now


def wait_until(predicate: Callable[[], bool], services: Services, what: str, timeout_s: float = 60.0) -> None:
    """Wait for a state of the watch."""
    await_state(services, what, lambda: True if predicate() else None, timeout_s)


def now() -> float:
    """Give the time as the log's records have it."""
    return time.time()
