"""Writes to a partition's log by a claim of a command, not of an executor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from runfold.codec import log as log_codec
from runfold.core import drafts
from runfold.core.events import LogRecordBody, PartitionClaimed
from runfold.ports.clock import Chance, Clock
from runfold.ports.log import AppendFailed, Log, OnAck

_BATCH = 500


class OtherWriter(Exception):
    """Somebody else has written the log meanwhile: stop every executor, and run the command again."""


class Pen:
    """Writes to the log as its owner: every record right behind the one before, or somebody else is writing."""

    def __init__(self, log: Log, clock: Clock, chance: Chance, partition: int) -> None:
        self._log = log
        self._clock = clock
        self._chance = chance
        self._partition = partition
        self._expected: int | None = None
        self.epoch = -1

    async def claim(self) -> None:
        """Become the owner."""
        claim = PartitionClaimed(
            owner="runfold rebuild", revision="", nonce=self._chance.nonce(), at=self._clock.now_ms()
        )
        self.epoch = (await self._append([(None, claim)]))[0]
        self._expected = self.epoch + 1

    async def write(self, records: Sequence[tuple[str | None, LogRecordBody]]) -> None:
        """Append records, and wait until they are durable.

        Raises:
            OtherWriter: They may be void.
        """
        for index in range(0, len(records), _BATCH):
            offsets = await self._append(records[index : index + _BATCH])
            first = self._expected or 0
            if offsets != list(range(first, first + len(offsets))):
                raise OtherWriter(
                    f"somebody else writes log partition {self._partition}: stop every executor, and run this again"
                )
            self._expected = first + len(offsets)

    async def _append(self, records: Sequence[tuple[str | None, LogRecordBody]]) -> list[int]:
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[int]] = []
        for key, body in records:
            future: asyncio.Future[int] = loop.create_future()
            waiting.append(future)
            head, value = log_codec.encode(body)
            self._log.append(self._partition, key, head, value, _resolving(future))
        return list(await asyncio.gather(*waiting))

    @property
    def stamp(self) -> drafts.Stamp:
        """The facts of this moment."""
        return drafts.Stamp(self.epoch, self._clock.now_ms())


def _resolving(future: asyncio.Future[int]) -> OnAck:
    def acknowledge(result: int | AppendFailed) -> None:
        if future.done():
            return
        if isinstance(result, AppendFailed):
            future.set_exception(result)
        else:
            future.set_result(result)

    return acknowledge
