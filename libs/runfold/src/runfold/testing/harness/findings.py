"""What ``crash_everywhere`` says."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

PERSON = "person"
_SHOWN_PLACES = 3

TITLES = {
    "scenario": "the scenario fails",
    "result": "it ends otherwise than without a crash",
    "repeated": "a repeated execution has another result",
    "arguments": "a step is executed with other arguments or under another key",
    "lookup": "a lookup is wrong",
    "planner": "a planner does not depend on the state alone",
    "definition": "the app is another one in every process",
    "unstable": "two runs without any crash differ",
    "unreached": "not every place was tried",
    PERSON: "a person would have to decide",
}


@dataclass
class Finding:
    """Something that goes wrong, and everywhere where it does.

    Attributes:
        kind: A key of ``TITLES``.
        what: In words, of the first place.
        subject: Equal findings have the same: a tool and step, or where the scenario failed.
        places: Where the process died; empty: it needs no crash.
    """

    kind: str
    what: str
    subject: str
    places: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{TITLES[self.kind]}: {self.what}"]
        shown = list(dict.fromkeys(self.places))
        lines += [f"    killed {place}" for place in shown[:_SHOWN_PLACES]]
        if len(shown) > _SHOWN_PLACES:
            lines.append(f"    and in {len(shown) - _SHOWN_PLACES} other places")
        return "\n".join(lines)


class CrashFindingsError(AssertionError):
    """What ``Report.raise_for_findings`` raises; its text is the report."""


@dataclass
class Report:
    """What was tried and what was found. ``str`` of it is for people; awaiting it gives it.

    Attributes:
        awaits: Places at which the executor's process could have died.
        tried: At how many it did.
        findings: Equal ones once.
        decisions_of_people: Where the run would have waited as indeterminate: no defect, unless it was asked for.
        seconds: That it took, of real time.
    """

    awaits: int = 0
    tried: int = 0
    findings: list[Finding] = field(default_factory=list)
    decisions_of_people: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def raise_for_findings(self) -> None:
        """Fail the test, if something was found.

        Raises:
            CrashFindingsError: Something was.
        """
        if self.findings:
            raise CrashFindingsError(str(self))

    def add(self, finding: Finding, *, is_failure: bool = True) -> None:
        """Take a finding, or add its places to an equal one."""
        found = self.findings if is_failure else self.decisions_of_people
        known = next((one for one in found if (one.kind, one.subject) == (finding.kind, finding.subject)), None)
        if known is None:
            found.append(finding)
        else:
            known.places += finding.places

    def __str__(self) -> str:
        what = f"{len(self.findings)} finding{'' if len(self.findings) == 1 else 's'}" if self.findings else "all well"
        lines = [f"crash_everywhere: killed at {self.tried} of {self.awaits} awaits: {what}"]
        lines += [f"{number}. {finding}" for number, finding in enumerate(self.findings, 1)]
        lines += [f"-  {finding}" for finding in self.decisions_of_people]
        return "\n".join(lines)

    def __await__(self) -> Generator[None, None, Report]:
        yield from ()
        return self
