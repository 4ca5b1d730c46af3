"""What processes cost, by pid: CPU seconds and resident memory, as /proc tells them; nothing where it is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
# proc(5), counted from the field behind the name in brackets: state is 0.
_PARENT, _OWN, _REAPED = 1, slice(11, 13), slice(13, 15)


@dataclass(frozen=True, slots=True)
class Processes:
    """Processes to be watched, by the name that figures have; a server's own children count as itself."""

    pids: Mapping[str, int]

    def cpu_s(self) -> dict[str, float]:
        """Give the CPU seconds of each so far, those of the children that it has or had included."""
        if not _PROC.is_dir():
            return {}
        return {name: sum(_cpu_s(each) for each in (pid, *_children(pid))) for name, pid in self.pids.items()}

    def rss(self) -> dict[str, int]:
        """Give the resident bytes of each, without its children."""
        return {name: rss_of(pid) for name, pid in self.pids.items() if _PROC.is_dir()}


def rss_of(pid: int) -> int:
    """Give the resident bytes of a process."""
    status = (_PROC / str(pid) / "status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def spent_us(before: Mapping[str, float], after: Mapping[str, float], steps: int) -> dict[str, float]:
    """Give the CPU microseconds that each spent for one of ``steps`` steps."""
    return {f"{name}_cpu_us": (after[name] - before[name]) / steps * 1e6 for name in before}


def _fields(pid: int) -> list[str]:
    """Read the fields behind the name; [] if the process is gone."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()


def _cpu_s(pid: int) -> float:
    fields = _fields(pid)
    return sum(map(int, fields[_OWN] + fields[_REAPED])) / _TICKS_PER_S if fields else 0.0


def _children(parent: int) -> Iterator[int]:
    for folder in _PROC.glob("[0-9]*"):
        fields = _fields(int(folder.name))
        if fields and int(fields[_PARENT]) == parent:
            yield int(folder.name)
