"""Settings: read once, from command-line options before the environment; errors name the variable and the mend.

Each program reads the subset that it needs. A known variable of another program is no error; an unknown
``RUNFOLD_...`` variable is one for everybody, since a typo must not be ignored in silence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from runfold.ports.log import MAX_RECORD
from runfold.service.variables import BY_FIELD, NAMES, PREFIX, nearest

MAX_INLINE = MAX_RECORD - 100_000  # the rest is for what stands in the record beside its payload


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the settings.

    Attributes:
        variable: Its name in the environment.
        message: What is wrong and what to do about it.
        is_unknown: There is no such variable.
        is_missing: It is not set; the message goes on from its name.
    """

    variable: str
    message: str
    is_unknown: bool = False
    is_missing: bool = False

    def __str__(self) -> str:
        return f"{self.variable} {self.message}" if self.is_missing else f"{self.variable}: {self.message}"


class SettingsError(Exception):
    """The settings cannot be used; the message has a line for each problem and holds no secret."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def _matching(pattern: str, wanted: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            message = f"must be {wanted}"
            raise ValueError(message)
        return value

    return AfterValidator(check)


def _postgres_url(value: SecretStr) -> SecretStr:
    if not re.match(r"postgres(ql)?://", value.get_secret_value()):
        message = "must be a libpq URL, e.g. postgresql://user:password@host:5432/database"
        raise ValueError(message)
    return value


def _readable(path: Path) -> Path:
    try:
        path.read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise ValueError(message) from None
    return path


_ADDRESS = r"[^\s,:]+:\d{1,5}|\[[0-9A-Fa-f:.]+\]:\d{1,5}"
Bootstrap = Annotated[
    str, _matching(rf"({_ADDRESS})(,({_ADDRESS}))*", "host:port, or several of them separated by commas")
]
Prefix = Annotated[str, _matching(r"[A-Za-z0-9._-]{1,150}", "1 to 150 characters of [A-Za-z0-9._-]")]
Schema = Annotated[str, _matching(r"[a-z_][a-z0-9_]{0,62}", "a lower-case Postgres identifier")]
BlobUrl = Annotated[
    str, _matching(r"s3://[a-z0-9][a-z0-9.-]{2,62}(/.*)?|file:///.+", "s3://bucket[/prefix] or file:///folder")
]
Host = Annotated[str, _matching(r"[A-Za-z0-9._:-]{1,253}", "an address or a host name, e.g. 0.0.0.0")]
AppName = Annotated[str, _matching(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "module:attribute, e.g. my_agents.app:app")]


class Installation(BaseSettings):
    """What everybody needs: where Kafka, Postgres and the object store are."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")

    kafka_bootstrap: Bootstrap = "127.0.0.1:9092"
    kafka_config: Annotated[Path, AfterValidator(_readable)] | None = None
    topic_prefix: Prefix = "runfold."
    partitions: int = Field(default=12, ge=1, le=10_000)
    postgres_dsn: Annotated[SecretStr, AfterValidator(_postgres_url)]
    postgres_schema: Schema = "runfold"
    blob_url: BlobUrl

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic-settings'
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - no file is read behind the operator's back
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Options before the environment, and nothing else."""
        return init_settings, env_settings


class ServiceSettings(Installation):
    """What every service needs."""

    metrics_host: Host = "127.0.0.1"
    metrics_port: int = Field(default=0, ge=0, le=65_535)


class CompactorSettings(ServiceSettings):
    """What the snapshot compactor needs."""

    snapshot_every: int = Field(default=50, ge=1, le=100_000)


class AppSettings(ServiceSettings):
    """What a service needs that runs an author's code: the reconciler, and the step executor."""

    app: AppName
    revision: str | None = None


class StepExecutorSettings(AppSettings):
    """What the step executor needs."""

    inline_limit: int = Field(default=65_536, ge=0, le=MAX_INLINE)


class ClientSettings(Installation):
    """What the client and the command line need; ``app`` only for ``runfold check``."""

    replication_factor: int | None = Field(default=None, ge=1, le=100)
    app: AppName | None = None
    revision: str | None = None


SettingsT = TypeVar("SettingsT", bound=Installation)


def load(kind: type[SettingsT], options: Mapping[str, str] | None = None) -> SettingsT:
    """Read settings from the environment, ``options`` (field -> value, as typed) first.

    Raises:
        SettingsError: Every unknown variable, missing one and bad value.
    """
    given: dict[str, Any] = dict(options or {})
    problems = [*_unknown(os.environ)]
    try:
        settings = kind(**given)
    except ValidationError as error:
        problems += _invalid(error)
    else:
        if not problems:
            return settings
    raise SettingsError(tuple(problems))


def _unknown(environ: Mapping[str, str]) -> Iterator[Problem]:
    for name in sorted(environ):
        if name.upper().startswith(PREFIX) and name.upper() not in NAMES:
            meant = nearest(name)
            hint = f"did you mean {meant}?" if meant else "unset it; `runfold --help` lists the variables"
            yield Problem(name, f"there is no such variable; {hint}", is_unknown=True)


def _invalid(error: ValidationError) -> Iterator[Problem]:
    for found in error.errors(include_url=False, include_context=False):
        field = str(found["loc"][0])
        variable = BY_FIELD[field]
        if found["type"] == "missing":
            said = f"is not set: give {variable.wanted} there or with {variable.option}"
            yield Problem(variable.name, said, is_missing=True)
        else:
            yield Problem(variable.name, _reason(field, found["msg"], found["input"]))


def _reason(field: str, message: str, value: Any) -> str:  # noqa: ANN401 - whatever was typed
    text = message.removeprefix("Value error, ")
    text = text[:1].lower() + text[1:]
    return text if field == "postgres_dsn" else f"{str(value)!r}: {text}"
