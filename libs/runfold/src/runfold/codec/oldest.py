"""Which version of a schema writes a record: the oldest that can say all of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from runfold.codec.avro import Schema


class Oldest:
    """Chooses among the versions of one record type.

    A field that an older version lacks has a default, which that version's readers fill in: a record that holds
    nothing but defaults there loses nothing.

    Args:
        cls: The record's dataclass.
        versions: Oldest first; the newest has every field.
        record: Name of the record within the schemas; None: the schema itself.

    Raises:
        ValueError: A version lacks a field that has no default: nothing could ever be written in it.
    """

    def __init__(self, cls: type[Any], versions: Sequence[Schema], record: str | None = None) -> None:
        fields = dataclasses.fields(cls)
        self._choices: list[tuple[Schema, Callable[[object], Any] | None, Any]] = []
        for schema in versions:
            known = schema.fields(record)
            missing = [field for field in fields if field.name not in known]
            for field in missing:
                if field.default is dataclasses.MISSING:
                    raise ValueError(f"{schema.name} lacks {field.name!r} of {cls.__name__}, which has no default")
            # Of one name, ``attrgetter`` gives the value itself; of several, a tuple.
            get = attrgetter(*(field.name for field in missing)) if missing else None
            defaults = missing[0].default if len(missing) == 1 else tuple(field.default for field in missing)
            self._choices.append((schema, get, defaults))

    def of(self, *instances: object) -> Schema:
        """Give the oldest version that can say all of these instances."""
        for schema, get, defaults in self._choices:
            if get is None:
                return schema
            for one in instances:
                if get(one) != defaults:
                    break
            else:
                return schema
        return self._choices[-1][0]
