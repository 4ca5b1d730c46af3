"""Reading JSON that a stranger wrote: strict, bounded, and never a crash.

Refused, beyond what is no JSON (RFC 8259): NaN and infinities, numbers that overflow, a key that stands twice in one
object, text that is not Unicode (lone surrogates), nesting deeper than ``MAX_DEPTH``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

MAX_DEPTH = 100
"""Objects and arrays inside each other; small enough for every reader after this one."""


_MAX_DIGITS = 1000


class BadJson(ValueError):
    """The bytes are not acceptable JSON; the message says where and why."""


def loads(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read one JSON value.

    Raises:
        BadJson: See the module.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadJson(f"not UTF-8: byte {error.start} is 0x{data[error.start]:02x}") from None
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int
        )
    except RecursionError:
        raise BadJson(f"objects and arrays are nested deeper than {MAX_DEPTH} levels") from None
    except BadJson:
        raise
    except ValueError as error:
        raise BadJson(str(error)) from None
    _check(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise BadJson(f"the key {twice[:100]!r} stands twice in one object")
    return members


def _constant(name: str) -> NoReturn:
    raise BadJson(f"{name} is not JSON; use null or a string")


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise BadJson(f"a number of {len(text)} digits is too large; send it as a string")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise BadJson(f"the number {text[:40]} is too large; send it as a string")
    return value


def _check(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Walk without recursion: depth, and text that UTF-8 cannot hold."""
    rest = [(value, 1)]
    while rest:
        item, depth = rest.pop()
        if isinstance(item, str):
            _check_text(item)
        elif isinstance(item, dict | list):
            if depth > MAX_DEPTH:
                raise BadJson(f"objects and arrays are nested deeper than {MAX_DEPTH} levels")
            if isinstance(item, dict):
                for key in item:
                    _check_text(key)
            rest.extend((inner, depth + 1) for inner in (item.values() if isinstance(item, dict) else item))


def _check_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadJson(f"text with a lone surrogate is not Unicode: {text[:40]!r}") from None
