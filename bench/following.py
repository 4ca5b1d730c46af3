"""Events of the log as a reader sees them, with the time at which each came: a moment after it was acknowledged."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Final, Self, cast

from confluent_kafka import Consumer, Message, TopicPartition

from bench.world import PATIENCE_S, World
from runfold.codec import log as log_codec
from runfold.core.events import LogRecordBody, PartitionClaimed

_POLL_S: Final = 0.2
_BATCH: Final = 1000
_TICK_S: Final = 0.2

Came = tuple[float, LogRecordBody]


class Follower:
    """Reads the whole log in a thread, from its beginning on.

    Args:
        world: Whose log.
        wanted: The types of which records are kept; of the others only the number is.
    """

    def __init__(self, world: World, *wanted: type[LogRecordBody]) -> None:
        self._world = world
        self._wanted = wanted
        self._changed = threading.Condition()
        self._first: dict[tuple[str | None, type], Came] = {}
        self._claims: list[Came] = []
        self._counts: Counter[type] = Counter()
        self._bytes: defaultdict[type, int] = defaultdict(int)
        self._error: BaseException | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._read, name="follower", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join(_POLL_S + 10)

    def counts(self) -> Counter[type]:
        """Give how many records of each type there are."""
        with self._changed:
            return Counter(self._counts)

    def sizes(self) -> dict[type, int]:
        """Give how many bytes the records of each type have: key, value and headers."""
        with self._changed:
            return dict(self._bytes)

    def await_first(self, run_id: str, wanted: type[LogRecordBody]) -> Came:
        """Give a run's first event of a type, and when it came, by CLOCK_MONOTONIC."""
        self._await(lambda: (run_id, wanted) in self._first, f"{wanted.__name__} of {run_id}")
        return self._first[run_id, wanted]

    def await_count(self, wanted: type[LogRecordBody], count: int) -> None:
        """Return when there are so many records of a type."""
        self._await(lambda: self._counts[wanted] >= count, f"{count} {wanted.__name__}")

    def await_claim(self, since: float) -> float:
        """Give when the first claim later than ``since`` came."""
        self._await(lambda: bool(self._claims) and self._claims[-1][0] > since, "a claim")
        return next(at for at, _ in self._claims if at > since)

    def _await(self, is_there: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        with self._changed:
            while not is_there():
                self._changed.wait(_TICK_S)
                if self._error is not None:
                    raise self._error
                self._world.services.check()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"expected within {PATIENCE_S:.0f} s: {what}")

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._world.bootstrap,
                "group.id": f"follower-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
            }
        )
        try:
            topic = self._world.topic("log")
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(self._world.partitions)])
            while not self._is_over:
                first = consumer.poll(_POLL_S)
                if first is not None:
                    self._note(time.monotonic(), [first, *consumer.consume(_BATCH, 0)])
        except Exception as error:  # noqa: BLE001 - raised to who waits
            self._error = error
        finally:
            consumer.close()

    def _note(self, now: float, messages: list[Message]) -> None:
        with self._changed:
            for message in messages:
                if message.error() is None:
                    record = log_codec.decode(message.value() or b"")
                    kind = type(record)
                    self._counts[kind] += 1
                    self._bytes[kind] += _size(message)
                    if isinstance(record, PartitionClaimed):
                        self._claims.append((now, record))
                    elif isinstance(record, self._wanted):
                        self._first.setdefault((log_codec.key_of(record), kind), (now, record))
            self._changed.notify_all()


def _size(message: Message) -> int:
    # A consumed message has them as pairs of text and bytes; the types allow what a producer may hand in.
    pairs = cast("list[tuple[str, bytes]]", message.headers() or [])
    headers = sum(len(name) + len(value or b"") for name, value in pairs)
    return len(message.key() or b"") + len(message.value() or b"") + headers
