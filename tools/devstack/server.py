"""What every server of a stack has in common, however it was found."""

from collections.abc import Mapping
from typing import Final, Literal, Protocol

ServiceName = Literal["kafka", "postgres", "s3"]
Mode = Literal["auto", "env", "docker", "local"]

SERVICES: Final[tuple[ServiceName, ...]] = ("kafka", "postgres", "s3")
MODES: Final[tuple[Mode, ...]] = ("auto", "env", "docker", "local")

# The variable whose presence says "this service is already there".
ADDRESS_VARIABLE: Final[Mapping[ServiceName, str]] = {
    "kafka": "RUNFOLD_KAFKA_BOOTSTRAP",
    "postgres": "RUNFOLD_POSTGRES_DSN",
    "s3": "AWS_ENDPOINT_URL",
}

DATABASE: Final = "runfold"
BUCKET: Final = "runfold"
REGION: Final = "us-east-1"
DEFAULT_BLOB_URL: Final = f"s3://{BUCKET}/blobs"
# Only ever valid on loopback ports of a throw-away stack.
ACCESS_KEY: Final = "runfold"
SECRET_KEY: Final = "runfold-development"  # noqa: S105 - not a secret: a constant of throw-away servers


class Server(Protocol):
    """One server of a stack. Its address never changes, also over kill and start."""

    @property
    def name(self) -> ServiceName:
        """Which of the three it is."""
        ...

    @property
    def origin(self) -> str:
        """How it was found: `env`, `docker` or `local`."""
        ...

    @property
    def controllable(self) -> bool:
        """Whether `start`, `stop` and `kill` work: they do not on a server that somebody else runs."""
        ...

    def environment(self) -> dict[str, str]:
        """Return the variables by which a client finds it."""
        ...

    def start(self) -> None:
        """Start it and return when it serves clients; nothing if it runs. Raises StackError with its log's tail."""
        ...

    def stop(self) -> None:
        """Shut it down in order (SIGTERM) and return when it is gone; nothing if it does not run."""
        ...

    def kill(self) -> None:
        """SIGKILL; return when it is gone. Its data stay, and `start` recovers them."""
        ...


def s3_environment(endpoint: str) -> dict[str, str]:
    """Return what boto3 and Runfold need for an S3 server of ours."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": REGION,
        "RUNFOLD_BLOB_URL": DEFAULT_BLOB_URL,
    }
