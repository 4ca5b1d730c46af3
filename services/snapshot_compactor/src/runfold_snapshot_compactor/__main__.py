"""The command ``runfold-snapshot-compactor``: every wire of the service."""

import sys
from contextlib import AsyncExitStack

from runfold.adapters.kafka.inputs import KafkaInputs
from runfold.adapters.kafka.log import KafkaLog
from runfold.adapters.kafka.membership import KafkaMembership
from runfold.adapters.kafka.publisher import KafkaPublisher
from runfold.adapters.system import SystemChance, SystemClock
from runfold.ports.topics import Topics
from runfold.runtime import compactor as runtime
from runfold.service import wiring
from runfold.service.main import Kit, Service
from runfold.service.metrics import CompactorCollector
from runfold.service.reach import kafka_config
from runfold.service.settings import CompactorSettings


async def serve(settings: CompactorSettings, kit: Kit) -> None:
    """Fold the log into snapshots and tables until the service is told to stop."""
    config, topics = kafka_config(settings), Topics(settings.topic_prefix)
    async with AsyncExitStack() as stack:
        await wiring.wait_for_kafka(settings, kit)
        store = await wiring.open_postgres(settings, kit, stack)
        blobs = await wiring.open_blobs(settings, kit, stack)
        log, publisher, inputs = KafkaLog(config, topics), KafkaPublisher(config), KafkaInputs(config, topics)
        stack.push_async_callback(log.close)
        await wiring.start_publisher(publisher, topics.notifications, kit, stack)
        stack.push_async_callback(inputs.close)
        compactor = runtime.Compactor(
            log=log,
            store=store,
            publisher=publisher,
            inputs=inputs,
            blobs=blobs,
            clock=SystemClock(),
            chance=SystemChance(),
            settings=runtime.CompactorSettings(
                dead_topic=topics.dead,
                notifications_topic=topics.notifications,
                snapshot_every=settings.snapshot_every,
            ),
        )
        stack.push_async_callback(compactor.close)
        CompactorCollector(kit.metrics, compactor.status)
        kit.health.check("partitions", lambda: _problem(compactor))
        membership = KafkaMembership(config, topics.group("snapshot-compactor"), topics.log)
        kit.log.info("compacting", snapshot_every=settings.snapshot_every)
        await kit.until_stopped(membership.run(compactor), membership.leave)


def _problem(compactor: runtime.Compactor) -> str | None:
    """Say what keeps a partition from being compacted; None: nothing does."""
    found = [f"partition {status.partition}: {status.problem}" for status in compactor.status() if status.problem]
    return "; ".join(found) or None


SERVICE = Service(
    "runfold-snapshot-compactor",
    "Folds the log into snapshots and query tables, and tells the outside what happened.",
    CompactorSettings,
    serve,
    needs=(*wiring.NEEDS, "partitions"),
)


def main() -> int:
    """Run the service; gives the exit code."""
    return SERVICE.main()


if __name__ == "__main__":
    sys.exit(main())
