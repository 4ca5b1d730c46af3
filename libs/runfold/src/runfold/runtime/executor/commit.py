"""Appending a batch: nothing acts before it is acknowledged, nothing known is forgotten before it is durable."""

from __future__ import annotations

from runfold.runtime.executor import launch
from runfold.runtime.executor.batch import Batch
from runfold.runtime.executor.run import Run


async def commit(run: Run, batch: Batch) -> None:
    """Append a batch, note its inputs as settled, start its requests; the batch is empty afterwards.

    Raises:
        EpochOver: Its outcome may be unknown: nothing more is done in this epoch.
    """
    run.state = batch.state
    if batch.records:
        records, requests, causes = batch.take()
        produced_at = await run.tenure.writer.append(records)
        run.world.metrics.events_appended(len(records))
        for cause in causes:
            run.tenure.positions.settle(cause.topic, cause.offset)
            run.world.metrics.input_settled("event")
        for request in requests:
            launch.start(run, request, produced_at)
    _forget_recorded(run)


def _forget_recorded(run: Run) -> None:
    """Drop the outcomes that are in the log, or that nobody asks for any more."""
    for key in list(run.ended_effects):
        if run.state is None or not run.state.is_open(key.step, key.attempt):
            run.ended_effects.discard(key)
            run.world.effects.forget(key)
