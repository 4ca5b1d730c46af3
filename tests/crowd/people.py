"""Who starts the runs and answers what they wait for: foreign programs that know the topics and the JSON.

They use librdkafka's default partitioner, which is not Java's: most of their records land in another partition than
their run's, and are forwarded. Each decision is chosen by seed and wait, not by timing. An approver answers after a
while, at times twice, at times before anybody has asked. A person says truthfully what the ticket system's own book
says of a call in doubt, and lets a run go on that was interrupted because its process was lost three times.
"""

from __future__ import annotations

import heapq
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Self

import psycopg
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from demo.errors import DemoError
from demo.installation import Installation
from demo.world import World
from tests.crowd import ledger
from tests.crowd.names import AGENT, COLLECTIONS, TRANSACTIONAL
from tests.crowd.script import Script

Json = Any
_PATIENCE_S: Final = 60.0
_TICK_S: Final = 0.05
# The broker is killed on purpose: that it is away is no news. A record that is not acknowledged is told in any case.
_QUIET: Final = {"log_level": 0}
_EARLY, _TWICE, _REJECTED = 0.15, 0.2, 0.1


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast people are.

    Attributes:
        in_flight: Runs that are begun and not ended are kept at this number until ``enough`` is said.
        burst: Most runs started in one tick of 0.05 s.
        approval_s: Shortest and longest time until a gate is answered.
        person_s: The same for a call in doubt, and for an interrupted run.
    """

    in_flight: int = 0
    burst: int = 2
    approval_s: tuple[float, float] = (0.0, 6.0)
    person_s: tuple[float, float] = (0.2, 1.0)


@dataclass(slots=True)
class Told:
    """What people know of the runs, from notifications alone.

    Attributes:
        started: In order.
        ended: Run -> status.
        answers: How often people did what.
    """

    started: list[str] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)

    @property
    def doubts(self) -> int:
        """How often a person was asked what became of a call."""
        return sum(count for answer, count in self.answers.items() if answer.startswith("doubts about"))

    @property
    def in_flight(self) -> int:
        """Runs that nobody has told the end of."""
        return len(self.started) - len(self.ended)


class People:
    """All of them in one thread, while the context is entered.

    Args:
        world: Its book is what a person looks at before saying what became of a call.
    """

    def __init__(self, installation: Installation, world: World, script: Script, pace: Pace) -> None:
        self.told = Told()
        self._installation = installation
        self._world = world
        self._script = script
        self._pace = pace
        self._producer = Producer({"bootstrap.servers": installation.bootstrap, **_QUIET})
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._known: set[str] = set()
        self._is_enough = threading.Event()
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._working = threading.Thread(target=self._guarded, name="people", daemon=True)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._working.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._working.join(_PATIENCE_S)

    def start(self, count: int) -> None:
        """Start so many runs more."""
        for _ in range(count):
            self._start(f"crowd-{len(self.told.started)}")
        if self._producer.flush(_PATIENCE_S):
            raise DemoError("the broker should have acknowledged the foreign producer's records")

    def enough(self) -> None:
        """Start no more runs; what waits is still answered."""
        self._is_enough.set()

    def check(self) -> None:
        """Raise what went wrong in the thread, or with a record that was never acknowledged."""
        if self._failure is not None:
            raise DemoError("the people should be at work") from self._failure

    # --- in the thread ------------------------------------------------------------------------------------------

    def _guarded(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised by `check`, in the thread that asks
            self._failure = error

    def _work(self) -> None:
        topic = f"{self._installation.topics}notifications"
        consumer = Consumer(
            {
                "bootstrap.servers": self._installation.bootstrap,
                "group.id": topic,
                "enable.auto.commit": False,
                **_QUIET,
            }
        )
        try:
            partitions = consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            while not self._is_over.is_set():
                if not self._is_enough.is_set():
                    missing = self._pace.in_flight - self.told.in_flight
                    for _ in range(max(0, min(missing, self._pace.burst))):
                        self._start(f"crowd-{len(self.told.started)}")
                message = consumer.poll(_TICK_S)
                while message is not None:
                    if message.error() is None:
                        self._hear(json.loads(message.value() or b"{}"))
                    message = consumer.poll(0)
                self._do_what_is_due()
                self._producer.poll(0)
            if self._producer.flush(_PATIENCE_S):
                raise DemoError("the broker should have acknowledged the foreign producer's records")
        finally:
            consumer.close()

    def _hear(self, told: Json) -> None:
        if told["id"] in self._known:  # notifications come at least once
            return
        self._known.add(told["id"])
        if told["type"] == "run_ended":
            self.told.ended[told["run_id"]] = told["status"]
        elif told["reason"] == "awaiting_approval":
            self._answer_gate(told)
        elif told["reason"] == "indeterminate":
            self._after(told, self._pace.person_s, lambda: self._resolve(told))
        elif told["reason"] == "error":
            self._after(told, self._pace.person_s, lambda: self._resume(told))

    def _start(self, run_id: str) -> None:
        with self._lock:
            self.told.started.append(run_id)
        self._send("requests", {"type": "run_started", "run_id": run_id, "agent": AGENT, "input": {"task": run_id}})
        gate, chance = self._script.first_gate(run_id), self._chance(f"early {run_id}")
        if gate is not None and chance.random() < _EARLY:
            self.told.answers["early approvals"] += 1
            self._schedule(chance.uniform(0.0, 2.0), lambda: self._approve(run_id, gate, "approved"))

    def _answer_gate(self, told: Json) -> None:
        chance, run_id, gate = self._chance(told["approval_id"]), told["run_id"], told["approval_id"]
        decision = "rejected" if chance.random() < _REJECTED else "approved"
        times = 2 if chance.random() < _TWICE else 1
        self.told.answers["approvals"] += 1
        self.told.answers["approvals given twice"] += times - 1
        for _ in range(times):
            self._schedule(chance.uniform(*self._pace.approval_s), lambda: self._approve(run_id, gate, decision))

    def _approve(self, run_id: str, gate: str, decision: str) -> None:
        value = {"type": "approval", "run_id": run_id, "approval_id": gate, "decision": decision}
        self._send("approvals", {**value, "approved_by": "crowd"})

    def _resolve(self, told: Json) -> None:
        """Look into the book in question, and say what it says, about the attempt that is in doubt."""
        key, tool = f"{told['run_id']}:{told['step']}", told["detail"]["tool"]
        try:
            is_entry = tool == TRANSACTIONAL
            found = ledger.find(self._installation, key) if is_entry else self._world.find(COLLECTIONS[tool], key)
        except psycopg.OperationalError:  # Postgres is away: look again
            self._schedule(self._pace.person_s[1], lambda: self._resolve(told))
            return
        self.told.answers[f"doubts about `{tool}`"] += 1
        said = {"outcome": "result", "result": found[0]} if found else {"outcome": "absent"}
        value = {"type": "resolve", "run_id": told["run_id"], "step": told["step"], "resolved_by": "crowd"}
        self._send("requests", {**value, "attempt": told["detail"]["attempt"], **said})

    def _resume(self, told: Json) -> None:
        self.told.answers["interrupted runs resumed"] += 1
        self._send("requests", {"type": "resume", "run_id": told["run_id"], "requested_by": "crowd"})

    def _send(self, topic: str, value: Json) -> None:
        name = f"{self._installation.topics}{topic}"
        self._producer.produce(name, key=value["run_id"], value=json.dumps(value), on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failure = DemoError(f"a foreign record should have been acknowledged: {error.str()}")

    def _after(self, told: Json, pace: tuple[float, float], act: Callable[[], None]) -> None:
        self._schedule(self._chance(told["id"]).uniform(*pace), act)

    def _schedule(self, delay_s: float, act: Callable[[], None]) -> None:
        with self._lock:
            self._count += 1
            heapq.heappush(self._due, (time.monotonic() + delay_s, self._count, act))

    def _do_what_is_due(self) -> None:
        while True:
            with self._lock:
                if not self._due or self._due[0][0] > time.monotonic():
                    return
                _, _, act = heapq.heappop(self._due)
            act()

    def _chance(self, about: str) -> Random:
        return Random(f"{self._script.seed}:{about}")  # noqa: S311 - decisions of a test, no secrets
