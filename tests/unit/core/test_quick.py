"""Frozen dataclasses with another ``__init__``: nobody can tell, except by the time."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pytest

from runfold.core.quick import quick, twin_of
from runfold.sdk.values import Result

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    first: int
    second: str = "two"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plain(_Base):
    third: float
    fourth: tuple[int, ...] = ()


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class _Quick(_Base):
    third: float
    fourth: tuple[int, ...] = ()


@quick
@dataclass(frozen=True, slots=True)
class _Placed(Generic[T]):
    value: T
    note: str | None = field(default=None, compare=False)


def test_what_is_made_is_what_the_plain_class_makes() -> None:
    """Fields, defaults, signature, equality, hash, repr, ``replace``."""
    plain, made = _Plain(first=1, third=3.0), _Quick(first=1, third=3.0)
    assert dataclasses.astuple(plain) == dataclasses.astuple(made)
    assert type(made) is _Quick
    assert inspect.signature(_Plain) == inspect.signature(_Quick)
    assert made == _Quick(first=1, second="two", third=3.0, fourth=())
    assert hash(made) == hash(_Quick(first=1, third=3.0))
    assert repr(made) == repr(plain).replace("_Plain", "_Quick")
    assert dataclasses.replace(made, first=2) == _Quick(first=2, third=3.0)
    assert _Placed(1, "x") == _Placed(1)


@pytest.mark.parametrize("given", [{}, {"first": 1}, {"first": 1, "third": 2.0, "fifth": 5}])
def test_arguments_are_checked_as_ever(given: dict[str, object]) -> None:
    """Missing ones, and those that nobody knows."""
    with pytest.raises(TypeError):
        _Quick(**given)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _Quick(*given)  # type: ignore[call-arg]


def test_it_is_frozen() -> None:
    """Nothing can be set, not even what is no field; and nothing deleted."""
    made = _Quick(first=1, third=3.0)
    for name in ("first", "third", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(made, name, 2)
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            delattr(made, name)
    assert made == _Quick(first=1, third=3.0)


def test_a_generic_one_can_be_made_by_its_parameter() -> None:
    """``Result[int](1)`` raised a TypeError, out of the depths of dataclasses."""
    assert _Placed[int](1) == _Placed(1)
    assert Result[int](1, patch={"a": 1}) == Result(1, patch={"a": 1})


def test_a_class_that_does_more_than_fill_its_slots_is_refused() -> None:
    """Where it is declared, not where it is used."""

    @dataclass(frozen=True, slots=True)
    class Checked:
        value: int

        def __post_init__(self) -> None:
            raise ValueError

    @dataclass(frozen=True, slots=True)
    class Listed:
        values: list[int] = field(default_factory=list)

    @dataclass(frozen=True)
    class Open:
        value: int

    for cls in (Checked, Listed):
        with pytest.raises(TypeError, match="does more than fill its slots"):
            quick(cls)
    with pytest.raises(TypeError, match="not made of slots alone"):
        twin_of(Open)


def test_a_subclass_keeps_its_class() -> None:
    """With slots or without; ``Result`` is what authors import."""

    class Found(Result[int]):
        """Has a dictionary."""

    class Slotted(Result[int]):
        __slots__ = ()

    for cls in (Found, Slotted):
        made = cls(1, patch={"a": 1})
        assert type(made) is cls
        assert (made.value, made.for_model, made.patch) == (1, None, {"a": 1})
