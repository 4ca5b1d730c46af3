"""The source that ``compiled`` generates: one class for each kind of value, and what the generated code calls.

In generated code ``v`` is the value that is read and ``p`` the position in it; ``n`` and ``e`` are anybody's. Variable
``x__a__b`` is field ``b`` of field ``a`` of the record, ``item_x__c`` an item of its field ``c``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Protocol

from runfold.core.quick import twin_of

_KEPT_LONGS = 4096
_INT64 = 1 << 63
_BITS, _MORE = 127, 128


class Unusual(ValueError):
    """Not for compiled code."""


class Uncompilable(TypeError):
    """There is no source for this."""


# --- what the generated code calls ------------------------------------------------------------------------------


class _Longs(dict[int, bytes]):
    """Zig-zag varints by value; epochs, lengths and small numbers come again and again. The key must be an int."""

    def __missing__(self, value: int) -> bytes:
        if not -_INT64 <= value < _INT64:
            raise Unusual
        rest = (value << 1) ^ (value >> 63)
        out = bytearray()
        while rest > _BITS:
            out.append(rest & _BITS | _MORE)
            rest >>= 7
        out.append(rest)
        if len(self) >= _KEPT_LONGS:
            self.clear()
        encoded = self[value] = bytes(out)
        return encoded


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint of any length and sign; gives it and the position behind it."""
    byte = data[at]
    at += 1
    number = byte & _BITS
    shift = 7
    # Ten bytes at most: to add up a megabyte of them would take hours.
    while byte > _BITS and shift < 70:  # noqa: PLR2004 - 10 * 7
        byte = data[at]
        at += 1
        number |= (byte & _BITS) << shift
        shift += 7
    if byte > _BITS or number >> 64:
        raise Unusual
    return (number >> 1) ^ -(number & 1), at


def _size(data: bytes, at: int) -> tuple[int, int]:
    """Read a length."""
    size, at = _long(data, at)
    if size < 0:
        raise Unusual
    return size, at


_LONGS = _Longs()


class Source:
    """Lines of source with their indentation, and the names that they use."""

    def __init__(self, **names: object) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "LONG": _LONGS,
            "join": b"".join,
            "long": _long,
            "new": object.__new__,
            "size": _size,
            "Unusual": Unusual,
            **names,
        }
        self._indent = ""

    def __call__(self, line: str) -> None:
        """Add a line."""
        self.lines.append(self._indent + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent what is added meanwhile."""
        self(head)
        before, self._indent = self._indent, self._indent + "    "
        yield
        self._indent = before

    def name_of(self, value: Any, name: str) -> str:  # noqa: ANN401 - whatever the code needs
        """Give the global name of a value; the same one for an equal value."""
        while self.names.setdefault(name, value) != value:
            name += "_"
        return name

    def number(self, x: str, function: str = "long") -> None:
        """Read a number; most take one byte and have no sign."""
        self("n = v[p]")
        self(f"if n & 129: {x}, p = {function}(v, p)")
        self(f"else: p += 1; {x} = n >> 1")

    def slice(self, x: str, form: str) -> None:
        """Read a length and as many bytes; ``form`` says what to do with them."""
        self("n = v[p]")
        self("if n & 129: n, p = size(v, p); e = p + n")
        self("else: p += 1; e = p + (n >> 1)")
        self(f"{x} = {form.format('v[p:e]')}; p = e")


# --- one class for each kind of value ---------------------------------------------------------------------------


class Node(Protocol):
    """How values of one exact type are read and written."""

    @property
    def cls(self) -> type[Any]:
        """The type."""

    def write(self, out: Source, x: str) -> list[str]:
        """Add what must be done with variable ``x`` first (it may be changed), and give the expressions to join."""

    def read(self, out: Source, x: str) -> None:
        """Add what reads into variable ``x``."""


@dataclasses.dataclass(frozen=True, slots=True)
class Long:
    """A number."""

    cls = int

    def write(self, out: Source, x: str) -> list[str]:  # noqa: ARG002, D102 - see Node
        return [f"LONG[{x}]"]

    def read(self, out: Source, x: str) -> None:  # noqa: D102 - see Node
        out.number(x)


@dataclasses.dataclass(frozen=True, slots=True)
class Boolean:
    """True is 1."""

    cls = bool

    def write(self, out: Source, x: str) -> list[str]:  # noqa: ARG002, D102 - see Node
        return [rf'(b"\1" if {x} else b"\0")']

    def read(self, out: Source, x: str) -> None:  # noqa: D102 - see Node
        out(f"n = v[p]; p += 1; {x} = n == 1")
        out("if n > 1: raise Unusual")


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """UTF-8."""

    cls = str

    def write(self, out: Source, x: str) -> list[str]:  # noqa: D102 - see Node
        out(f"{x} = {x}.encode()")
        return [f"LONG[len({x})]", x]

    def read(self, out: Source, x: str) -> None:  # noqa: D102 - see Node
        out.slice(x, "{}.decode()")


@dataclasses.dataclass(frozen=True, slots=True)
class Bytes:
    """Themselves."""

    cls = bytes

    def write(self, out: Source, x: str) -> list[str]:  # noqa: ARG002, D102 - see Node
        return [f"LONG[len({x})]", x]

    def read(self, out: Source, x: str) -> None:  # noqa: D102 - see Node
        out.slice(x, "{}")


@dataclasses.dataclass(frozen=True, slots=True)
class Enum:
    """A string; another one than a member's is unusual."""

    cls: type[StrEnum]

    def write(self, out: Source, x: str) -> list[str]:  # noqa: D102 - see Node
        encoded = {member: _LONGS[len(member.encode())] + member.encode() for member in self.cls}
        return [f"{out.name_of(encoded, f'bytes_of_{self.cls.__name__}')}[{x}]"]

    def read(self, out: Source, x: str) -> None:  # noqa: D102 - see Node
        members = {member.encode(): member for member in self.cls}
        out.slice(x, out.name_of(members, self.cls.__name__ + "_of") + "[{}]")


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A dataclass; ``missing``: what a reader puts where the schema has no field."""

    cls: Any
    fields: dict[str, Node]
    missing: dict[str, Any]

    def write(self, out: Source, x: str) -> list[str]:  # noqa: D102 - see Node
        pieces: list[str] = []
        for name, node in self.fields.items():
            out(f"{x}__{name} = {x}.{name}")
            pieces += write_checked(node, out, f"{x}__{name}")
        return pieces

    def read(self, out: Source, x: str) -> None:
        """Fill an instance of the twin, which then becomes one of the class."""
        for name, node in self.fields.items():
            node.read(out, f"{x}__{name}")
        cls = out.name_of(self.cls, self.cls.__name__)
        try:
            twin = twin_of(self.cls)
        except TypeError as error:
            raise Uncompilable(str(error)) from error
        out(f"{x} = new({out.name_of(twin, f'{cls}Twin')})")
        for name in self.fields:
            out(f"{x}.{name} = {x}__{name}")
        for name, value in self.missing.items():
            out(f"{x}.{name} = {value!r}")
        out(f"{x}.__class__ = {cls}")


@dataclasses.dataclass(frozen=True, slots=True)
class Union:
    """A choice by exact type; None stands for null."""

    branches: list[Node | None]
    cls = object

    def write(self, out: Source, x: str) -> list[str]:
        """Join all but a branch's last piece here, so that a payload's bytes are copied once."""
        for index, node in enumerate(self.branches):
            test = f"{x} is None" if node is None else f"type({x}) is {out.name_of(node.cls, node.cls.__name__)}"
            with out.block(f"{'elif' if index else 'if'} {test}:"):
                *first, last = ['b""'] if node is None else node.write(out, x)
                out(f"head_{x} = {' + '.join([repr(bytes([index * 2])), *first])}")
                out(f"{x} = {last}")
        out("else: raise Unusual")
        return [f"head_{x}", x]

    def read(self, out: Source, x: str) -> None:  # noqa: D102 - see Node
        out(f"branch_{x} = v[p]; p += 1")
        for index, node in enumerate(self.branches):
            with out.block(f"{'elif' if index else 'if'} branch_{x} == {index * 2}:"):
                if node is None:
                    out(f"{x} = None")
                else:
                    node.read(out, x)
        out("else: raise Unusual")


@dataclasses.dataclass(frozen=True, slots=True)
class Items:
    """An array in one block; or, with ``keyed``, a map, where a tuple has pairs."""

    cls: type[Any]
    item: Node
    keyed: bool = False

    def write(self, out: Source, x: str) -> list[str]:  # noqa: D102 - see Node
        names = f"key_{x}, item_{x}" if self.keyed else f"item_{x}"
        with out.block(f"if {x}:"):
            if self.keyed:
                out(f"{x} = dict({x})")
            out(f"out_{x} = [LONG[len({x})]]")
            with out.block(f"for {names} in {x}{'.items()' if self.keyed else ''}:"):
                pieces = write_checked(Text(), out, f"key_{x}") if self.keyed else []
                pieces += write_checked(self.item, out, f"item_{x}")
                out(f"out_{x} += ({', '.join(pieces)},)")
            out(rf'{x} = join(out_{x}) + b"\0"')
        out(rf'else: {x} = b"\0"')
        return [x]

    def read(self, out: Source, x: str) -> None:  # noqa: D102 - see Node
        out(f"{x} = {'{}' if self.keyed else '[]'}")
        out.number(f"left_{x}", "size")
        with out.block(f"if left_{x}:"):
            with out.block(f"for _ in range(left_{x}):"):
                if self.keyed:
                    Text().read(out, f"key_{x}")
                self.item.read(out, f"item_{x}")
                out(f"{x}[key_{x}] = item_{x}" if self.keyed else f"{x}.append(item_{x})")
            out("if v[p]: raise Unusual")
            out("p += 1")
        if self.cls is tuple:
            out(f"{x} = tuple({x}.items())" if self.keyed else f"{x} = tuple({x})")


def write_checked(node: Node, out: Source, x: str) -> list[str]:
    """Write a value whose type nobody has looked at; a union looks for itself."""
    if not isinstance(node, Union):
        out(f"if type({x}) is not {out.name_of(node.cls, node.cls.__name__)}: raise Unusual")
    return node.write(out, x)
