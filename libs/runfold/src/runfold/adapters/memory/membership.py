"""Consumer groups on the in-memory broker: sticky and cooperative, as Kafka's cooperative-sticky assignor is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from runfold.adapters.memory.broker import MemoryBroker
from runfold.ports.membership import AssignmentListener


class MemoryGroup:
    """The coordinator of one group: who should have which partition (targets), and who still has it (holders).

    Attributes:
        generation: Raised whenever the members change.
    """

    def __init__(self, partitions: int) -> None:
        self.generation = 0
        self._partitions = partitions
        self._targets: dict[MemoryMembership, set[int]] = {}
        self._holders: dict[int, MemoryMembership] = {}

    def join(self, member: MemoryMembership) -> None:
        """Add a member; nothing if it is one."""
        if member not in self._targets:
            self._targets[member] = set()
            self._rebalance()

    def drop(self, member: MemoryMembership) -> None:
        """End a membership at once, whatever it holds: it left, or its session is over (which it does not notice)."""
        if self._targets.pop(member, None) is not None:
            self.release(member, range(self._partitions))
            self._rebalance()

    def knows(self, member: MemoryMembership) -> bool:
        """Whether it is a member."""
        return member in self._targets

    def target(self, member: MemoryMembership) -> set[int]:
        """Say which partitions it should have; none if it is no member."""
        return self._targets.get(member, set())

    def take(self, member: MemoryMembership) -> list[int]:
        """Hand over, of its target, what nobody holds any more."""
        free = sorted(partition for partition in self.target(member) if partition not in self._holders)
        self._holders.update(dict.fromkeys(free, member))
        return free

    def release(self, member: MemoryMembership, partitions: Iterable[int]) -> None:
        """Let go of partitions that it held; others may take them."""
        for partition in partitions:
            if self._holders.get(partition) is member:
                del self._holders[partition]
        self._wake()

    def _rebalance(self) -> None:
        """Spread the partitions evenly, and move as few as possible."""
        self.generation += 1
        if self._targets:
            share, extra = divmod(self._partitions, len(self._targets))
            fullest_first = sorted(self._targets, key=lambda member: -len(self._targets[member]))
            quotas = {member: share + (place < extra) for place, member in enumerate(fullest_first)}
            kept = {member: set(sorted(had)[: quotas[member]]) for member, had in self._targets.items()}
            free = sorted(set(range(self._partitions)).difference(*kept.values()))
            for member, has in kept.items():
                missing = quotas[member] - len(has)
                has.update(free[:missing])
                del free[:missing]
            self._targets = kept
        self._wake()

    def _wake(self) -> None:
        for member in self._targets:
            member.wake()


class MemoryMembership:
    """One member of one group; see ``ports.membership.Membership``.

    Args:
        broker: Where the group lives.
        group: Its name.
        topic: The topic whose partitions are shared.
        session_s: Seconds after which the group gives up a member that was killed or sleeps.
    """

    def __init__(self, broker: MemoryBroker, group: str, topic: str, session_s: float = 10.0) -> None:
        if not broker.exists(topic, 0):
            message = f"there is no topic {topic!r} to share"
            raise ValueError(message)
        self._group = broker.groups.setdefault(group, MemoryGroup(broker.partitions))
        self.session_s = session_s
        self._held: set[int] = set()
        self._seen = -1
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._started = self._leaving = self._killed = False

    async def run(self, listener: AssignmentListener) -> None:
        """Join and stay until ``leave`` is called. An error of the listener is raised here, and ends the membership."""
        self._started = True
        try:
            while not self._leaving or self._held:
                await self._follow(listener)
                await self._changed.wait()
                self._changed.clear()
        finally:
            if not self._killed:
                self._group.drop(self)
            self._ended.set()

    async def leave(self) -> None:
        """Revoke what is assigned, leave the group; ``run`` then returns."""
        self._leaving = True
        self._changed.set()
        if self._started and not self._killed:
            await self._ended.wait()

    def kill(self) -> None:
        """Fall silent, as after SIGKILL: the listener hears nothing more, the group notices after the session.

        ``run`` never returns; who runs it cancels it.
        """
        self._killed = True
        asyncio.get_running_loop().call_later(self.session_s, self._group.drop, self)

    def expire(self) -> None:
        """End the session of a member that lives: the partitions go elsewhere, and then its listener is told."""
        self._group.drop(self)
        self._changed.set()

    def wake(self) -> None:
        """Look again at what the group wants."""
        self._changed.set()

    async def _follow(self, listener: AssignmentListener) -> None:
        """Go one step towards what the group wants; never call a listener twice at once."""
        group = self._group
        if self._killed:
            await asyncio.Event().wait()
        if self._held and not group.knows(self):
            lost, self._held = sorted(self._held), set()
            await listener.lost(lost)
        if not self._leaving:
            group.join(self)
        excess = self._held if self._leaving else self._held - group.target(self)
        if excess:
            await listener.revoked(sorted(excess))
            self._held = self._held - excess
            group.release(self, excess)
        if self._leaving:
            self._changed.set()
            return
        gained = group.take(self)
        if gained or self._seen != group.generation:
            self._seen = group.generation
            self._held = self._held.union(gained)
            await listener.assigned(gained)
