"""Arguments and results as canonical JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from runfold.core.payload import canonical_json
from runfold.sdk.errors import DefinitionError
from runfold.sdk.values import Absent, Result


class NotSerialisable(Exception):
    """A value has no JSON form. The message says which type, and what pydantic said."""


class Encoder:
    """Serialises what one function returns, by its return annotation where there is one."""

    def __init__(self, annotation: Any, owner: str) -> None:  # noqa: ANN401 - an annotation
        """Build the serialiser.

        Args:
            annotation: The return annotation; ``Result[T]`` and ``T | Absent`` count as T; ``Any``: unknown.
            owner: The function, for error messages.

        Raises:
            DefinitionError: pydantic has no JSON form for the type.
        """
        self._adapter: TypeAdapter[Any] | None = None
        kept = _value_type(annotation)
        if kept is Any:
            return
        try:
            self._adapter = TypeAdapter(kept)
        except PydanticUndefinedAnnotation:
            return  # a name that exists for type checkers only: the value's own type decides
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            message = (
                f"{owner} returns {kept!r}, which pydantic cannot serialise ({_first_line(error)}): return a type that "
                "it can (a dict, a dataclass, a pydantic model), or leave the annotation out"
            )
            raise DefinitionError(message) from error

    def dump(self, value: object) -> bytes:
        """Encode a value; NaN and infinities become null, as pydantic does it.

        Raises:
            NotSerialisable: It has no JSON form.
        """
        if self._adapter is not None:
            try:
                # What `dump_json` calls, without the dozen options that it passes on. False, not "none": that takes a
                # microsecond to be understood, and both mean the same.
                return _canonical(self._adapter.serializer.to_json(value, warnings=False))
            except (PydanticSerializationError, ValueError, TypeError, AttributeError, RecursionError):
                return dump_any(value)  # the author's annotation was wrong; the value may still be plain
        return dump_any(value)

    def admits(self, value: object) -> bool:
        """Whether the annotation allows this value; True where nothing is annotated."""
        if self._adapter is None:
            return True
        try:
            self._adapter.validate_python(value)
        except ValidationError:
            return False
        return True


def dump_any(value: object) -> bytes:
    """Encode any value by its own type.

    Raises:
        NotSerialisable: It has no JSON form.
    """
    try:
        return _canonical(to_json(value, inf_nan_mode="null"))
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        message = f"a value of type {type(value).__name__} has no JSON form: {_first_line(error)}"
        raise NotSerialisable(message) from error


def dump_patch(patch: object) -> bytes | None:
    """Encode state changes as a JSON object; None if there are none.

    Raises:
        NotSerialisable: It is not a mapping of strings to values with a JSON form.
    """
    if patch is None:
        return None
    if not isinstance(patch, Mapping) or not all(isinstance(key, str) for key in patch):
        message = f"a patch maps keys (strings) to values, not {patch!r:.200}"
        raise NotSerialisable(message)
    return dump_any(dict(patch)) if patch else None


def dump_arguments(arguments: Mapping[str, Any]) -> bytes:
    """Encode validated arguments so that they validate again from the record.

    Raises:
        NotSerialisable: An argument has no JSON form (NaN included: it would not come back).
    """
    try:
        return canonical_json(to_jsonable_python(dict(arguments)))
    except (PydanticSerializationError, ValueError, TypeError) as error:
        raise NotSerialisable(_first_line(error)) from error


# Without an object there is nothing to sort; a whole number, and a text without an escape, can be written in one way
# only, and pydantic leaves out the same blanks. Numbers that Python refuses to read are not among them, nor NaN.
_IN_ONE_WAY = re.compile(rb'(?:[\[\],]|"[^"\\]*"|-?[0-9]{1,4000}(?![0-9])|true|false|null)*+')


def _canonical(encoded: bytes) -> bytes:
    return encoded if _IN_ONE_WAY.fullmatch(encoded) else canonical_json(json.loads(encoded))


def _value_type(annotation: Any) -> Any:  # noqa: ANN401 - annotations
    """The type of the recorded value: without ``Absent``, ``Result`` opened; Any where that is not one type."""
    origin = get_origin(annotation)
    if origin is Annotated and get_origin(get_args(annotation)[0]) is Result:
        return _value_type(get_args(annotation)[0])
    if origin is Result:
        return _value_type(get_args(annotation)[0])
    if annotation is Result or annotation is Absent or isinstance(annotation, str):
        return Any
    if origin in (Union, UnionType):
        kept = [_value_type(part) for part in get_args(annotation) if part is not Absent]
        return Any if Any in kept or not kept else Union[tuple(kept)]  # noqa: UP007 - built from a list
    return annotation


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]
