"""From exceptions to one line for a person and an exit code."""

from __future__ import annotations

from urllib.parse import urlsplit

from runfold.adapters.kafka.admin import TopicProblem
from runfold.adapters.kafka.errors import KafkaConfigError, KafkaReadFailed, KafkaUnavailable
from runfold.adapters.postgres import StoreMisconfigured
from runfold.cli.running import FAILED, UNREACHABLE, USAGE
from runfold.client import NoSuchEventError, RunCancelledError, RunFailedError, RunNotFoundError
from runfold.codec.input_types import BadInput
from runfold.core.errors import IllegalTransition, InvalidRunId, UnknownRecord
from runfold.ports.blobs import BlobMissing, BlobsUnavailable
from runfold.ports.log import AppendFailed, LogUnrecoverable, RecordTooLarge
from runfold.ports.publisher import PublishFailed
from runfold.ports.store import StoreUnavailable
from runfold.service.errors import InstallationError
from runfold.service.reach import reach_kafka
from runfold.service.settings import ClientSettings
from runfold.service.variables import BY_FIELD

_UNREACHABLE = (
    (StoreUnavailable, "Postgres", "postgres_dsn"),
    (PublishFailed, "Kafka", "kafka_bootstrap"),
    (AppendFailed, "Kafka", "kafka_bootstrap"),
    (KafkaUnavailable, "Kafka", "kafka_bootstrap"),
    (BlobsUnavailable, "the object store", "blob_url"),
)
_USAGE = (BadInput, InvalidRunId, RecordTooLarge)
_FAILED = {
    UnknownRecord: "this release cannot read the run, use the newest one: ",
    IllegalTransition: "the run's events do not fit together: ",
    RunNotFoundError: "",
    NoSuchEventError: "",
    RunFailedError: "",
    RunCancelledError: "",
    StoreMisconfigured: "",
    InstallationError: "",
    TopicProblem: "",
    KafkaConfigError: "",
    KafkaReadFailed: "",
    LogUnrecoverable: "",
    BlobMissing: "",
}


def explained(error: Exception, settings: ClientSettings) -> tuple[str, int] | None:
    """Give the line and the exit code for what a command may run into; None: a defect."""
    for kind, what, field in _UNREACHABLE:
        if isinstance(error, kind):
            return unreachable(what, address(settings, field), BY_FIELD[field].name, error), UNREACHABLE
    if isinstance(error, _USAGE):
        return one_line(error), USAGE
    prefix = next((prefix for kind, prefix in _FAILED.items() if isinstance(error, kind)), None)
    return None if prefix is None else (prefix + one_line(error), FAILED)


async def diagnosed(error: Exception, settings: ClientSettings) -> Exception:
    """Give the reason behind a failure of Kafka: topics that are missing look as if nobody answered."""
    if not isinstance(error, KafkaUnavailable | PublishFailed | KafkaReadFailed):
        return error
    try:
        await reach_kafka(settings)
    except (KafkaUnavailable, InstallationError) as reason:
        return reason
    return error


def address(settings: ClientSettings, field: str) -> str:
    """Give the address of a dependency, without user and password."""
    if field != "postgres_dsn":
        return str(getattr(settings, field))
    parts = urlsplit(settings.postgres_dsn.get_secret_value())
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


def unreachable(what: str, where: str, variable: str, error: Exception) -> str:
    """Say what could not be reached, where, and which variable holds the address."""
    return f"{what} could not be reached at {where} ({variable}): {what_failed(what, error)}"


def what_failed(what: str, error: Exception) -> str:
    """Give an exception's message on one line, for a text that has named the dependency already."""
    return one_line(error).removeprefix(f"{what}: ")


def one_line(error: Exception) -> str:
    """Give an exception's message on one line: several lines of it are several things."""
    lines = (" ".join(line.split()).rstrip(";") for line in str(error).splitlines())
    return "; ".join(line for line in lines if line)
