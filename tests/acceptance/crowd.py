"""Many runs at once: what their model says, who starts and approves them, and what must be true of each at its end."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from demo.errors import DemoError
from demo.installation import Installation
from demo.processes import Services
from demo.watching import await_state
from demo.world import Turn, World
from runfold.codec import log as log_codec
from runfold.core.events import (
    Cause,
    InputSettled,
    ModelCallRequested,
    ModelResponded,
    Recovery,
    RunEvent,
    Source,
    ToolCallRequested,
    ToolReturned,
)
from runfold.core.fence import Fence, Head, Judgement
from runfold.core.state import State, Status
from runfold.core.transitions import fold

Json = Any
ROUNDS = 3
STEPS = 6 * ROUNDS + 1
"""A round: a model call that files a ticket; one that files another and publishes, behind a gate."""
_PATIENCE_S = 30.0


def crowd_script(conversation: str, answered: int) -> Turn:
    """Give the model's answer: ROUNDS times a ticket, then a ticket beside a gated publication; then the end."""
    if answered == 2 * ROUNDS:
        return Turn(text=f"{conversation} is done")
    name = f"{conversation}, answer {answered}"
    ticket = ("file_ticket", {"title": name})
    return Turn(calls=[ticket] if answered % 2 == 0 else [ticket, ("publish", {"body": name})])


class Crowd:
    """A foreign producer of runs and approvals, with librdkafka's default partitioner; approves whatever asks."""

    def __init__(self, installation: Installation) -> None:
        self.runs: list[str] = []
        self._installation = installation
        self._producer = Producer({"bootstrap.servers": installation.bootstrap})
        self._is_over = threading.Event()
        self._approving = threading.Thread(target=self._approve, name="approver", daemon=True)

    def __enter__(self) -> Self:
        self._approving.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._approving.join(_PATIENCE_S)

    def start(self, count: int) -> None:
        """Start so many runs more."""
        for _ in range(count):
            run_id = f"crowd-{len(self.runs)}"
            self.runs.append(run_id)
            value = {"type": "run_started", "run_id": run_id, "agent": "worker", "input": {"task": run_id}}
            self._producer.produce(f"{self._installation.topics}requests", key=run_id, value=json.dumps(value))
        if self._producer.flush(_PATIENCE_S):
            raise DemoError("the broker should have acknowledged the foreign producer's records")

    def _approve(self) -> None:
        topic = f"{self._installation.topics}notifications"
        consumer = Consumer(
            {"bootstrap.servers": self._installation.bootstrap, "group.id": topic, "enable.auto.commit": False}
        )
        producer = Producer({"bootstrap.servers": self._installation.bootstrap})
        try:
            partitions = consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            while not self._is_over.is_set():
                message = consumer.poll(0.2)
                if message is None or message.error() is not None:
                    continue
                told = json.loads(message.value() or b"{}")
                if told.get("reason") == "awaiting_approval":
                    approval = {
                        "type": "approval",
                        "run_id": told["run_id"],
                        "approval_id": told["approval_id"],
                        "decision": "approved",
                        "approved_by": "crowd",
                    }
                    approvals = f"{self._installation.topics}approvals"
                    producer.produce(approvals, key=told["run_id"], value=json.dumps(approval))
                    producer.poll(0)
            producer.flush(_PATIENCE_S)
        finally:
            consumer.close()


@dataclass(slots=True)
class Log:
    """The valid records of the whole log, read with a plain consumer and the rule of validity.

    Attributes:
        events: Run -> its valid events in order.
        settled: (topic, partition, offset) of an input -> how many valid records it left.
        void: How many records were void.
    """

    events: dict[str, list[RunEvent]] = field(default_factory=lambda: defaultdict(list))
    settled: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    void: int = 0

    @classmethod
    def read(cls, installation: Installation) -> Self:
        """Read it from its beginning to its present end."""
        read = cls()
        fences: dict[int, Fence] = defaultdict(Fence)
        for record in installation.records("log"):
            head = Head.decode(dict(record.headers).get("rf"))
            body = log_codec.decode(record.value)
            key = None if record.key is None else record.key.decode()
            cause = body.cause if isinstance(body, RunEvent | InputSettled) else None
            judged = fences[record.partition].admit(head, record.offset, key, cause)
            if judged is not Judgement.VALID:
                continue
            if isinstance(body, RunEvent):
                read.events[body.run_id].append(body)
            if isinstance(cause, Cause):
                read.settled[cause.topic, cause.partition, cause.offset] += 1
        read.void = sum(fence.void for fence in fences.values())
        return read

    def disturbances(self) -> dict[str, int]:
        """Count what only happens where something was lost: else a test of kills has shown nothing."""
        events = [event for run in self.events.values() for event in run]
        requests = [event for event in events if isinstance(event, ModelCallRequested | ToolCallRequested)]
        returned = [event for event in events if isinstance(event, ToolReturned)]
        return {
            "void records": self.void,
            "further attempts of model calls": sum(
                event.attempt > 1 for event in requests if isinstance(event, ModelCallRequested)
            ),
            "further attempts of tools": sum(
                event.attempt > 1 for event in requests if isinstance(event, ToolCallRequested)
            ),
            "reconciled results": sum(event.source is Source.RECONCILED for event in returned),
            "runs of several epochs": sum(len({event.epoch for event in run}) > 1 for run in self.events.values()),
        }

    def state(self, run_id: str) -> State:
        """Fold a run."""
        state: State | None = None
        for event in self.events[run_id]:
            state = fold(state, event)  # type: ignore[arg-type]
        assert state is not None
        return state


def await_end(installation: Installation, services: Services, runs: list[str], timeout_s: float) -> list[Json]:
    """Wait until Postgres knows the end of every run; gives the rows of `runfold list`.

    Raises:
        DemoError: They do not end; the message has those that have not, with what they wait for.
    """
    rows: list[Json] = []

    def ask() -> bool | None:
        rows[:] = installation.read("list", "--limit", "1000")
        done = {row["run_id"] for row in rows if row["status"] in {"completed", "failed", "cancelled"}}
        return True if done >= set(runs) else None

    try:
        await_state(services, "the end of every run", ask, timeout_s)
    except DemoError as error:
        left = [(row["run_id"], row["status"], row["step"], row["seq"]) for row in rows if row["status"] != "completed"]
        waits = [(wait["wait_id"], wait["reason"], wait["detail"]) for wait in installation.read("waits")]
        raise DemoError(f"{error}\nnot ended: {left}\nwaits: {waits}\n{services.tails()}") from error
    return rows


def await_settled(installation: Installation, services: Services, timeout_s: float = 60.0) -> Log:
    """Wait until every input has left a record in the log (a late duplicate comes after the runs' end); gives it."""

    def ask() -> Log | None:
        log = Log.read(installation)
        inputs = sum(len(installation.records(topic)) for topic in ("requests", "approvals", "control"))
        return log if log.settled.total() >= inputs else None

    log: Log = await_state(services, "a record in the log for every input", ask, timeout_s)
    return log


def wrongs(installation: Installation, world: World, log: Log, runs: list[str], rows: list[Json]) -> list[str]:
    """Give every violation; nothing if all is as it must be."""
    return [
        *_wrong_runs(log, runs, rows),
        *_wrong_questions(world, log, runs),
        *_wrong_effects(world, log, runs),
        *_wrong_inputs(installation, log),
    ]


def _wrong_runs(log: Log, runs: list[str], rows: list[Json]) -> Iterator[str]:
    """Every run completed, its seq without a hole, and its row is what its events fold to."""
    by_id = {row["run_id"]: row for row in rows}
    for run_id in runs:
        state, row = log.state(run_id), by_id[run_id]
        if [event.seq for event in log.events[run_id]] != list(range(len(log.events[run_id]))):
            yield f"{run_id}: seq has a hole"
        if state.ended is not Status.COMPLETED or row["output"] != f"{run_id} is done":
            yield f"{run_id}: ended as {state.ended} with {row['output']!r}"
        if (row["seq"], row["step"], row["status"]) != (state.seq, state.step, "completed") or state.step != STEPS:
            where = f"seq {row['seq']}, step {row['step']}"
            yield f"{run_id}: its row is {row['status']} at {where}; the log says {state.seq}, {state.step}"


def _wrong_questions(world: World, log: Log, runs: list[str]) -> Iterator[str]:
    """A question repeated has its own durable attempt; a recorded completion is never asked for again."""
    for run_id in runs:
        responded = [event for event in log.events[run_id] if isinstance(event, ModelResponded)]
        attempts = Counter(event.step for event in log.events[run_id] if isinstance(event, ModelCallRequested))
        for answered, event in enumerate(responded):
            asked = [q.at_ms for q in world.questions if (q.conversation, q.answered) == (run_id, answered)]
            if not 1 <= len(asked) <= attempts[event.step]:
                yield f"{run_id} step {event.step}: asked {len(asked)} times in {attempts[event.step]} attempts"
            if max(asked, default=0) > event.at:
                yield f"{run_id} step {event.step}: asked again after its completion was recorded"


def _wrong_effects(world: World, log: Log, runs: list[str]) -> Iterator[str]:
    """Each requested key took effect once, no other did; a LOOKUP call was never posted twice."""
    requests = [event for run in runs for event in log.events[run] if isinstance(event, ToolCallRequested)]
    expected = Counter({event.idempotency_key: 1 for event in requests})
    found = world.effects("tickets") + world.effects("publications")
    if found != expected:
        yield f"effects that differ from one per key: {found - expected} too many, {expected - found} missing"
    posted = Counter(post.key for post in world.posts)
    for event in requests:
        if event.recovery is Recovery.LOOKUP and posted[event.idempotency_key] != 1:
            yield f"{event.idempotency_key} (LOOKUP) was posted {posted[event.idempotency_key]} times"
    returned = Counter(event.tool_call_id for event in _returned(log, runs) if event.is_error)
    if returned:
        yield f"calls that returned an error: {returned}"


def _returned(log: Log, runs: list[str]) -> Iterator[ToolReturned]:
    return (event for run in runs for event in log.events[run] if isinstance(event, ToolReturned))


def _wrong_inputs(installation: Installation, log: Log) -> Iterator[str]:
    """Every record of the input topics left exactly one valid record in the log."""
    for topic in ("requests", "approvals", "control"):
        for record in installation.records(topic):
            count = log.settled[f"{installation.topics}{topic}", record.partition, record.offset]
            if count != 1:
                yield f"input {topic}/{record.partition}/{record.offset} left {count} valid records: {record.value!r}"
