"""The effects table: which idempotency keys have had their effect, and with what outcome. In the author's database.

It serves two kinds of tools.

**TRANSACTIONAL** (``perform``, ``find``, ``close``). The author's writes and the key commit in one transaction, so
that "did it happen?" has an answer that nobody can be wrong about. The protocol of one execution:

1. ``may_start`` is asked, as for every tool: before the transaction, since nothing in it needs more than the key.
   Begin; insert the key *first*. A second execution of the key, here or in another process, waits at that insert for
   the first one's end: it never runs beside it. It waits no longer than its call's time.
2. The key is there already: the stored outcome is given, and the tool is not called.
3. Otherwise the tool is called with the connection, and its outcome is written into the key's row.
4. Commit. ``ModelRetry`` and ``ToolFailed`` undo the author's writes, but the outcome is committed all the same: an
   earlier attempt of the same key that is paused somewhere can then never commit.

A plain read that finds nothing proves nothing: a transaction that holds the key may be about to commit, even one whose
client is dead (its COMMIT may lie in the server's socket). So nothing is ever decided by "not found": the key is then
either executed again or *closed*, and both begin with the insert, which meets whatever is in flight. ``close`` stores
an outcome without an effect; whoever executes the key later finds that outcome.

A paused process would hold its key, and with it everybody who wants it, for ever. So the session is given
``idle_in_transaction_session_timeout``: what is left of the call's time, and the grace.

**Dedupe** (``claim``, ``record``, ``release``, ``find``, ``close``), for a downstream that knows no keys. The claim is
committed *before* the call and the outcome recorded after it. A key that is claimed and has no outcome is one of which
nobody knows: it is never called again until a person has said that it did not happen. What it cannot know: whether
the call happened between claim and crash. What it does know: everything else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from runfold.ports.agents import Begun, Returned

__all__ = ["Begun", "CommitUnknown", "Effect", "EffectsTable", "EffectsUnavailable", "KeyHeld", "Returned", "Work"]


class EffectsUnavailable(Exception):
    """The table cannot be asked, or the answer was lost: what stands in it is not known. Try again."""


class KeyHeld(EffectsUnavailable):
    """Another execution of the key was in its transaction for as long as this one could wait; nothing was done."""


class CommitUnknown(EffectsUnavailable):
    """COMMIT was sent and not answered: the effect happened, or it did not, or it is about to."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One attempt of one key."""

    run_id: str
    step: int
    attempt: int


Work = Callable[[Any], Awaitable[Returned]]
"""The author's tool on the connection that it is handed; what it raises undoes everything, and is raised on."""


class EffectsTable(Protocol):
    """See the module. ``Returned`` is given with ``from_table`` set wherever it is not this very execution's."""

    async def perform(self, effect: Effect, wait_s: float, hold_s: float, work: Work) -> Returned | Begun:
        """Execute a key in a transaction, unless it has been.

        Args:
            effect: What is executed.
            wait_s: How long another transaction that holds the key is waited for.
            hold_s: An idle session that holds the key longer than this is ended by the server.
            work: Called at most once, with the connection inside the transaction. An outcome other than success
                undoes what it wrote, and is stored.

        Returns:
            What ``work`` gave, committed; or what was stored, ``from_table``; or ``Begun`` for a row without an outcome
            (a tool that ended the transaction by itself).

        Raises:
            KeyHeld: See there.
            CommitUnknown: See there.
            EffectsUnavailable: Nothing was committed, and nothing will be.
            Exception: Whatever ``work`` raised; nothing was committed, and nothing will be. Cancellation likewise,
                unless it came during the commit: then the outcome is as unknown as with ``CommitUnknown``.
        """
        ...

    async def claim(self, effect: Effect, absent_upto: int, holder: str) -> Returned | Begun | None:
        """Claim a key before a call whose downstream knows none, and commit.

        Args:
            effect: What is about to be called.
            absent_upto: Claims of attempts up to this one are known to have had no effect, and are taken over.
            holder: Names this execution; nobody else has it. The same claim by the same holder is granted again.

        Returns:
            None: granted; call now. ``Returned``: it has been called. ``Begun``: another attempt claimed it (an earlier
            one of which nobody knows, or a later one, whose zombie this is): do not call.

        Raises:
            EffectsUnavailable: Claimed or not; the same ``holder`` may try again.
        """
        ...

    async def release(self, effect: Effect, holder: str) -> None:
        """Take back a claim of a call that was not made.

        Raises:
            EffectsUnavailable: See there.
        """
        ...

    async def record(self, effect: Effect, holder: str, returned: Returned) -> None:
        """Store the outcome of a claimed call; a claim that was taken over meanwhile stays as it is.

        Raises:
            EffectsUnavailable: See there.
        """
        ...

    async def find(self, run_id: str, step: int) -> Returned | Begun | None:
        """Read what is committed under a key. None proves nothing (see the module).

        Raises:
            EffectsUnavailable: See there.
        """
        ...

    async def close(self, effect: Effect, returned: Returned, wait_s: float) -> Returned | Begun:
        """Store an outcome for a key that is not to be executed any more, unless it has one or is claimed.

        Returns:
            What stands under the key now: ``returned`` or what was there, ``from_table`` both.

        Raises:
            KeyHeld: A transaction held the key for ``wait_s`` seconds.
            EffectsUnavailable: See there.
        """
        ...
