"""Strategies for whatever a dataclass of the core may hold, derived from its annotations."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import StrEnum
from typing import Any

from hypothesis import strategies as st

from runfold.core.payload import BlobRef, Inline
from runfold.core.state import Call, Turn

TEXT = st.text(max_size=12)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: _INT64,
    bool: st.booleans(),
    bytes: st.binary(max_size=20),
    type(None): st.none(),
}
PAYLOADS = st.binary(max_size=40).map(Inline) | st.builds(
    BlobRef, st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(0, 2**40)
)


def instances(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Instances of a dataclass, every field drawn."""
    return st.builds(cls, **{name: values(hint) for name, hint in typing.get_type_hints(cls).items()})


def values(hint: Any) -> st.SearchStrategy[Any]:  # noqa: C901, PLR0911 - a type annotation; one return per kind of it
    """Values of one annotation."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Inline, BlobRef):
        return PAYLOADS
    if origin in (types.UnionType, typing.Union):
        return st.one_of([values(argument) for argument in arguments])
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    if hint is Turn:
        return st.lists(instances(Call), max_size=3).map(Turn)
    if origin is tuple and typing.get_origin(arguments[0]) is tuple:
        key, value = typing.get_args(arguments[0])
        return st.dictionaries(values(key), values(value), max_size=3).map(lambda pairs: tuple(pairs.items()))
    if origin is tuple and arguments[-1] is not ...:
        return st.tuples(*map(values, arguments))
    if origin in (tuple, list):
        return st.lists(values(arguments[0]), max_size=3).map(origin)
    if origin is set:
        return st.sets(values(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=3)
    assert isinstance(hint, type), hint
    assert dataclasses.is_dataclass(hint), hint
    return instances(hint)
