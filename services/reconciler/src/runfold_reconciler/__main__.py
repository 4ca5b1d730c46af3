"""The command ``runfold-reconciler``: every wire of the service."""

import sys
from contextlib import AsyncExitStack

from runfold.adapters.blobs import import_client
from runfold.adapters.kafka.publisher import KafkaPublisher
from runfold.adapters.system import SystemClock
from runfold.ports.topics import Topics
from runfold.runtime.reconciler.reconciler import Reconciler
from runfold.runtime.reconciler.settings import ReconcilerSettings
from runfold.service import wiring
from runfold.service.app import import_app
from runfold.service.main import Kit, Service
from runfold.service.metrics import ReconcilerCounters
from runfold.service.reach import kafka_config
from runfold.service.settings import AppSettings


async def serve(settings: AppSettings, kit: Kit) -> None:
    """Find out what became of dangling calls until the service is told to stop."""
    config, topics = kafka_config(settings), Topics(settings.topic_prefix)
    async with AsyncExitStack() as stack:
        import_client(settings.blob_url)
        async with wiring.beside(import_app(settings)) as importing:
            await wiring.wait_for_kafka(settings, kit)
            store = await wiring.open_postgres(settings, kit, stack)
            publisher = KafkaPublisher(config)
            await wiring.start_publisher(publisher, topics.control, kit, stack)
        app, revision = importing.result()
        blobs = await wiring.open_blobs(settings, kit, stack)
        agents = await stack.enter_async_context(app.running("reconciler", revision=revision))
        kit.health.reached("app")
        reconciler = Reconciler(
            store,
            publisher,
            blobs,
            agents,
            SystemClock(),
            ReconcilerSettings(holder=wiring.whoami(), topics=topics),
            ReconcilerCounters(kit.metrics),
        )
        kit.log.info("reconciling", app=settings.app, revision=agents.revision)
        await kit.until_stopped(reconciler.run(), reconciler.close)


SERVICE = Service(
    "runfold-reconciler",
    "Finds out what became of tool calls that were requested and never answered.",
    AppSettings,
    serve,
    needs=(*wiring.NEEDS, "app"),
)


def main() -> int:
    """Run the service; gives the exit code."""
    return SERVICE.main()


if __name__ == "__main__":
    sys.exit(main())
