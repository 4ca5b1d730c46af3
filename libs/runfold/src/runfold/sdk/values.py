"""What an author's tool, lookup or approval function returns or raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar

from runfold.core.quick import quick

T_co = TypeVar("T_co", covariant=True)


class Absent(Enum):
    """The type of ``ABSENT``, for the annotation of a lookup function."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final[Literal[Absent.ABSENT]] = Absent.ABSENT
"""A lookup returns it to say: this key is not there, it never happened."""


class Indeterminate(Exception):
    """A lookup raises it to say: I cannot tell. It is asked again, and in the end a person decides."""


@quick
@dataclass(frozen=True, slots=True)
class Result(Generic[T_co]):
    """What a tool returns when there is more to say than a plain value.

    Attributes:
        value: What is recorded; anything that pydantic can serialise.
        for_model: What the model sees, if that differs; None: the value.
        patch: Changes of the run's state, key -> new value, applied in the order of the calls.
    """

    value: T_co
    for_model: Any = None
    patch: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """A call needs a person's approval.

    Attributes:
        message: For the approver, in words.
        detail: For the approver, as JSON: what was looked up to decide that somebody must look.
    """

    message: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
