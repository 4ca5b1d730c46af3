"""What the outside is told, and the copies of dead inputs: published and acknowledged before the commit.

After a crash in between they are published again: at least once, a notification with the same ``id``, a dead input
with the same ``topic``, ``partition`` and ``offset``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import structlog

from runfold.codec.events_json import json_value, shown
from runfold.codec.notifications import notification
from runfold.core.events import (
    Event,
    InputSettled,
    Interrupted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    Settlement,
)
from runfold.core.payload import BlobRef, Payload, canonical_json
from runfold.core.state import State
from runfold.core.text import clip
from runfold.ports.blobs import BlobMissing, Blobs
from runfold.ports.inputs import InputRecord, Inputs
from runfold.ports.log import LogUnrecoverable, RecordTooLarge
from runfold.ports.publisher import Publisher
from runfold.runtime.restore import Applied

_TOLD = (Interrupted, RunCompleted, RunFailed, RunCancelled)

_log = structlog.get_logger(__name__)

# A larger payload stays in the object store and is shown as where it lies: a notification has to fit into a record,
# and shows an approval's arguments twice.
SHOWN_LIMIT = 131_072
# What is still shown of a notification that did not fit.
_SPARE_LIMIT = 4096
_DETAIL_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class Sent:
    """How many records of each kind were acknowledged."""

    notifications: int
    dead: int


@dataclass(frozen=True, slots=True)
class Outbox:
    """Publishes what a batch of valid records causes."""

    publisher: Publisher
    inputs: Inputs
    blobs: Blobs
    notifications_topic: str
    dead_topic: str

    async def publish(self, items: Iterable[Applied]) -> Sent:
        """Publish everything that these records cause, and wait for every acknowledgement.

        Raises:
            PublishFailed, BlobsUnavailable: Nothing may be committed: start again from a fresh read.
        """
        told, dead = [], []
        for item in items:
            record = item.record
            if isinstance(record, InputSettled):
                if record.outcome is Settlement.DEAD:
                    dead.append(self._bury(record))
            elif (
                isinstance(record, _TOLD)
                and item.loaded is not None
                and item.loaded.state is not None
                and record.seq <= item.loaded.state.seq  # not behind the event at which its run was parked
            ):
                told.append(self._tell(record, item.loaded.state))
        # All of them come to an end before the first failure is raised: none is left running.
        for outcome in await asyncio.gather(*told, *dead, return_exceptions=True):
            if outcome is not None:
                raise outcome
        return Sent(len(told), len(dead))

    async def _tell(self, event: Event, state: State) -> None:
        known = await self._read(_payloads(event))

        def value_of(payload: Payload) -> Any:  # noqa: ANN401 - any JSON value
            data = known.get(payload.digest) if isinstance(payload, BlobRef) else None
            return shown(payload) if data is None else json_value(data)

        def spared(payload: Payload) -> Any:  # noqa: ANN401 - any JSON value
            if isinstance(payload, BlobRef) or payload.size <= _SPARE_LIMIT:
                return shown(payload)
            return {"$omitted": payload.digest, "size": payload.size}

        key = event.run_id.encode()
        try:
            await self.publisher.publish(self.notifications_topic, key, notification(event, state.agent, value_of))
        except RecordTooLarge as error:
            _log.warning("notification_shortened", run_id=event.run_id, seq=event.seq, error=str(error))
            short = _shortened(notification(event, state.agent, spared))
            await self.publisher.publish(self.notifications_topic, key, short)

    async def _read(self, payloads: Iterable[Payload | None]) -> dict[str, bytes]:
        """Read those that lie in the object store and are small enough to show."""
        known = {}
        for payload in payloads:
            if isinstance(payload, BlobRef) and payload.size <= SHOWN_LIMIT:
                try:
                    known[payload.sha256] = await self.blobs.get(payload)
                except BlobMissing as error:
                    # Whoever needs it to go on stops the run; a notification shows where it should be.
                    _log.error("blob_missing", sha256=payload.sha256, error=str(error))
        return known

    async def _bury(self, settled: InputSettled) -> None:
        cause = settled.cause
        original, lost = await self._fetch(settled)
        ours = {
            "reason": settled.reason or "",
            "topic": cause.topic,
            "partition": str(cause.partition),
            "offset": str(cause.offset),
            "detail": (settled.detail or "")[:_DETAIL_LIMIT],
        }
        if lost is not None:
            ours["original"] = lost
        kept = () if original is None else tuple(item for item in original.headers if item[0] not in ours)
        run_id = None if settled.run_id is None else settled.run_id.encode()
        key, value = (run_id, None) if original is None else (original.key, original.value)
        try:
            await self.publisher.publish(
                self.dead_topic, key, value, headers=kept + _encoded(ours), partition=cause.partition
            )
        except RecordTooLarge as error:
            _log.warning("dead_input_shortened", topic=cause.topic, offset=cause.offset, error=str(error))
            ours["original"] = f"left where it is: {error}"
            await self.publisher.publish(
                self.dead_topic, run_id, None, headers=_encoded(ours), partition=cause.partition
            )

    async def _fetch(self, settled: InputSettled) -> tuple[InputRecord | None, str | None]:
        """Give the original, or None and why it cannot be had."""
        cause = settled.cause
        try:
            original = await self.inputs.fetch(cause.topic, cause.partition, cause.offset)
        except LogUnrecoverable as error:
            _log.error("dead_original_missing", topic=cause.topic, offset=cause.offset, error=str(error))
            return None, f"missing: {error}"
        return original, None if original is not None else "deleted by retention before it could be copied"


def _shortened(document: bytes | None) -> bytes | None:
    """Clip every text of a JSON document: what somebody else wrote must not stop a partition's compaction."""
    return None if document is None else canonical_json(_clipped(json.loads(document)))


def _clipped(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    match value:
        case str():
            return clip(value)
        case list():
            return [_clipped(item) for item in value]
        case dict():
            return {key: _clipped(item) for key, item in value.items()}
        case _:
            return value


def _encoded(headers: dict[str, str]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, text.encode()) for name, text in headers.items())


def _payloads(event: Event) -> tuple[Payload | None, ...]:
    match event:
        case Interrupted():
            return (event.detail, event.arguments)
        case RunCompleted():
            return (event.output,)
        case _:
            return ()
