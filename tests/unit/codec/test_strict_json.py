"""Strict JSON: what a stranger wrote is read as RFC 8259 says, or refused with a reason; never a crash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runfold.codec.strict_json import MAX_DEPTH, BadJson, loads
from runfold.core.payload import canonical_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_canonical_json_is_read_back(value: object) -> None:
    assert canonical_json(loads(canonical_json(value))) == canonical_json(value)


@given(st.binary(max_size=60) | st.text('[]{}",:-+0123456789.eEnulltrfas\\ \n').map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """What is read can be written in canonical form."""
    try:
        value = loads(data)
    except BadJson:
        return
    assert canonical_json(value)
    assert value == json.loads(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b'{"a": 1} x', "Extra data"),
        (b"\xff", "not UTF-8: byte 0 is 0xff"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"NaN", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"1e999", "too large"),
        (b"9" * 5000, "5000 digits"),
        (b'{"a": {"b": 1, "b": 2}}', "'b' stands twice"),
        (b'{"\\ud800": 1}', "lone surrogate"),
        (b'["\\udfff"]', "lone surrogate"),
        (b"[" * 100_000, f"deeper than {MAX_DEPTH}"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, f"deeper than {MAX_DEPTH}"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), f"deeper than {MAX_DEPTH}"),
    ],
)
def test_what_is_refused_says_why(data: bytes, why: str) -> None:
    with pytest.raises(BadJson) as caught:
        loads(data)
    assert why in str(caught.value)


@pytest.mark.parametrize("data", [b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, b'"\\ud83d\\ude00"', b"-0.0", b" null "])
def test_what_is_legal_is_read(data: bytes) -> None:
    """The allowed depth, a surrogate pair, and plain values."""
    value: Any = loads(data)
    assert value == json.loads(data)
