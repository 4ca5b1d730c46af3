"""Uses up the settled offsets of an input topic, for ``runfold rebuild``: no new input may be taken for a settled one.

What stands at such an offset and was never handled is sent once more, behind them. The command may be broken off and
run again, and then sends it again: so every copy has an id of where it first stood, and one of them has an effect. The
id is written into the input itself, and not as a forwarded input's origin: that would have to go through ``control``,
which may be filled up next, in a partition that is not this one; and it does not tell a topic from the one of its name
that was there before, whose inputs at the same offsets had effects of their own.

From which offset on nothing was handled is kept in the partition's row, since no end of the topic says it any more as
soon as there is an empty record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

from runfold.codec.input_types import BadInput, StartInput
from runfold.codec.inputs import kind_of, parse_input
from runfold.codec.strict_json import loads
from runfold.core.payload import canonical_json
from runfold.core.positions import Position
from runfold.ports.inputs import InputReader, InputRecord, Inputs
from runfold.ports.publisher import Publisher

_BATCH: Final = 500
_PATIENCE_S: Final = 10.0


async def refill(
    inputs: Inputs, publisher: Publisher, partition: int, topic: str, settled: Position, *, unhandled_from: int
) -> None:
    """Use up the settled offsets of a topic.

    Args:
        inputs, publisher: The input topics.
        partition, topic, settled: What is filled, and the offsets that must not be given to new inputs.
        unhandled_from: Nothing that stands there or behind was ever handled.
    """
    ids = await inputs.identities()
    upto = settled.end
    bounds = await inputs.bounds(topic, partition)
    end = bounds.end
    while end < upto:
        end = (await publisher.publish(topic, None, None, partition=partition)).offset + 1
    # Only now is it certain what stands there: a sender may have written between two of the empty records. What stands
    # on an offset that is not settled is handled where it is.
    passed = range(max(bounds.begin, unhandled_from), upto)
    kept = [
        record
        async for record in read(inputs, publisher, ids, partition, topic, passed)
        if settled.is_settled(record.offset) and (record.key is not None or record.value is not None)
    ]
    for record in kept:
        value = _identified(record, ids[topic])
        await publisher.publish(topic, record.key, value, headers=record.headers, partition=partition)


def _identified(record: InputRecord, topic_id: str) -> bytes | None:
    """Give an input's value with an id, where it needs one.

    A start has its run's id, a forwarded one its origin's; what cannot be read has no effect at all.
    """
    try:
        given = parse_input(kind_of(record.topic), record.key, record.value)
    except BadInput:
        return record.value
    if given.id is not None or isinstance(given, StartInput) or record.value is None:
        return record.value
    return canonical_json(loads(record.value) | {"id": f"{topic_id}/{record.partition}/{record.offset}"})


async def read(
    inputs: Inputs, publisher: Publisher, topics: Iterable[str], partition: int, topic: str, offsets: range
) -> AsyncIterator[InputRecord]:
    """Read a part of an input topic, all of which exists; ``topics``: every input topic.

    At the last of these offsets there may be no input: a transaction's marker, what it has aborted, what retention
    deletes meanwhile. A reader passes those, and tells so only by what it gives from behind them. So where nothing
    comes for a while, an empty record is put there to come to: an input that ends in ``dead`` (``not_json``).
    """
    if not offsets:
        return
    starts = {other: (await inputs.bounds(other, partition)).end for other in topics}
    reader = await inputs.open(partition, {**starts, topic: offsets.start})
    is_closed = False
    try:
        while True:
            try:
                async with asyncio.timeout(None if is_closed else _PATIENCE_S):
                    records = await _next_of(topic, reader)
            except TimeoutError:
                await publisher.publish(topic, None, None, partition=partition)
                is_closed = True
                continue
            for record in records:
                if record.offset < offsets.stop:
                    yield record
                if record.offset >= offsets.stop - 1:
                    return
    finally:
        await reader.close()


async def _next_of(topic: str, reader: InputReader) -> list[InputRecord]:
    """Wait for records of one topic; what comes of the others is let go."""
    while not (records := [record for record in await reader.next(_BATCH) if record.topic == topic]):
        continue
    return records
