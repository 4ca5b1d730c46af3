"""What an answer about a due call means. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from runfold.codec.input_types import VerdictInput
from runfold.core.policy import LOOKUP_TRIES, MAX_LOOKUP_PAUSE_S, lookup_backoff
from runfold.ports.agents import Begun, NotThere, Returned, Unknown
from runfold.ports.store import DueCall

_MAX_ERROR = 2000
Answer = Returned | NotThere | Begun | Unknown


@dataclass(frozen=True, slots=True)
class Later:
    """Nothing can be said yet: look again in ``delay_s`` seconds; ``tries``: lookups in vain so far."""

    delay_s: float
    tries: int
    why: str


def judge(
    due: DueCall, answer: Answer, holder: str, scan_s: float, tries_allowed: int = LOOKUP_TRIES
) -> VerdictInput | Later:
    """Judge a LOOKUP call by what its lookup said.

    *Found* is believed at once. *Absent* is believed only of an overdue call: its writer may be about to act, and
    starts nothing after the call's time-out; and only when what it did before would show by now (``settle``).
    Undecided too often, and overdue: a person has to find out.
    """
    match answer:
        case Returned():
            return _verdict(due, holder, found=answer)
        case NotThere():
            return _absent(due, holder, scan_s)
        case Begun():
            return Later(scan_s, due.tries, "the effects table keeps it, and its owner asks that")
        case Unknown():
            tries = due.tries + 1
            if tries >= tries_allowed and due.overdue:
                return _verdict(due, holder, error=f"{tries} lookups did not decide it; the last: {answer.error}")
            return Later(lookup_backoff(due.tries), tries, answer.error)


def _absent(due: DueCall, holder: str, scan_s: float) -> VerdictInput | Later:
    if not due.overdue:
        return Later(scan_s, due.tries, "absent, which is believed only after its time-out and grace")
    if due.settles_in_s > 0:
        pause = max(scan_s, min(due.settles_in_s, MAX_LOOKUP_PAUSE_S))
        return Later(pause, due.tries, "absent, which is believed only once its lookup has settled")
    return _verdict(due, holder)


def judge_manual(due: DueCall, holder: str, scan_s: float) -> VerdictInput | Later:
    """Judge a MANUAL call: nobody can be asked but a person, once its writer is gone and its time is over."""
    if due.owner_gone and due.overdue:
        return _verdict(due, holder, error="its executor is gone, and the tool's recovery is MANUAL: a person decides")
    return Later(scan_s, due.tries, "its executor may still say how it ended")


def unsayable(due: DueCall, holder: str, problem: str) -> VerdictInput:
    """Give the verdict for a result that was found and does not fit into an input: a person has to record it."""
    return _verdict(due, holder, error=f"the lookup found its result, which cannot be sent as a verdict: {problem}")


def _verdict(due: DueCall, holder: str, *, found: Returned | None = None, error: str | None = None) -> VerdictInput:
    call = due.call
    if found is not None:
        return VerdictInput(
            run_id=call.run_id,
            step=call.step,
            attempt=call.attempt,
            outcome="found",
            verdict_by=holder,
            result=found.result,
            for_model=found.for_model,
            patch=found.patch,
            result_outcome=found.outcome,
        )
    return VerdictInput(
        run_id=call.run_id,
        step=call.step,
        attempt=call.attempt,
        outcome="absent" if error is None else "indeterminate",
        verdict_by=holder,
        error=None if error is None else _clean(error),
    )


def _clean(error: str) -> str:
    """Make an author's words fit into an input: bounded, and nothing that JSON text cannot hold."""
    text = error[:_MAX_ERROR].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.encode(errors="replace").decode() or "nobody knows"
