"""A server that somebody else runs, found by its address in the environment."""

from collections.abc import Callable, Mapping
from typing import Final, NoReturn
from urllib.parse import urlsplit

from devstack import probes
from devstack.errors import StackError
from devstack.server import ADDRESS_VARIABLE, BUCKET, REGION, ServiceName, s3_environment

_ANSWER_S: Final = 15.0


class GivenServer:
    """A server that is looked at but never started or stopped."""

    origin = "env"
    controllable = False

    def __init__(self, name: ServiceName, surroundings: Mapping[str, str]) -> None:
        self.name = name
        self._address = surroundings[ADDRESS_VARIABLE[name]]
        self._environment = {ADDRESS_VARIABLE[name]: self._address}
        if name == "s3":
            # Credentials may also come from boto3's own files; what the environment says wins.
            defaults = s3_environment(self._address) | {"AWS_DEFAULT_REGION": REGION}
            self._environment = {key: surroundings.get(key, value) for key, value in defaults.items()}

    def environment(self) -> dict[str, str]:
        """Return the variables by which a client finds it."""
        return dict(self._environment)

    def start(self) -> None:
        """Wait until it answers."""
        probes.wait_until(self._probe(), self.name, self._address, _ANSWER_S)

    def stop(self) -> None:
        """Leave it alone: it is not ours."""

    def kill(self) -> NoReturn:
        """Refuse."""
        message = f"{self.name} at {self._address} comes from {ADDRESS_VARIABLE[self.name]}: it is not ours to kill"
        raise StackError(message)

    def _probe(self) -> Callable[[], bool]:
        match self.name:
            case "kafka":
                return lambda: probes.kafka_answers(self._address)
            case "postgres":
                return lambda: probes.postgres_answers(self._address)
            case "s3":
                bucket = urlsplit(self._environment["RUNFOLD_BLOB_URL"]).netloc or BUCKET
                return lambda: probes.s3_answers(self._environment, bucket)
