"""Handing partitions over one by one: what is slow to drain does not hold up what is not, nor the group.

A partition that is not drained at once is marked, and then let go: the group moves it with the others, and its next
owner waits for the end of the draining before it claims. Where marks cannot be written, the old owner keeps everything
until it is drained.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from runfold.ports.clock import Clock
from runfold.ports.drains import Drains, DrainsUnavailable
from runfold.runtime.executor.settings import ExecutorSettings

_log = structlog.get_logger(__name__)
_PROMPT_S = 0.1
"""A partition that is drained in this time is let go without a mark."""
_REMARK_S = 1.0
_DEAD_S = 5.0
"""A mark that has not been renewed for so long has nobody behind it."""
_LOOK_S = 0.05
_BEYOND_S = 5.0
"""How long after the time for draining, which an owner keeps by itself, it is cancelled and its mark not believed."""


class Owner(Protocol):
    """What is handed over."""

    def hand_over(self) -> None:
        """Start nothing new; the owner's task ends when it is drained."""
        ...


class HandOver:
    """The hand-overs of one process, as the old owner and as the next one.

    Args:
        drains: Where marks stand; None: there are none, and everything is drained before it is let go.
        group: Owns the tasks that renew marks.
    """

    def __init__(
        self, drains: Drains | None, clock: Clock, settings: ExecutorSettings, group: asyncio.TaskGroup
    ) -> None:
        self._drains = drains
        self._clock = clock
        self._limit_s = settings.drain_s + _BEYOND_S
        self._group = group
        self._draining: dict[int, asyncio.Task[None]] = {}
        self._waiting: set[int] = set()

    # --- the old owner ------------------------------------------------------------------------------------------

    async def let_go(self, leaving: Mapping[int, tuple[Owner, asyncio.Task[None]]]) -> None:
        """Drain; returns as soon as all of these may be assigned to others."""
        tasks = {task: partition for partition, (_, task) in leaving.items()}
        for partition, (owner, task) in leaving.items():
            owner.hand_over()
            if partition in self._waiting:
                task.cancel()  # it has claimed nothing yet
        _, late = await asyncio.wait(tasks, timeout=_PROMPT_S)
        slow = sorted(tasks[task] for task in late)
        if not slow:
            return
        if self._drains is not None:
            try:
                await self._drains.mark(slow)
            except DrainsUnavailable as error:
                _log.warning("drain_not_marked", partitions=slow, error=str(error))
            else:
                for task in late:
                    draining = self._renew(self._drains, tasks[task], task)
                    self._draining[tasks[task]] = self._group.create_task(draining, name=f"drain {tasks[task]}")
                return
        await self._bounded(late)

    async def finish(self) -> None:
        """Wait for the end of everything that was let go."""
        if self._draining:
            await asyncio.wait(self._draining.values())

    async def _bounded(self, tasks: set[asyncio.Task[None]]) -> None:
        _, late = await asyncio.wait(tasks, timeout=self._limit_s)
        for task in late:
            task.cancel()

    async def _renew(self, drains: Drains, partition: int, task: asyncio.Task[None]) -> None:
        deadline = self._clock.elapsed() + self._limit_s
        try:
            while not task.done() and self._clock.elapsed() < deadline:
                await asyncio.wait([task], timeout=_REMARK_S)
                if not task.done():
                    await self._say(drains, partition, is_draining=True)
            task.cancel()
            await asyncio.wait([task])
            await self._say(drains, partition, is_draining=False)
        finally:
            self._draining.pop(partition, None)

    async def _say(self, drains: Drains, partition: int, *, is_draining: bool) -> None:
        try:
            await (drains.mark if is_draining else drains.clear)([partition])
        except DrainsUnavailable as error:
            # The next owner takes a mark that is not renewed, or is left behind, for a dead process's.
            event = "drain_not_marked" if is_draining else "drain_not_cleared"
            _log.warning(event, partitions=[partition], error=str(error))

    # --- the next owner -----------------------------------------------------------------------------------------

    def look(self, partitions: Sequence[int]) -> asyncio.Task[dict[int, str]]:
        """Ask once for the marks of all partitions that were assigned together."""
        return self._group.create_task(self._marks(partitions), name="drain marks")

    async def await_drained(self, partition: int, marks: asyncio.Task[dict[int, str]]) -> None:
        """Wait until the old owner of a partition has drained it, as long as it shows that it lives."""
        self._waiting.add(partition)
        try:
            own = self._draining.get(partition)
            if own is not None:
                await asyncio.wait([own])
            else:
                await self._await_unmarked(partition, marks)
        finally:
            self._waiting.discard(partition)

    async def _await_unmarked(self, partition: int, marks: asyncio.Task[dict[int, str]]) -> None:
        mark = (await asyncio.shield(marks)).get(partition)
        began = renewed = self._clock.elapsed()
        if mark is not None:
            _log.info("partition_still_draining", partition=partition)
        while mark is not None and self._clock.elapsed() - began < self._limit_s:
            await asyncio.sleep(_LOOK_S)
            before, mark = mark, (await self._marks([partition])).get(partition)
            if mark != before:
                renewed = self._clock.elapsed()
            elif self._clock.elapsed() - renewed > _DEAD_S:
                break
        if mark is not None and self._drains is not None:
            _log.warning("drain_abandoned", partition=partition)
            await self._say(self._drains, partition, is_draining=False)

    async def _marks(self, partitions: Sequence[int]) -> dict[int, str]:
        if self._drains is None or not partitions:
            return {}
        try:
            return await self._drains.marks(partitions)
        except DrainsUnavailable as error:
            # To wait would leave the partition to nobody; to claim ends a draining, which any crash does too.
            _log.warning("drain_marks_unknown", partitions=sorted(partitions), error=str(error))
            return {}
