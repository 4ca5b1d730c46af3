"""Membership of a consumer group: who is assigned which partitions. Reads no records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class AssignmentListener(Protocol):
    """Told of what this process is assigned. Calls never overlap."""

    async def assigned(self, partitions: Sequence[int]) -> None:
        """These partitions are this process's from now on; called with [] too. Returns quickly."""
        ...

    async def revoked(self, partitions: Sequence[int]) -> None:
        """These partitions go elsewhere once this returns: drain, bounded in time."""
        ...

    async def lost(self, partitions: Sequence[int]) -> None:
        """These partitions are elsewhere already: start nothing, return quickly."""
        ...


class Membership(Protocol):
    """One member of one group."""

    async def run(self, listener: AssignmentListener) -> None:
        """Join and stay until ``leave`` is called. An error of the listener or the group is raised here."""
        ...

    async def leave(self) -> None:
        """Revoke what is assigned, leave the group; ``run`` then returns."""
        ...
