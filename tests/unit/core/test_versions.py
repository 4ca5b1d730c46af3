"""The version gate: every part under every policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runfold.core.events import UNKNOWN_VERSION, Version
from runfold.core.versions import DEFAULT_POLICY, PARTS, Changed, Gate, Refused, Same, gate, part_of

OLD = Version("r1", "p1", "t1", "m1", tools=(("a", "sig-a"), ("b", "sig-b")))
FIELDS = {"revision": "revision", "prompt": "prompt_hash", "tools": "tools_hash", "model": "model"}


def differing(*parts: str) -> Version:
    """Change these parts."""
    new = OLD
    for part in parts:
        new = replace(new, **{FIELDS[part]: "new"})  # type: ignore[arg-type]
    return new


def ask(new: Version, policy: dict[str, str] | None = None, *, used: str = "", accept: bool = False) -> Gate:
    """Ask the gate."""
    return gate(OLD, new, policy or {}, frozenset(used.split()), accept=accept)


def test_the_same_version_passes() -> None:
    """Even where everything is refused."""
    assert ask(OLD, dict.fromkeys(PARTS, "refuse")) == Same()


@pytest.mark.parametrize("part", PARTS)
def test_an_accepted_part_is_a_change(part: str) -> None:
    """The event says what was decided for it."""
    assert ask(differing(part), {part: "accept"}) == Changed(((part, "accept"),))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("rule", ["refuse", "no such rule"])
def test_a_refused_part_is_named_with_old_and_new(part: str, rule: str) -> None:
    """A rule that nobody knows refuses too."""
    assert ask(differing(part), {part: rule}) == Refused({part: (part_of(OLD, part), "new")})


@pytest.mark.parametrize("part", ["revision", "prompt", "model"])
def test_compatible_means_tools_only(part: str) -> None:
    """Of a prompt nobody can say that."""
    assert isinstance(ask(differing(part), {part: "compatible"}), Refused)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("rule", ["accept", "refuse", "compatible"])
def test_an_operator_accepts_whatever_differs(part: str, rule: str) -> None:
    """And that is what the event says."""
    assert ask(differing(part), {part: rule}, used="a", accept=True) == Changed(((part, "operator"),))


def test_the_default_policy() -> None:
    """As in the contract."""
    assert DEFAULT_POLICY == {"revision": "accept", "prompt": "refuse", "tools": "compatible", "model": "refuse"}
    assert ask(differing("revision", "tools")) == Changed((("revision", "accept"), ("tools", "compatible")))
    assert ask(differing("revision", "prompt", "model")) == Refused({"prompt": ("p1", "new"), "model": ("m1", "new")})


@pytest.mark.parametrize(
    ("tools", "used", "expected"),
    [
        ({"a": "sig-a", "b": "changed"}, "a", Changed),
        ({"a": "sig-a"}, "a", Changed),
        ({"a": "sig-a", "b": "sig-b", "c": "sig-c"}, "a b", Changed),
        ({"a": "changed", "b": "sig-b"}, "a", Refused),
        ({"b": "sig-b"}, "a", Refused),
        ({"a": "sig-a", "b": "sig-b"}, "a ghost", Changed),
        ({"a": "sig-a", "ghost": "sig-g"}, "a ghost", Changed),
        ({}, "", Changed),
    ],
)
def test_tools_are_compatible_if_every_called_one_keeps_its_signature(
    tools: dict[str, str], used: str, expected: type[Gate]
) -> None:
    """A tool that the model made up had no signature to keep."""
    new = replace(OLD, tools_hash="new", tools=tuple(sorted(tools.items())))
    assert isinstance(ask(new, used=used), expected)


def test_a_part_that_was_unknown_differs() -> None:
    """None is a value like any other."""
    answer = gate(replace(OLD, model=None), OLD, {}, frozenset())
    assert answer == Refused({"model": (None, "m1")})


def test_a_run_of_an_unknown_agent_is_stamped() -> None:
    """It was never driven: nothing can be incompatible."""
    assert gate(UNKNOWN_VERSION, OLD, dict.fromkeys(PARTS, "refuse"), frozenset()) == Changed((("agent", "stamped"),))
