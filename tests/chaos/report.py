"""What the chaos says: a line every few seconds, and a table at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median

from tests.chaos.faults import Outage
from tests.chaos.fleet import Kill
from tests.crowd.aftermath import Aftermath, Claim
from tests.crowd.checkers import Judged
from tests.crowd.names import COLLECTIONS, REPEATABLE

_SHOWN = 30


@dataclass(frozen=True, slots=True)
class Report:
    """How it ended.

    Attributes:
        problems: None if all is well.
        faults: Kind -> how often.
        disturbed: Runs that more than one epoch has written.
        figures: What the table shows, in order.
    """

    seed: int
    problems: list[str]
    faults: Counter[str]
    disturbed: int
    figures: dict[str, str]

    def lines(self) -> list[str]:
        """Give the table and the last line."""
        width = max(map(len, self.figures))
        table = [f"  {name:<{width}}  {value}" for name, value in self.figures.items()]
        found = [f"  {problem}" for problem in self.problems[:_SHOWN]]
        left = len(self.problems) - len(found)
        return [
            *table,
            *found,
            *([f"  and {left} more"] if left else []),
            f"chaos: {'FAILED' if self.problems else 'ok'} (seed {self.seed})",
        ]


def figures(
    aftermath: Aftermath,
    judged: Judged,
    faults: Counter[str],
    answers: Counter[str],
    take_overs_s: list[float],
    drain_s: float,
) -> dict[str, str]:
    """Give the rows of the table."""
    posts = aftermath.world.posts
    unrepeatable = [post for post in posts if post.collection not in {COLLECTIONS[tool] for tool in REPEATABLE}]
    effects = Counter((post.collection, post.key) for post in unrepeatable if post.is_new)
    return {
        "faults survived": f"{faults.total()}: {_counted(faults)}",
        "runs": f"{len(aftermath.started)}, all of them ended {drain_s:.0f} s after the last fault"
        if not _of(judged, "every_run")
        else str(len(aftermath.started)),
        "people": _counted(answers),
        "effects": f"{len(effects)} (posted {len(unrepeatable)} times)",
        "duplicates": str(sum(count - 1 for count in effects.values())),
        "inputs": str(len(aftermath.inputs)),
        "lost inputs": str(_of(judged, "every_input_leaves_one_record")),
        "stuck runs": str(_of(judged, "every_run_completes")),
        "traces of the faults": ", ".join(f"{name} {count}" for name, count in aftermath.log.disturbances().items()),
        "questions sent on waking": str(judged.late_questions),
        "SIGKILL to next claim": _times(take_overs_s),
    }


def take_overs(claims: list[Claim], kills: list[Kill], outages: list[Outage]) -> list[float]:
    """Give, for each partition of an executor that was killed while Kafka was there, the seconds to the next claim."""
    found = []
    for kill in (kill for kill in kills if kill.role == "executor"):
        for partition in {claim.partition for claim in claims}:
            here = [claim for claim in claims if claim.partition == partition]
            before = [claim for claim in here if claim.at_ms <= kill.at_ms]
            after = [claim for claim in here if claim.at_ms > kill.at_ms]
            if not before or not after or before[-1].pid != kill.pid:
                continue
            end = after[0].at_ms
            if not any(one.server == "kafka" and one.from_ms < end and one.to_ms > kill.at_ms for one in outages):
                found.append((end - kill.at_ms) / 1000)
    return found


def _of(judged: Judged, checker: str) -> int:
    return sum(problem.startswith(checker) for problem in judged.problems)


def _times(seconds: list[float]) -> str:
    if not seconds:
        return "no executor with partitions was killed while Kafka was there"
    return f"p50 {median(seconds):.1f} s, max {max(seconds):.1f} s, of {len(seconds)} partitions"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
