"""`python -m bench.takeover [--repeats N] [--protocol classic|consumer] [--only kill|roll]`: how long runs stand still.

Two executors with the default time-outs, a run that steps all the time in each of 12 partitions. A JSON object a line
for each thing measured: over all repeats, seconds, of the partition that took longest in each.

- kill: SIGKILL of one; from the signal to the first event of the next owner, and the parts that make it up.
- roll: SIGTERM of one, then a new one joins; from the last event of the old owner to the first of the new one, and
  the longest pause of a run in a partition that did not move.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from bench.stepping import LogWatch, await_steps, gap, longest_pause, now, settle, start_runs, wait_until
from bench.stepping_app import TICKS_A_TURN, TURNS
from bench.world import own_stack
from demo.errors import DemoError
from demo.installation import Installation
from demo.processes import Command, Service, Services

_PARTITIONS: Final = 12
_REPEATS: Final = 10
_BEFORE_S: Final = 1.0
# A run that is not further than this lasts for one measurement more: half of its events.
_FRESH: Final = TURNS * (TICKS_A_TURN + 1)
_EXECUTOR: Final[Command] = "runfold-step-executor"
_PROTOCOLS: Final = {"classic": "", "consumer": "group.protocol=consumer\n"}


@dataclass(slots=True)
class Bench:
    """What a measurement works with; ``found``: name -> a number of seconds for each repeat."""

    installation: Installation
    services: Services
    watch: LogWatch
    found: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    started: int = 0
    runs: dict[int, str] = field(default_factory=dict)

    def start(self) -> Service:
        """Start an executor more."""
        self.started += 1
        return self.services.start(_EXECUTOR, f"executor-{self.started}")

    def make_ready(self, *executors: Service) -> None:
        """Wait until each has its share and a run steps in every partition."""
        self.services.await_ready(*executors)
        settle(self.services, self.watch, {executor.pid for executor in executors})
        ending = {each for each in range(_PARTITIONS) if not 0 < self.watch.seq_of(self.runs.get(each, "")) < _FRESH}
        run_ids = start_runs(self.installation, ending, _PARTITIONS)
        self.runs |= dict(zip(sorted(ending), run_ids, strict=True))
        await_steps(self.services, self.watch, now())

    def await_moved(self, partitions: set[int], since: float) -> None:
        """Wait until each of some partitions has an event behind a claim later than ``since``."""
        wait_until(
            lambda: all(gap(self.watch.entries(partition), since) is not None for partition in partitions),
            self.services,
            "an event of the next owner in every partition that moves",
        )

    def note(self, name: str, seconds: Sequence[float]) -> None:
        """Keep the longest of one repeat."""
        self.found[name].append(max(seconds))

    def note_gaps(self, name: str, seconds: Sequence[float]) -> None:
        """Keep the longest standstill of one repeat, and that of its median run."""
        self.note(name, seconds)
        self.found[f"{name} of the median run"].append(statistics.median(seconds))

    def gaps(self, partitions: set[int], since: float) -> list[float]:
        """Give the standstill of each partition that moved."""
        spans = [gap(self.watch.entries(partition), since) for partition in partitions]
        return [span[1] - span[0] for span in spans if span is not None]

    def pauses(self, partitions: set[int], since: float, until: float) -> list[float]:
        """Give the longest pause of each partition that did not move."""
        return [longest_pause(self.watch.entries(partition), since, until) for partition in partitions]


def kill(bench: Bench, repeats: int) -> None:
    """SIGKILL of the older of two executors, again and again."""
    victim, heir = bench.start(), bench.start()
    for repeat in range(repeats):
        bench.make_ready(victim, heir)
        moving = bench.watch.of(victim.pid)
        killed = now()
        bench.services.kill(victim)
        bench.await_moved(moving, killed)
        behind = [gap(bench.watch.entries(partition), killed) for partition in moving]
        bench.note("kill to first event", [span[1] - killed for span in behind if span is not None])
        for name, seconds in _parts(bench, heir, moving, killed).items():
            bench.note(f"kill: {name}", seconds)
        print(f"kill {repeat + 1}: {bench.found['kill to first event'][-1]:.3f} s", file=sys.stderr, flush=True)
        victim, heir = heir, bench.start()
    for service in (victim, heir):
        bench.services.await_ready(service)
        bench.services.stop(service)


def roll(bench: Bench, repeats: int) -> None:
    """SIGTERM of the older of two executors, and then a new one; again and again."""
    leaver, stayer = bench.start(), bench.start()
    for repeat in range(repeats):
        bench.make_ready(leaver, stayer)
        moving, kept = bench.watch.of(leaver.pid), bench.watch.of(stayer.pid)
        told = now()
        bench.note("SIGTERM to exit", [bench.services.stop(leaver)])
        bench.await_moved(moving, told)
        bench.note_gaps("hand-over: standstill", bench.gaps(moving, told))
        bench.note("hand-over: pause of others", bench.pauses(kept, told - _BEFORE_S, now()))
        for name, seconds in _parts(bench, stayer, moving, told).items():
            bench.note(f"hand-over: SIGTERM, {name}", seconds)
        before = now()
        joiner = bench.start()
        settle(bench.services, bench.watch, {stayer.pid, joiner.pid})
        moving = bench.watch.of(joiner.pid)
        bench.await_moved(moving, before)
        bench.note_gaps("scale-out: standstill", bench.gaps(moving, before))
        kept = bench.watch.of(stayer.pid)
        bench.note("scale-out: pause of others", bench.pauses(kept, before - _BEFORE_S, now()))
        last = {name: round(seconds[-1], 3) for name, seconds in bench.found.items()}
        print(f"roll {repeat + 1}: {json.dumps(last)}", file=sys.stderr, flush=True)
        leaver, stayer = stayer, joiner
    for service in (leaver, stayer):
        bench.services.stop(service)


def _parts(bench: Bench, heir: Service, moved: set[int], since: float) -> dict[str, list[float]]:
    """What the next owner's log says of each partition: until it was told, claimed, restored, and stepped."""
    parts: defaultdict[str, list[float]] = defaultdict(list)
    assigned, claimed, restored = _told(heir, since)
    for partition in moved:
        span = gap(bench.watch.entries(partition), since)
        if span is None or partition not in restored:
            raise DemoError(f"{heir.name} should have said that it restored partition {partition}")
        parts["1 session and rebalance"].append(assigned[partition] - since)
        parts["2 claim"].append(claimed[partition] - assigned[partition])
        parts["3 restore"].append(restored[partition] - claimed[partition])
        parts["4 first event"].append(span[1] - restored[partition])
    return parts


def _told(service: Service, since: float) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
    assigned: dict[int, float] = {}
    claimed: dict[int, float] = {}
    restored: dict[int, float] = {}
    for line in service.log.read_text(encoding="utf-8").splitlines():
        told = json.loads(line) if line.startswith("{") else {}
        at = datetime.fromisoformat(told["ts"]).timestamp() if "ts" in told else 0.0
        if at < since:
            continue
        match told["event"]:
            case "partitions_assigned":
                assigned |= dict.fromkeys(told["partitions"], at)
            case "partition_claimed":
                claimed[told["partition"]] = at
            case "partition_restored":
                restored[told["partition"]] = at
            case _:
                continue
    return assigned, claimed, restored


def _summary(protocol: str, name: str, seconds: Sequence[float]) -> Mapping[str, Any]:
    return {
        "protocol": protocol,
        "what": name,
        "repeats": len(seconds),
        "p50_s": round(statistics.median(seconds), 3),
        "max_s": round(max(seconds), 3),
    }


def main(arguments: Sequence[str]) -> int:
    """Measure what is asked for; all of it with the classic protocol unless told."""
    parser = argparse.ArgumentParser(prog="python -m bench.takeover")
    parser.add_argument("--only", choices=["kill", "roll"])
    parser.add_argument("--repeats", type=int, default=_REPEATS)
    parser.add_argument("--protocol", choices=list(_PROTOCOLS), default="classic")
    given = parser.parse_args(arguments)
    with own_stack() as stack:
        installation = Installation.at(
            stack.environment(),
            stack.folder / "bench",
            app="bench.stepping_app:app",
            partitions=_PARTITIONS,
            kafka=_PROTOCOLS[given.protocol],
        )
        installation.runfold("setup")
        with (
            Services(installation.environment, installation.folder / "logs") as services,
            LogWatch(installation, _PARTITIONS) as watch,
        ):
            bench = Bench(installation, services, watch)
            services.await_ready(services.start("runfold-snapshot-compactor", "compactor"))
            try:
                for name, measure in (("kill", kill), ("roll", roll)):
                    if given.only in (None, name):
                        measure(bench, given.repeats)
            except (DemoError, TimeoutError):
                print(services.tails(), file=sys.stderr)
                raise
            for name, seconds in bench.found.items():
                print(json.dumps(_summary(given.protocol, name, seconds)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
