"""Takes a partition's inputs one after the other: forwards the misplaced, settles the unreadable, hands on the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from runfold.codec.input_types import BadInput, Input
from runfold.codec.inputs import kind_of, parse_input
from runfold.codec.origin import ORIGIN_HEADER, BadOrigin, format_origin, parse_origin
from runfold.core.events import Cause, Settlement
from runfold.core.partitioning import partition_of
from runfold.ports.inputs import InputReader, InputRecord
from runfold.ports.log import RecordTooLarge
from runfold.ports.publisher import PublishFailed
from runfold.runtime.executor.drivers import Drivers
from runfold.runtime.executor.mailbox import Arrived
from runfold.runtime.executor.tenure import Tenure
from runfold.runtime.persist import persist

_log = structlog.get_logger(__name__)
_BATCH = 500
_ROOM_POLL_S = 0.05


async def take_inputs(tenure: Tenure, drivers: Drivers, reader: InputReader) -> None:
    """Read on and on; ends with its epoch, so that a decision of one is never appended in another.

    Raises:
        EpochOver: See there.
    """
    known: dict[str, tuple[int, int]] = {}
    expected = {topic: tenure.positions.of(topic).next for topic in tenure.world.settings.topics.inputs}
    while True:
        await _wait_for_room(tenure, drivers)
        known = await _settle_deleted(tenure, reader.skipped, known)
        records = await reader.next(_BATCH)
        # Before the gap that they leave is taken for one where nothing ever was.
        known = await _settle_deleted(tenure, reader.skipped, known)
        for record in records:
            await _settle_gap(tenure, record.topic, expected[record.topic], record.offset)
            expected[record.topic] = record.offset + 1
            if not tenure.positions.is_settled(record.topic, record.offset):
                await _take(tenure, drivers, record)


async def _settle_gap(tenure: Tenure, topic: str, start: int, end: int) -> None:
    """What a reader has passed between two records of a topic it will never give: nobody must wait for it.

    A foreign producer's transaction leaves them: its markers take offsets, and what it aborted is no input. Without a
    record in the log the position would stand there for ever, with every later input in the set above it.
    """
    passed = [offset for offset in range(start, end) if not tenure.positions.is_settled(topic, offset)]
    if not passed:
        return
    _log.info("offsets_without_input", partition=tenure.partition, topic=topic, count=len(passed), first=passed[0])
    reason = ("no_input", "a transaction's marker, or what it has aborted")
    await _settle_each(tenure, topic, passed, Settlement.STALE, reason)


async def _settle_each(
    tenure: Tenure, topic: str, offsets: Sequence[int], outcome: Settlement, reason: tuple[str, str]
) -> None:
    for index in range(0, len(offsets), _BATCH):
        causes = [Cause(topic, tenure.partition, offset) for offset in offsets[index : index + _BATCH]]
        await tenure.settle(*(tenure.settled(cause, outcome, None, reason) for cause in causes))


async def _settle_deleted(
    tenure: Tenure, skipped: Mapping[str, tuple[int, int]], known: dict[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """Retention has deleted inputs that nobody had read: they are lost, which is said loudly, one record for each.

    Args:
        known: What was settled already; ``skipped`` is given back, to be handed in the next time.
    """
    if skipped == known:
        return known
    why = ("deleted", "retention deleted it before it was read: send it again, and keep inputs for longer")
    for topic, (start, end) in skipped.items():
        unread = [offset for offset in range(start, end) if not tenure.positions.is_settled(topic, offset)]
        if not unread:
            continue
        _log.error("inputs_deleted_unread", partition=tenure.partition, topic=topic, count=len(unread), first=unread[0])
        await _settle_each(tenure, topic, unread, Settlement.DEAD, why)
    return dict(skipped)


async def _wait_for_room(tenure: Tenure, drivers: Drivers) -> None:
    """Take no new input while too many runs are being driven: the topic keeps it better than memory does."""
    limit = tenure.world.settings.max_busy_runs
    while len(drivers) > limit and drivers.busy > limit:  # noqa: ASYNC110 - many make room
        await asyncio.sleep(_ROOM_POLL_S)


async def _take(tenure: Tenure, drivers: Drivers, record: InputRecord) -> None:
    cause = Cause(record.topic, record.partition, record.offset)
    try:
        origin = _origin(tenure, record)
        cause = replace(cause, id=None if origin is None else origin.id)
        parsed = parse_input(kind_of(record.topic if origin is None else origin.topic), record.key, record.value)
    except BadInput as error:
        settled = tenure.settled(cause, Settlement.DEAD, error.run_id, (error.reason, error.detail))
        _log.info(
            "input_dead", partition=tenure.partition, topic=record.topic, offset=record.offset, reason=error.reason
        )
        await tenure.settle(settled)
        return
    if partition_of(parsed.run_id, tenure.world.settings.partitions) != tenure.partition:
        await _forward(tenure, record, parsed, cause)
        return
    cause = replace(cause, id=parsed.id or cause.id)
    drivers.deliver(parsed.run_id, Arrived(cause, parsed))


def _origin(tenure: Tenure, record: InputRecord) -> Cause | None:
    """Where a forwarded input came from; the header means something in ``control`` only, where we alone write."""
    topics = tenure.world.settings.topics
    if record.topic != topics.control:
        return None
    header = next((value for name, value in record.headers if name == ORIGIN_HEADER), None)
    if header is None:
        return None
    try:
        origin = parse_origin(header)
    except BadOrigin as error:
        raise BadInput("bad_origin", str(error)) from error
    if origin.topic not in topics.inputs:
        raise BadInput("bad_origin", f"header {ORIGIN_HEADER} names {origin.topic!r}, which is no input topic")
    return origin


async def _forward(tenure: Tenure, record: InputRecord, parsed: Input, cause: Cause) -> None:
    """Copy a misplaced input to its own partition of ``control``, then settle it: at least once, with one id."""
    topics = tenure.world.settings.topics
    if record.topic == topics.control:
        why = ("wrong_partition", f"control holds run {parsed.run_id!r} in partition {record.partition}: not its own")
        await tenure.settle(tenure.settled(cause, Settlement.DEAD, parsed.run_id, why))
        return
    headers = (*record.headers, (ORIGIN_HEADER, format_origin(record.topic, record.partition, record.offset)))
    key = parsed.run_id.encode()

    def tell(error: Exception, failures: int) -> None:
        _log.warning(
            "forwarding_failed",
            partition=tenure.partition,
            topic=record.topic,
            offset=record.offset,
            error=str(error),
            failures=failures,
        )

    publish = tenure.world.publisher.publish
    try:
        await persist(
            lambda: publish(topics.control, key, record.value, headers=headers),
            PublishFailed,
            tenure.world.chance,
            tell,
        )
    except RecordTooLarge as error:
        why = ("too_large", f"it stands in the wrong partition and cannot be forwarded: {error}")
        await tenure.settle(tenure.settled(cause, Settlement.DEAD, parsed.run_id, why))
        return
    await tenure.settle(tenure.settled(cause, Settlement.FORWARDED, parsed.run_id, None))
