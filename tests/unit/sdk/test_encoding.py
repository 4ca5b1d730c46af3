"""Results as canonical JSON: the short way, where there is nothing to sort, gives what the long way gives."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, RootModel
from pydantic_core import to_json

from runfold.core.payload import canonical_json
from runfold.sdk.encoding import Encoder, NotSerialisable, dump_any

_PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"]))
_JSON = st.recursive(_PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\\{é", max_size=3), inner))


@given(_JSON)
def test_any_value_is_written_in_the_one_form(value: object) -> None:
    """Whatever pydantic writes is what is hashed and compared."""
    assert dump_any(value) == canonical_json(json.loads(to_json(value, inf_nan_mode="null")))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1, b"1"),
        (-0, b"0"),
        (10**30, b"1000000000000000000000000000000"),
        (1e16, b"1e+16"),
        (0.1, b"0.1"),
        (float("nan"), b"null"),
        ("sky", b'"sky"'),
        ("ü \x7f \u2028", '"ü \x7f \u2028"'.encode()),
        ('a"b\n', b'"a\\"b\\n"'),
        ([1, [2, None]], b"[1,[2,null]]"),
        ({"b": 1, "a": [2]}, b'{"a":[2],"b":1}'),
        ([{"b": 1, "a": 2}], b'[{"a":2,"b":1}]'),
    ],
)
def test_by_example(value: object, written: bytes) -> None:
    """Numbers, texts, and what has to be sorted."""
    assert dump_any(value) == written


def test_a_number_that_python_refuses_to_read_is_not_recorded() -> None:
    """It would stop every later model call of the run, for ever."""
    with pytest.raises(NotSerialisable):
        dump_any(10**5000)


def test_constants_that_are_no_json_are_not_recorded() -> None:
    """A model may ask pydantic for ``NaN`` and ``Infinity``."""

    class Scores(RootModel[list[float]]):
        model_config = ConfigDict(ser_json_inf_nan="constants")

    with pytest.raises(NotSerialisable):
        Encoder(Scores, "f").dump(Scores([float("nan"), float("inf")]))
