"""The table of configuration variables: names, defaults and meanings, importable without pydantic.

``settings`` has the types; a test holds the two together.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

PREFIX = "RUNFOLD_"


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of the environment, and the command-line option of the same name.

    Attributes:
        field: Its field in the settings, e.g. ``kafka_bootstrap``.
        shown_default: What a person reads as its default; None: there is none.
        meaning: One line.
    """

    field: str
    shown_default: str | None
    meaning: str

    @property
    def name(self) -> str:
        """As in the environment, e.g. ``RUNFOLD_KAFKA_BOOTSTRAP``."""
        return PREFIX + self.field.upper()

    @property
    def option(self) -> str:
        """As on the command line, e.g. ``--kafka-bootstrap``."""
        return "--" + self.field.replace("_", "-")

    @property
    def wanted(self) -> str:
        """What to give, in a few words."""
        return self.meaning.partition(";")[0].partition(", e.g.")[0].partition(" (")[0]


VARIABLES = (
    Variable("kafka_bootstrap", "127.0.0.1:9092", "bootstrap servers, host:port[,host:port]"),
    Variable("kafka_config", None, "key=value file handed to librdkafka as it is (TLS, SASL)"),
    Variable("topic_prefix", "runfold.", "prefix of every topic and group"),
    Variable("partitions", "12", "partition count of each topic, fixed for life"),
    Variable("replication_factor", "the broker's", "replicas of each topic, for `runfold setup`"),
    Variable("postgres_dsn", None, "a libpq URL, e.g. postgresql://user:password@host:5432/database; required"),
    Variable("postgres_schema", "runfold", "schema of all tables"),
    Variable("blob_url", None, "s3://bucket/prefix or file:///folder; required"),
    Variable("app", None, "module:attribute of the runfold.App (executor, reconciler)"),
    Variable("revision", "found", "code revision; unset: the git commit, else a hash of the app's modules"),
    Variable("snapshot_every", "50", "events of one run between two snapshots"),
    Variable("inline_limit", "65536", "bytes above which a payload goes to the object store"),
    Variable("metrics_host", "127.0.0.1", "address that /metrics, /healthz and /readyz are served on"),
    Variable("metrics_port", "0", "port of /metrics, /healthz and /readyz; 0: off"),
)
BY_FIELD = {variable.field: variable for variable in VARIABLES}
NAMES = frozenset(variable.name for variable in VARIABLES)


def nearest(name: str) -> str | None:
    """Find the known variable that a mistyped one most probably means."""
    close = difflib.get_close_matches(name.upper(), sorted(NAMES), n=1, cutoff=0.6)
    return close[0] if close else None
