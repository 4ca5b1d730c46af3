"""Bad inputs on a real installation: each lands in `dead` with its reason, and a good one right behind it is served."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without `as`
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from demo.installation import Installation
from demo.processes import Services
from demo.watching import await_state
from demo.world import Turn, World
from devstack import Stack
from runfold.core.partitioning import partition_of
from tests.acceptance.installing import PARTITIONS, crowd_installation

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

Json = Any
LARGE = 1_020_000
"""Just below what the topics take."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A bad record, and the reason under which it must stand in `dead`; None as key: the run's id."""

    reason: str
    value: bytes
    topic: str = "requests"
    key: bytes | None = b"victim"
    shown: str = ""
    """What the detail must name."""


def _start(run_id: str, **more: Json) -> bytes:
    return json.dumps(
        {"type": "run_started", "run_id": run_id, "agent": "worker", "input": {"task": "x"}} | more
    ).encode()


def _approval(run_id: str, **more: Json) -> bytes:
    fields = {"type": "approval", "run_id": run_id, "approval_id": f"{run_id}:3", "decision": "approved"}
    return json.dumps(fields | {"approved_by": "dana"} | more).encode()


BAD = {
    "no JSON": Bad("not_json", b'{"type": "run_started", "run_id"'),
    "no UTF-8": Bad("not_json", b'{"type": "\xff"}'),
    "empty": Bad("not_json", b""),
    "an array": Bad("not_an_object", b"[]"),
    "no type": Bad("unknown_type", b'{"run_id": "victim"}'),
    "a mistyped type": Bad("unknown_type", b'{"type": "run_start", "run_id": "victim"}', shown="run_start"),
    "an unknown field": Bad("invalid", _start("victim", inputs=1), shown="inputs"),
    "a missing field": Bad("invalid", b'{"type": "run_started", "run_id": "victim", "input": 1}', shown="agent"),
    "a bad run_id": Bad("bad_run_id", _start("a b"), key=b"a b"),
    "a child's run_id": Bad("bad_run_id", _start("a~1"), key=b"a~1"),
    "another key": Bad("wrong_key", _start("victim"), key=b"other"),
    "no key": Bad("wrong_key", _start("victim"), key=None),
    "the wrong topic": Bad("wrong_topic", _start("victim"), topic="approvals"),
    "an approval among requests": Bad("wrong_topic", _approval("victim")),
    "an approval of no run": Bad("unknown_run", _approval("nobody"), topic="approvals", key=b"nobody"),
    "a cancel of no run": Bad("unknown_run", b'{"type": "cancel", "run_id": "nobody", "reason": "x"}', key=b"nobody"),
    "a later type": Bad("unsupported_type", b'{"type": "signal", "run_id": "victim", "name": "x"}'),
    "a used approval": Bad("not_open", _approval("first", approved_by="eve"), topic="approvals", key=b"first"),
    "another run of the same id": Bad("run_exists", _start("first", input={"task": "other"}), key=b"first"),
}


@dataclass(frozen=True, slots=True)
class Buried:
    """All bad inputs, sent, and what became of them."""

    installation: Installation
    dead: list[Json]
    sent: dict[str, tuple[str, int, int]]
    """Name -> topic, partition, offset."""


@pytest.fixture(scope="module")
def buried(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buried]:
    """Send every bad input, a good one behind each partition's last, and wait until all are settled."""
    with World(lambda task, _: Turn(text=f"{task} is done")) as world:
        installation = crowd_installation(stack, tmp_path_factory.mktemp("bad"), world)
        try:
            installation.runfold("setup")
            with Services(installation.environment, installation.folder / "logs") as services:
                parts = [
                    services.start("runfold-step-executor", "executor"),
                    services.start("runfold-snapshot-compactor", "compactor"),
                ]
                services.await_ready(*parts)
                yield _bury(installation, services)
                for service in list(services.running()):
                    services.stop(service)
        finally:
            installation.remove()


def _bury(installation: Installation, services: Services) -> Buried:
    sender = Sender(installation)
    sender.send("requests", b"first", _start("first"))
    await_state(services, "the run `first`", lambda: _completed(installation, {"first"}))
    sent = {name: sender.send(bad.topic, bad.key, bad.value) for name, bad in BAD.items()}
    good = {f"good-{number}" for number in range(8)}
    for run_id in good:
        sender.send("requests", run_id.encode(), _start(run_id))
    await_state(services, "the good runs behind the bad inputs", lambda: _completed(installation, good))

    def ask() -> list[Json] | None:
        dead: list[Json] = installation.read("dead", "list")
        return dead if len(dead) >= len(BAD) else None

    return Buried(installation, await_state(services, f"{len(BAD)} inputs in dead", ask), sent)


class Sender:
    """A plain producer."""

    def __init__(self, installation: Installation) -> None:
        self._topics = installation.topics
        settings = {"bootstrap.servers": installation.bootstrap, "partitioner": "murmur2_random"}
        self._producer = Producer({**settings, "message.max.bytes": 4_000_000})

    def send(self, topic: str, key: bytes | None, value: bytes, partition: int = -1) -> tuple[str, int, int]:
        """Produce a record; gives topic, partition and offset."""
        placed: list[tuple[str, int, int]] = []

        def note(error: object, message: Any) -> None:
            assert error is None, error
            placed.append((message.topic(), message.partition(), message.offset()))

        self._producer.produce(f"{self._topics}{topic}", key=key, value=value, partition=partition, on_delivery=note)
        self._producer.flush(30)
        return placed[0]


def _completed(installation: Installation, runs: set[str]) -> bool | None:
    rows = installation.read("list", "--status", "completed")
    return True if {row["run_id"] for row in rows} >= runs else None


@pytest.mark.parametrize("name", BAD)
def test_a_bad_input_is_dead_with_its_reason(buried: Buried, name: str) -> None:
    """It stands in `dead` once, with reason, place, the original value and a detail that names what is wrong."""
    topic, partition, offset = buried.sent[name]
    found = [d for d in buried.dead if (d["topic"], d["partition"], d["offset"]) == (topic, partition, offset)]
    assert [entry["reason"] for entry in found] == [BAD[name].reason]
    assert BAD[name].shown in found[0]["detail"]


def test_the_original_bytes_are_kept(buried: Buried) -> None:
    """The dead copy has the value and the key of the original."""
    copies = [(record.key, record.value) for record in buried.installation.records("dead")]
    for bad in BAD.values():
        assert (bad.key, bad.value) in copies


def test_nothing_else_is_dead(buried: Buried) -> None:
    """The good inputs, before and behind, are not."""
    assert len(buried.dead) == len(BAD)


def test_a_misplaced_input_is_forwarded(buried: Buried) -> None:
    """In any partition but its own, a start is forwarded and served; the copy names its origin."""
    sender = Sender(buried.installation)
    home = partition_of("astray", PARTITIONS)
    topic, partition, offset = sender.send("requests", b"astray", _start("astray"), partition=(home + 1) % PARTITIONS)
    services = Services({}, buried.installation.folder)
    await_state(services, "the misplaced run", lambda: _completed(buried.installation, {"astray"}))
    started = buried.installation.events("astray")[0]
    assert started["partition"] == home
    assert started["cause"]["id"] == f"{topic}/{partition}/{offset}"
    origins = [dict(record.headers).get("rf-origin") for record in buried.installation.records("control")]
    assert origins.count(f"{topic}/{partition}/{offset}".encode()) == 1


def test_a_large_input_is_served(buried: Buried) -> None:
    """An input near the topic's limit goes to the object store and is read back whole."""
    text = "x" * LARGE
    Sender(buried.installation).send("requests", b"large", _start("large", input={"task": text}))
    services = Services({}, buried.installation.folder)
    await_state(services, "the run with a large input", lambda: _completed(buried.installation, {"large"}))
    assert buried.installation.events("large")[0]["input"] == {"task": text}


@pytest.mark.parametrize("size", [1_100_000, 2_500_000])
def test_an_oversized_input_is_dead(buried: Buried, size: int) -> None:
    """Where an operator lets larger records into the topic, they are dead as `too_large`, and the next is served."""
    installation, run_id = buried.installation, f"behind-{size}"
    topic = f"{installation.topics}requests"
    entry = ConfigEntry("max.message.bytes", "3000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": installation.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)
    sender = Sender(installation)
    placed = sender.send("requests", run_id.encode(), _start(run_id, input={"task": "x" * size}))
    sender.send("requests", run_id.encode(), _start(run_id))
    services = Services({}, installation.folder)
    await_state(services, "the run behind the oversized input", lambda: _completed(installation, {run_id}))

    def reason() -> str | None:
        dead = installation.read("dead", "list")
        found = [row for row in dead if (row["topic"], row["partition"], row["offset"]) == placed]
        return found[0]["reason"] if found else None

    assert await_state(services, "the oversized input in dead", reason) == "too_large"
