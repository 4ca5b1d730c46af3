"""Uses up the settled offsets of an input topic, for ``runfold rebuild``: no new input may be taken for a settled one.

What stands at such an offset and was never handled is sent once more, behind them. The command may be broken off and
run again, and then sends it again: so every copy has an id of where it first stood, and one of them has an effect. The
id is written into the input itself, and not as a forwarded input's origin: that would have to go through ``control``,
which may be filled up next, in a partition that is not this one; and it does not tell a topic from the one of its name
that was there before, whose inputs at the same offsets had effects of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from runfold.codec.input_types import BadInput, StartInput
from runfold.codec.inputs import kind_of, parse_input
from runfold.codec.strict_json import loads
from runfold.core.payload import canonical_json
from runfold.ports.inputs import InputRecord, Inputs
from runfold.ports.publisher import Publisher

_BATCH = 500


async def refill(
    inputs: Inputs, publisher: Publisher, partition: int, topic: str, upto: int, *, is_remade: bool
) -> None:
    """Fill a topic up to an offset.

    Args:
        inputs, publisher: The input topics.
        partition, topic, upto: What is filled, and the first offset that stays for new inputs.
        is_remade: Nothing that the topic holds was ever handled.
    """
    ids = await inputs.identities()
    bounds = await inputs.bounds(topic, partition)
    for _ in range(bounds.end, upto):
        await publisher.publish(topic, None, None, partition=partition)
    # Only now is it certain what stands there: a sender may have written between two of the empty records.
    end = (await inputs.bounds(topic, partition)).end
    passed = range(bounds.begin if is_remade else bounds.end, min(end, upto))
    kept = [
        record
        async for record in read(inputs, ids, partition, topic, passed)
        if record.key is not None or record.value is not None
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
    inputs: Inputs, topics: Iterable[str], partition: int, topic: str, offsets: range
) -> AsyncIterator[InputRecord]:
    """Read a part of an input topic, all of which exists; ``topics``: every input topic."""
    if not offsets:
        return
    starts = {other: (await inputs.bounds(other, partition)).end for other in topics}
    reader = await inputs.open(partition, {**starts, topic: offsets.start})
    try:
        while True:
            for record in await reader.next(_BATCH):
                if record.topic != topic:
                    continue
                if record.offset < offsets.stop:
                    yield record
                if record.offset >= offsets.stop - 1:
                    return
    finally:
        await reader.close()
