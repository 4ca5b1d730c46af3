"""One Kafka broker, its own controller, as a local Java process."""

import base64
import subprocess
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from devstack import probes
from devstack.errors import StackError
from devstack.kafka_jars import java, kafka_jars
from devstack.local import LocalServer
from devstack.ports import HOST, free_ports
from devstack.processes import Identity
from devstack.server import ServiceName

_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers={host}:{controller}
listeners=PLAINTEXT://{host}:{client},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{client}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false

# One node: nothing to replicate to. Fewer partitions of the internal topics make the first join of a group faster.
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=5
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1

# After kill -9 the old registration has to expire before the broker is back: by default 9 s.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500

# Tests kill consumers and wait for the hand-over: allow sessions far shorter than in production.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=3000
group.consumer.min.session.timeout.ms=3000
group.consumer.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=500
group.consumer.heartbeat.interval.ms=1000
"""


class LocalKafka(LocalServer):
    """A broker on two loopback ports, which it keeps over restarts."""

    name = "kafka"

    def __init__(self, folder: Path, started: Callable[[ServiceName, Identity], None], jars: Path) -> None:
        super().__init__(folder, started)
        self._jars = jars
        self._client_port, self._controller_port = free_ports(2)
        self._properties = folder / "server.properties"

    @property
    def bootstrap(self) -> str:
        """Return the broker's address for clients."""
        return f"{HOST}:{self._client_port}"

    def environment(self) -> dict[str, str]:
        """Return the variables by which a client finds it."""
        return {"RUNFOLD_KAFKA_BOOTSTRAP": self.bootstrap}

    def prepare(self) -> None:
        """Fetch the jars and format the data folder, both once."""
        if self._properties.exists():
            return
        kafka_jars(self._jars)
        self._properties.write_text(
            _PROPERTIES.format(
                host=HOST,
                client=self._client_port,
                controller=self._controller_port,
                data=self.folder / "data",
            ),
            encoding="ascii",
        )
        # Kafka's ids are UUIDs in base64; one that begins with a dash would be taken for an option.
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=").replace("-", "_")
        told = subprocess.run(
            [
                *self._java("-Xmx256m", "-XX:TieredStopAtLevel=1"),
                *("kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c", str(self._properties)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if told.returncode != 0:
            self._properties.unlink()
            message = f"kafka's storage could not be formatted:\n{told.stdout}{told.stderr}"
            raise StackError(message)

    def command(self) -> Sequence[str]:
        """Return the broker's command."""
        return [
            *self._java("-Xmx1G", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
            *("kafka.Kafka", str(self._properties)),
        ]

    def ready(self) -> bool:
        """Ask the broker for its metadata."""
        return probes.kafka_answers(self.bootstrap)

    def _java(self, *options: str) -> list[str]:
        return [java(), *options, "-cp", f"{self._jars}/*"]
