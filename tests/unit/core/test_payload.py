"""Payloads are equal by their bytes, and JSON has one form."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runfold.core.payload import BlobRef, Inline, canonical_json, inline_json, same

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_a_payload_is_the_same_wherever_it_is_stored() -> None:
    """Equal, and of one hash, inline or in the object store."""
    inline = Inline(b"abc")
    blob = BlobRef(hashlib.sha256(b"abc").hexdigest(), 3)
    assert inline == blob
    assert blob == inline
    assert len({inline, blob}) == 1
    assert (inline.digest, inline.size) == (blob.digest, blob.size)
    assert inline != Inline(b"abd")
    assert blob != Inline(b"abd")
    assert inline != b"abc"
    assert same(inline, blob)
    assert same(None, None)
    assert not same(None, inline)


@given(JSON)
def test_canonical_json_means_the_same_and_is_stable(value: object) -> None:
    """Reading and writing it again gives the same bytes."""
    data = canonical_json(value)
    assert canonical_json(json.loads(data)) == data
    assert json.loads(data) == value


def test_canonical_json_is_sorted_compact_utf8() -> None:
    """One form."""
    assert canonical_json({"b": [1, None], "a": "\u00e9"}) == '{"a":"\u00e9","b":[1,null]}'.encode()
    assert inline_json({"b": 1, "a": 2}) == inline_json({"a": 2, "b": 1})


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf], "\ud800"])
def test_what_json_cannot_hold_is_a_value_error(value: object) -> None:
    """NaN, infinities and half a surrogate pair."""
    with pytest.raises(ValueError):  # noqa: PT011 - Python's own messages
        canonical_json(value)


def test_what_is_not_json_is_a_type_error() -> None:
    """Bytes, say."""
    with pytest.raises(TypeError):
        canonical_json({"a": b"x"})
