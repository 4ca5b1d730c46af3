"""What an author may say in ``@tool(...)`` and ``.lookup(...)``, checked at import."""

from __future__ import annotations

import math
from typing import cast

from runfold.core.events import Recovery
from runfold.sdk.errors import DefinitionError

CLASSES = (
    "Recovery.RERUN (run it again freely: it only reads), Recovery.KEYED (the downstream refuses a second effect with "
    "the same key), Recovery.LOOKUP (ask by key first), Recovery.TRANSACTIONAL (it writes to Postgres through "
    "ctx.connection, in one transaction with its key), Recovery.MANUAL (a person decides)"
)
_MAX_TIMEOUT_S = 7 * 24 * 3600.0
_MAX_MEMORY_S = 100 * 366 * 24 * 3600.0
_NO_DEDUPE = {
    Recovery.RERUN: "a tool that only reads has no effect that could happen twice",
    Recovery.LOOKUP: "its lookup asks the downstream itself, which knows better than a claim made before the call",
    Recovery.TRANSACTIONAL: "its key and its effect stand in the effects table already",
    Recovery.MANUAL: "with recovery=Recovery.KEYED a call that began and has no outcome goes to a person too, and one "
    "that never began, or whose outcome was stored, does not have to",
}


def milliseconds(seconds: float) -> int:
    """Give seconds as whole milliseconds, at least 1."""
    return max(1, round(seconds * 1000))


def check(name: str, recovery: object, timeout: object, retries: object) -> None:
    """Check class, time-out and retries.

    Raises:
        DefinitionError: One of them is missing or wrong.
    """
    if not isinstance(recovery, Recovery):
        said = "says no recovery" if recovery is None else f"has recovery {recovery!r}"
        message = f"tool {name!r} {said}: say what to do when nobody knows whether it happened, one of {CLASSES}"
        raise DefinitionError(message)
    _check_seconds(f"tool {name!r}: timeout", timeout, _MAX_TIMEOUT_S)
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        message = f"tool {name!r}: retries is a whole number from 0 on, not {retries!r}"
        raise DefinitionError(message)


def check_flags(name: str, **flags: object) -> None:
    """Check what can only be True or False.

    Raises:
        DefinitionError: It is something else.
    """
    for option, value in flags.items():
        if not isinstance(value, bool):
            message = f"tool {name!r}: {option} is True or False, not {value!r}"
            raise DefinitionError(message)


def check_memory(
    name: str, recovery: Recovery, timeout: float, *, key_ttl: float | None, settle: float | None, dedupe: bool
) -> None:
    """Check what is said of the downstream's memory.

    Raises:
        DefinitionError: It is wrong, or means nothing for the tool's class.
    """
    if key_ttl is not None:
        _check_seconds(f"tool {name!r}: key_ttl", key_ttl, _MAX_MEMORY_S)
        if recovery not in (Recovery.KEYED, Recovery.LOOKUP) or dedupe:
            message = (
                f"tool {name!r}: key_ttl says how long a downstream remembers a key, which only KEYED and LOOKUP tools "
                "rely on; the effects table (TRANSACTIONAL, dedupe=True) forgets none"
            )
            raise DefinitionError(message)
        if key_ttl <= timeout:
            message = (
                f"tool {name!r}: key_ttl ({key_ttl:g} s) must be longer than timeout ({timeout:g} s): a key that can "
                "be forgotten during its own call is of no use"
            )
            raise DefinitionError(message)
    if settle is not None:
        _check_seconds(f"tool {name!r}: settle", settle, _MAX_TIMEOUT_S)
        if recovery is not Recovery.LOOKUP:
            message = f"tool {name!r}: settle is about the lookup of a LOOKUP tool; {recovery} asks none"
            raise DefinitionError(message)
        if key_ttl is not None and key_ttl <= timeout + settle:
            message = (
                f"tool {name!r}: key_ttl ({key_ttl:g} s) must be longer than timeout and settle together "
                f"({timeout + settle:g} s): else no ABSENT could ever be believed"
            )
            raise DefinitionError(message)
    if dedupe and recovery is not Recovery.KEYED:
        message = f"tool {name!r}: dedupe=True is for Recovery.KEYED, not for {recovery}: {_NO_DEDUPE[recovery]}"
        raise DefinitionError(message)


def check_lookup(name: str, timeout: object, tries: object) -> None:
    """Check a lookup's own options.

    Raises:
        DefinitionError: One of them is wrong.
    """
    if timeout is not None:
        _check_seconds(f"the lookup of tool {name!r}: timeout", timeout, _MAX_TIMEOUT_S)
    if not isinstance(tries, int) or isinstance(tries, bool) or tries < 1:
        message = f"the lookup of tool {name!r}: tries is a whole number from 1 on, not {tries!r}"
        raise DefinitionError(message)


def _check_seconds(what: str, value: object, most: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not 0 < cast("float", value) <= most:
        message = f"{what} is in seconds, more than 0 and at most {most:.0f}, not {value!r}"
        raise DefinitionError(message)
