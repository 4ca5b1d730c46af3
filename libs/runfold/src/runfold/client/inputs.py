"""Sending inputs: encode, note where the log stands, produce, and hear what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from runfold.client.reader import RunReader, Settled
from runfold.client.scan import Place
from runfold.ports.publisher import Published, Publisher
from runfold.ports.store import StoreUnavailable


@dataclass(frozen=True, slots=True)
class Submitted:
    """An input that is durably queued.

    Attributes:
        run_id: The run that it is about.
        published: Where it stands.
        place: What Postgres said of the run before; None while it could not be reached.
    """

    run_id: str
    published: Published
    place: Place | None


class Sender:
    """Produces inputs to the partition of their run."""

    def __init__(self, publisher: Publisher, reader: RunReader) -> None:
        self._publisher = publisher
        self._reader = reader

    async def send(self, topic: str, run_id: str, value: bytes) -> Submitted:
        """Produce one encoded input and wait until it is durable; works while Postgres is away.

        Raises:
            PublishFailed: Send it again; with the same ``id`` in the input it has one effect.
        """
        try:
            place = await self._reader.place(run_id)
        except StoreUnavailable:
            place = None
        partition = self._reader.partition(run_id)
        published = await self._publisher.publish(topic, run_id.encode(), value, partition=partition)
        return Submitted(run_id, published, place)

    async def settled(self, submitted: Submitted, timeout_s: float) -> Settled | None:
        """Wait for what becomes of an input; None if nothing has in time, or nobody can tell (``place`` is None)."""
        if submitted.place is None:
            return None
        return await self._reader.settled(submitted.run_id, submitted.place, submitted.published, timeout_s)
