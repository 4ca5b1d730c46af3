"""The version gate, which says whether this code may drive that run.

Before an executor drives a run whose version differs from its own, each part that differs is accepted, found
compatible, or refused, by the agent's policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runfold.core.events import UNKNOWN_VERSION, Version

PARTS = ("revision", "prompt", "tools", "model")
_FIELDS = {"revision": "revision", "prompt": "prompt_hash", "tools": "tools_hash", "model": "model"}
DEFAULT_POLICY: Mapping[str, str] = {
    "revision": "accept",
    "prompt": "refuse",
    "tools": "compatible",
    "model": "refuse",
}


@dataclass(frozen=True, slots=True)
class Same:
    """Nothing differs: drive the run."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What differs is accepted: append one ``version_changed``, then drive. ``policy``: (part, what was decided)."""

    policy: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Interrupt the run. ``parts``: part -> (old, new), each of which is refused."""

    parts: dict[str, tuple[str | None, str | None]]


Gate = Same | Changed | Refused


def gate(
    old: Version,
    new: Version,
    policy: Mapping[str, str],
    used_tools: frozenset[str] | set[str],
    *,
    accept: bool = False,
) -> Gate:
    """Compare the version of a run with that of the running code.

    Args:
        old: The run's.
        new: The running code's.
        policy: Part -> ``accept``, ``refuse`` or (tools only) ``compatible``.
        used_tools: Tools called in this run: they decide what is compatible.
        accept: An operator accepted whatever differs.
    """
    if old == UNKNOWN_VERSION:
        return Changed((("agent", "stamped"),))
    differing = [part for part in PARTS if part_of(old, part) != part_of(new, part)]
    if not differing:
        return Same()
    decided: list[tuple[str, str]] = []
    refused: dict[str, tuple[str | None, str | None]] = {}
    for part in differing:
        rule = "operator" if accept else policy.get(part, DEFAULT_POLICY[part])
        fits = part == "tools" and rule == "compatible" and _compatible(old, new, used_tools)
        if fits or rule in ("accept", "operator"):
            decided.append((part, rule))
        else:
            refused[part] = (part_of(old, part), part_of(new, part))
    return Refused(refused) if refused else Changed(tuple(decided))


def part_of(version: Version, part: str) -> str | None:
    """Give the value of one part, by the name that a policy uses."""
    value: str | None = getattr(version, _FIELDS[part])
    return value


def _compatible(old: Version, new: Version, used_tools: frozenset[str] | set[str]) -> bool:
    """Every tool that this run called keeps its signature."""
    before, after = dict(old.tools), dict(new.tools)
    return all(name in after and after[name] == before[name] for name in used_tools if name in before)
