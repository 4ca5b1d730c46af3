"""What ``runfold check`` says of the services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from runfold.cli.finding import Finding
from runfold.cli.words import counted, one_line
from runfold.runtime.keeping_up import PATIENCE_S, Verdict

_NAMED: Final = 3


def of_services(seen: Verdict) -> list[Finding]:
    """Word what was seen: the damage first."""
    return [*_of_log(seen.damaged), _of_compactor(seen.unfolded), _of_executors(seen)]


def _of_log(damaged: Mapping[int, str]) -> list[Finding]:
    whys = list(damaged.values())
    found = [Finding("log", "wrong", one_line(why), "see docs/disaster.md") for why in whys[:_NAMED]]
    if len(whys) > _NAMED:
        found.append(Finding("log", "wrong", f"{len(whys) - _NAMED} partitions more are damaged", "the same"))
    return found


def _of_compactor(unfolded: Mapping[int, int]) -> Finding:
    if not unfolded:
        return Finding("compactor", "ok", "no record of the log waits for it")
    return Finding(
        "compactor",
        "wrong",
        f"the tables lack {counted(sum(unfolded.values()), 'record')} of the log{_in(list(unfolded))}, and none came "
        f"within {PATIENCE_S:g} s",
        "start a snapshot compactor, or read what its log says",
    )


def _of_executors(seen: Verdict) -> Finding:
    if seen.untaken:
        inputs = counted(sum(seen.untaken.values()), "input")
        # A note: what a transaction has left at the end of a topic is an offset without an input.
        return Finding(
            "executors",
            "note",
            f"nobody took {inputs}{_in(list(seen.untaken))} within {PATIENCE_S:g} s",
            "start a step executor, or read what its log says; the end of a producer's transaction counts as an input",
        )
    if seen.unknown:
        detail = f"whether inputs wait for them is not known while the tables are behind{_in(seen.unknown)}"
        return Finding("executors", "note", detail, "start a snapshot compactor first")
    return Finding("executors", "ok", "no input waits for them")


def _in(partitions: Sequence[int]) -> str:
    """Name partitions, the first of many."""
    named = ", ".join(map(str, partitions[:_NAMED]))
    more = f" and {len(partitions) - _NAMED} more" if len(partitions) > _NAMED else ""
    return f" (partition{'' if len(partitions) == 1 else 's'} {named}{more})"
