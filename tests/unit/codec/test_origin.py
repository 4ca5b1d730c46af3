"""The origin of a forwarded input: written and read the same, and nothing else is read."""

from __future__ import annotations

import pytest

from runfold.codec.origin import BadOrigin, format_origin, parse_origin
from runfold.core.events import Cause


def test_an_origin_comes_back_with_its_text_as_the_default_id() -> None:
    data = format_origin("runfold.requests", 3, 2**62)
    assert data == b"runfold.requests/3/4611686018427387904"
    assert parse_origin(data) == Cause("runfold.requests", 3, 2**62, data.decode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a/b/c",
        b"a/1",
        b"a/1/2/3",
        b"a/-1/2",
        b"a/1/2\n",
        b"/1/2",
        b"a/1/\xd9\xa3",
        b"\xff/1/2",
        b"a/1/" + b"9" * 20,
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(BadOrigin, match="rf-origin is not topic/partition/offset"):
        parse_origin(data)
