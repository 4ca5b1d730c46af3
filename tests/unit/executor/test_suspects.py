"""The last attempts of calls that have lost their process twice."""

from __future__ import annotations

from runfold.runtime.executor.effects import EffectKey
from runfold.runtime.executor.suspects import HELD_S, SHARE, Suspects


def keys(count: int) -> list[EffectKey]:
    return [EffectKey(f"r{number}", 2, 3) for number in range(count)]


def admitted(suspects: Suspects, asking: list[EffectKey], now: float) -> list[EffectKey]:
    return [key for key in asking if suspects.admit(key, now)]


def test_one_goes_at_a_time() -> None:
    """The next one goes when the process has survived it."""
    suspects, (first, second, third) = Suspects(), keys(3)
    assert admitted(suspects, [first, second, third], 0.0) == [first]
    assert admitted(suspects, [second, third], 1.0) == []
    suspects.ended(first)
    assert admitted(suspects, [third, second], 2.0) == [third]


def test_who_was_admitted_stays_so() -> None:
    """Asked again before its request is written, e.g. since its batch was thrown away."""
    suspects, [key] = Suspects(), keys(1)
    assert suspects.admit(key, 0.0)
    assert suspects.admit(key, 0.1)


def test_of_many_a_twentieth_goes() -> None:
    """Two kills by an operator must not make a thousand runs go one after the other."""
    suspects, many = Suspects(), keys(10 * SHARE)
    at_work = admitted(suspects, many, 0.0)
    assert len(at_work) == len(many) / SHARE
    assert admitted(suspects, many, 0.1) == at_work


def test_a_long_call_does_not_hold_the_others_up_for_ever() -> None:
    suspects, (first, second) = Suspects(), keys(2)
    assert suspects.admit(first, 0.0)
    assert not suspects.admit(second, HELD_S - 0.3)
    assert suspects.admit(second, HELD_S + 0.3)


def test_who_asks_no_more_is_not_counted() -> None:
    """Cancelled, or of an epoch that is over."""
    suspects, many = Suspects(), keys(3 * SHARE)
    admitted(suspects, many, 0.0)
    left = many[-2:]
    for moment in (3.0, 6.0):
        admitted(suspects, left, moment)
    for key in many:
        if key not in left:
            suspects.ended(key)
    assert len(admitted(suspects, left, 6.1)) == 1
