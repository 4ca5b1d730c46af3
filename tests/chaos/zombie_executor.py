"""A step executor that stops itself with a real SIGSTOP, once, at the point that ZOMBIE_POINT names.

The service's own wiring and the crowd's own app; only two things are put in the place of others before it starts: the
log, which sees every append and its acknowledgement, and the client of the ticket system, which sees every effect.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final
from unittest.mock import patch

import runfold_step_executor.__main__ as service
from demo import outside
from demo.outside import Outside
from demo.world import ATTEMPT_HEADER, PID_HEADER
from runfold.adapters.kafka.log import KafkaLog
from runfold.codec import log as log_codec
from runfold.core.events import RunEvent, ToolCallRequested, ToolReturned
from runfold.ports.log import OnAck
from tests.chaos.zombies import POINT_VARIABLE, TOOLS, Point, collection_of, point_of

_TELL_S: Final = 10.0


def fall_asleep() -> None:
    """Stop; returns when somebody sends SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)


class Gate:
    """Holds back what passes in a partition from the point on, until every run has come to it; then the process stops.

    When it wakes, all that was held goes on, in its order.
    """

    def __init__(self) -> None:
        self._is_open = False
        self._arrived: set[int] = set()
        self._held: list[Callable[[], None]] = []

    def let(self, partition: int, go: Callable[[], None], *, is_point: bool) -> None:
        """Do it, now or later."""
        if is_point and not self._is_open:
            self._arrived.add(partition)
        if self._is_open or partition not in self._arrived:
            go()
            return
        self._held.append(go)
        if len(self._arrived) == len(TOOLS):
            self._is_open = True
            fall_asleep()
            for held in self._held:
                held()


class SleepyLog(KafkaLog):
    """Stops at an append, or between an acknowledgement and its being heard."""

    gate: Final = Gate()

    def append(self, partition: int, key: str | None, head: bytes, value: bytes, on_ack: OnAck) -> None:
        """See ``KafkaLog``."""
        body = log_codec.decode(value)
        point = point_of(body.run_id) if isinstance(body, RunEvent) else None
        own = Point(os.environ[POINT_VARIABLE])
        is_request, is_outcome = isinstance(body, ToolCallRequested), isinstance(body, ToolReturned)
        is_append = point is own and (
            (own is Point.BEFORE_REQUEST and is_request) or (own is Point.BEFORE_OUTCOME and is_outcome)
        )
        is_ack = point is own is Point.BEFORE_EFFECT and is_request

        def heard(result: Any) -> None:
            self.gate.let(partition, lambda: on_ack(result), is_point=is_ack)

        acknowledged = heard if own is Point.BEFORE_EFFECT else on_ack
        if own is Point.BEFORE_EFFECT:
            super().append(partition, key, head, value, acknowledged)
        else:
            append = super().append
            self.gate.let(partition, lambda: append(partition, key, head, value, on_ack), is_point=is_append)


class SleepyOutside(Outside):
    """Stops in the effect: LOOKUP and MANUAL behind it, KEYED right before it, which it then has when it wakes."""

    others_are_done: Final = asyncio.Event()
    is_awake: Final = asyncio.Event()
    done: Final[set[str]] = set()

    async def post(self, collection: str, key: str, body: Mapping[str, Any], attempt: int = 0) -> Any:
        """See ``Outside``."""
        run_id = key.rpartition(":")[0]
        if point_of(run_id) is not Point.IN_EFFECT or Point(os.environ[POINT_VARIABLE]) is not Point.IN_EFFECT:
            return await super().post(collection, key, body, attempt)
        if collection == collection_of(TOOLS[0]):
            await self.others_are_done.wait()
            fall_asleep()
            self.is_awake.set()
            return self._post_at_once(collection, key, body, attempt)
        made = await super().post(collection, key, body, attempt)
        self.done.add(collection)
        if len(self.done) == len(TOOLS) - 1:
            self.others_are_done.set()
        # What they return must not be appended before the process stops.
        await self.is_awake.wait()
        return made

    def _post_at_once(self, collection: str, key: str, body: Mapping[str, Any], attempt: int) -> Any:
        """Send without giving the event loop a chance to find out that time has passed."""
        headers = {"Idempotency-Key": key, PID_HEADER: str(os.getpid()), ATTEMPT_HEADER: str(attempt)}
        url = f"{os.environ[outside.URL_VARIABLE]}/{collection}"
        request = urllib.request.Request(url, json.dumps(dict(body)).encode(), headers)  # noqa: S310 - the test's world
        with urllib.request.urlopen(request, timeout=_TELL_S) as answer:  # noqa: S310 - the same
            return json.loads(answer.read())


def main() -> int:
    """Run the service."""
    with patch.object(service, "KafkaLog", SleepyLog), patch.object(outside, "Outside", SleepyOutside):
        return service.main()


if __name__ == "__main__":
    sys.exit(main())
