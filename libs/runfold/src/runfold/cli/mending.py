"""Commands for when something was lost: verify and rebuild."""

from __future__ import annotations

import json
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from runfold.cli.arguments import AsJson
from runfold.cli.running import FAILED, USAGE, CommandError, say, with_settings
from runfold.cli.words import counted

if TYPE_CHECKING:
    from runfold.runtime.rebuild.plan import Plan
    from runfold.runtime.rebuild.world import World
    from runfold.runtime.verifying import Report
    from runfold.service.settings import ClientSettings

_PROGRESS_S = 2.0
_SHOWN = 20

Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", min=0, metavar="N", help="Only this one; may be given again.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("verify")(verify)
    app.command("rebuild")(rebuild)


def verify(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Only this run.", show_default=False)] = None,
    *,
    partition: Partitions = None,
    as_json: AsJson = False,
) -> None:
    """Fold the log again and compare it with every snapshot and table; ends with 1 if anything differs."""

    async def body(settings: ClientSettings) -> None:
        from runfold.core.partitioning import partition_of  # noqa: PLC0415 - heavy
        from runfold.runtime.verifying import verify as compare  # noqa: PLC0415 - heavy

        chosen = _chosen(partition, settings)
        if run is not None:
            chosen = [partition_of(run, settings.partitions)]
        reports: list[Report] = []
        async with AsyncExitStack() as stack:
            world = await _reach(settings, stack)
            for number in chosen:
                reports.append(await compare(number, world.log, world.store, _Progress(), run))
                if run is not None:
                    check_known(run, reports[-1])
                if not as_json:
                    _show(reports[-1])
        if as_json:
            sys.stdout.write(json.dumps([asdict(report) for report in reports], indent=2) + "\n")
        message = verdict(reports)
        if message is not None:
            raise CommandError(message)

    with_settings(ctx, body)


def rebuild(
    ctx: typer.Context,
    *,
    partition: Partitions = None,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Go on although records of the log are lost: what is not known is held."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, it is only said what would be done.")] = False,
) -> None:
    """Throw away what Postgres holds of partitions; the compactor folds it again from the log.

    The effects table is left alone: no log can bring it back. Where the log has lost records it refuses, and with
    --accept-loss it mends the log instead, so that no effect is repeated: stop every service first.
    """

    async def body(settings: ClientSettings) -> None:
        from runfold.ports.store import StaleCompactor  # noqa: PLC0415 - heavy
        from runfold.runtime.rebuild.mending import carry_out  # noqa: PLC0415 - heavy
        from runfold.runtime.rebuild.pen import OtherWriter  # noqa: PLC0415 - heavy
        from runfold.runtime.rebuild.plan import Refused, examine  # noqa: PLC0415 - heavy

        chosen = _chosen(partition, settings)
        async with AsyncExitStack() as stack:
            world = await _reach(settings, stack)
            try:
                plans = [await examine(world, number, accept_loss=accept_loss) for number in chosen]
                for plan in plans:
                    tell(plan, is_done=yes)
                if not yes:
                    say("nothing was changed: say --yes to do it")
                    return
                for plan in plans:
                    await carry_out(world, plan)
                    _write(f"partition {plan.partition}: done, the compactor folds it again")
            except (Refused, OtherWriter, StaleCompactor) as error:
                raise CommandError(str(error), FAILED) from error

    with_settings(ctx, body)


def _chosen(partition: list[int] | None, settings: ClientSettings) -> list[int]:
    chosen = sorted(set(partition)) if partition else list(range(settings.partitions))
    if chosen[-1] >= settings.partitions:
        message = f"--partition {chosen[-1]}: there are {settings.partitions}, counted from 0"
        raise CommandError(message, USAGE)
    return chosen


async def _reach(settings: ClientSettings, stack: AsyncExitStack) -> World:
    """Open what the commands work on."""
    from runfold.adapters.kafka.inputs import KafkaInputs  # noqa: PLC0415 - the adapters are heavy
    from runfold.adapters.kafka.log import KafkaLog  # noqa: PLC0415 - the same
    from runfold.adapters.kafka.publisher import KafkaPublisher  # noqa: PLC0415 - the same
    from runfold.adapters.system import SystemChance, SystemClock  # noqa: PLC0415 - the same
    from runfold.ports.topics import Topics  # noqa: PLC0415 - the same
    from runfold.runtime.rebuild.world import World  # noqa: PLC0415 - the same
    from runfold.service.reach import kafka_config, reach_kafka, reach_postgres  # noqa: PLC0415 - the same

    await reach_kafka(settings)
    store = await reach_postgres(settings, max_size=2, timeout_s=600.0)
    stack.push_async_callback(store.close)
    config, topics = kafka_config(settings), Topics(settings.topic_prefix)
    log, inputs, publisher = KafkaLog(config, topics), KafkaInputs(config, topics), KafkaPublisher(config)
    for opened in (log, inputs, publisher):
        stack.push_async_callback(opened.close)
    await log.start()
    await publisher.start(topics.requests)
    return World(
        log=log,
        inputs=inputs,
        store=store,
        topics=topics,
        partitions=settings.partitions,
        publisher=publisher,
        clock=SystemClock(),
        chance=SystemChance(),
    )


class _Progress:
    """Says how far the folding has come, now and then."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def __call__(self, partition: int, reached: int, end: int) -> None:
        """Take note of an offset."""
        if time.monotonic() - self._said > _PROGRESS_S:
            self._said = time.monotonic()
            say(f"partition {partition}: {reached} of {end} records")


def _show(report: Report) -> None:
    what = (
        f"{counted(report.records, 'record')}, {counted(report.runs, 'run')}, {counted(report.snapshots, 'snapshot')}"
    )
    found = counted(len(report.differences), "difference") if report.differences else "as the log says"
    _write(f"partition {report.partition}: {what}, {report.void} void, {report.behind} not folded yet: {found}")
    for line in [*report.notes, *report.differences]:
        _write(f"  {line}")


def check_known(run_id: str, report: Report) -> None:
    """Say that there is no such run before anything is shown of its partition.

    Raises:
        CommandError: Neither Postgres nor what was folded of the log knows it.
    """
    if report.runs or report.differences or report.notes:
        return
    later = f" ({counted(report.behind, 'record')} of its partition not folded yet)" if report.behind else ""
    message = f"there is no run {run_id!r}{later}; `runfold list` shows those that exist"
    raise CommandError(message)


def verdict(reports: list[Report]) -> str | None:
    """Say how much differs, and the command that mends exactly those partitions; None if nothing does."""
    wrong = [report for report in reports if report.differences]
    if not wrong:
        return None
    found = counted(sum(len(report.differences) for report in wrong), "difference")
    which = " ".join(f"--partition {report.partition}" for report in wrong)
    return f"{found}: `runfold rebuild {which}` says how the tables are folded again from the log"


def tell(plan: Plan, *, is_done: bool) -> None:
    """Say what is done about a partition, or would be."""
    where = f"partition {plan.partition}"
    if plan.damage is None:
        held = len(plan.tables.runs)
        fate = "thrown away, and folded again from the log"
        what = f"{counted(held, 'run')} {'will' if is_done else 'would'} be {fate}" if plan.row else "nothing is stored"
        _write(f"{where}: the log is whole; {what}")
        return
    _write(f"{where}: {plan.damage}")
    if not is_done:
        _write("  this would be done:")
    _list("held until a person resumes or cancels them, since they may have gone on", plan.live)
    _list("known to Postgres only: their ids stay used, their ends are kept, the others are held", plan.stray)
    for topic, count in sorted(plan.unknown.items()):
        if count:
            _write(f"  {topic}: {counted(count, 'input')} of unknown fate: starts are held, others are dead (log_lost)")
    for topic, upto in sorted(plan.refill.items()):
        _write(f"  {topic}: its offsets up to {upto} are used up; what it held unread is lost")


def _list(what: str, run_ids: list[str]) -> None:
    if run_ids:
        more = f" and {len(run_ids) - _SHOWN} more" if len(run_ids) > _SHOWN else ""
        _write(f"  {counted(len(run_ids), 'run')} {what}: {', '.join(run_ids[:_SHOWN])}{more}")


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
