"""The command ``runfold-step-executor``: every wire of the service."""

import sys
from contextlib import AsyncExitStack

from runfold.adapters.blobs import import_client
from runfold.adapters.kafka.config import MemberSettings
from runfold.adapters.kafka.drains import KafkaDrains
from runfold.adapters.kafka.inputs import KafkaInputs
from runfold.adapters.kafka.log import KafkaLog
from runfold.adapters.kafka.membership import KafkaMembership
from runfold.adapters.kafka.publisher import KafkaPublisher
from runfold.adapters.system import SystemChance, SystemClock
from runfold.ports.topics import Topics
from runfold.runtime.executor import Executor, ExecutorSettings
from runfold.service import wiring
from runfold.service.app import import_app
from runfold.service.main import Kit, Service
from runfold.service.metrics import ExecutorCounters
from runfold.service.reach import kafka_config
from runfold.service.settings import StepExecutorSettings


async def serve(settings: StepExecutorSettings, kit: Kit) -> None:
    """Own partitions and drive their runs until the service is told to stop."""
    config, topics, times = kafka_config(settings), Topics(settings.topic_prefix), MemberSettings()
    async with AsyncExitStack() as stack:
        import_client(settings.blob_url)
        async with wiring.beside(import_app(settings)) as importing:
            await wiring.wait_for_kafka(settings, kit)
            group = topics.group("step-executor")
            session_s = await wiring.find_session(config, group, times, kit)
            store = await wiring.open_postgres(settings, kit, stack)
            log, publisher, inputs = KafkaLog(config, topics), KafkaPublisher(config), KafkaInputs(config, topics)
            await wiring.start_log(log, kit, stack)
            await wiring.start_publisher(publisher, topics.control, kit, stack)
            stack.push_async_callback(inputs.close)
            drains = KafkaDrains(config, topics.group("draining"), topics.requests)
            wiring.start_drains(drains, stack)
        app, revision = importing.result()
        blobs = await wiring.open_blobs(settings, kit, stack)
        effects = await wiring.open_effects(settings, app.effects_dsn, kit, stack) if app.needs_effects else None
        running = app.running("executor", revision=revision, effects=effects)
        agents = await stack.enter_async_context(running)
        kit.health.reached("app")
        executor = Executor(
            log=log,
            inputs=inputs,
            publisher=publisher,
            store=store,
            blobs=blobs,
            agents=agents,
            clock=SystemClock(),
            chance=SystemChance(),
            settings=ExecutorSettings(
                owner=wiring.whoami(),
                partitions=settings.partitions,
                topics=topics,
                freshness_s=session_s / 2,
                inline_limit=settings.inline_limit,
            ),
            drains=drains,
            metrics=ExecutorCounters(kit.metrics),
        )
        kit.health.check("partitions", lambda: None if executor.ready else "not taken over yet")
        membership = KafkaMembership(config, group, topics.requests, times)
        kit.log.info("executing", app=settings.app, revision=agents.revision, session_s=session_s)
        await kit.until_stopped(executor.run(membership), membership.leave)


SERVICE = Service(
    "runfold-step-executor",
    "Drives the runs of the partitions that its consumer group assigns to it.",
    StepExecutorSettings,
    serve,
    needs=(*wiring.NEEDS, "app", "partitions"),
)


def main() -> int:
    """Run the service; gives the exit code."""
    return SERVICE.main()


if __name__ == "__main__":
    sys.exit(main())
