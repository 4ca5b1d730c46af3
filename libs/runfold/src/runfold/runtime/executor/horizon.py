"""What a tenure has seen of its partition's row, and so which answers of Postgres it may believe.

A run leaves memory, and "there is no such run" is believed, because Postgres holds everything up to ``applied``. A
database that is restored from a backup meanwhile knows less: its "no such run" would lose an input, and its older
snapshot of a run would have a step done twice. So an answer counts only together with a row, of the same moment, that
has come at least as far as the farthest one seen *when the question was asked*: of two questions on their way at once
the one that was asked first may be answered last, and a run that left memory meanwhile was not the one that is asked
about, since who is asked about is being loaded. The compactor folds the same log again from the older row: once it is
there, everything that was covered is covered again.
"""

from __future__ import annotations

from runfold.ports.store import PartitionRow, StoreUnavailable, Watermark

_WAIT = "inputs of runs that are not in memory wait until the compactor has folded them again"


class StoreBehind(StoreUnavailable):
    """Postgres answers from before what it has told already: it is not believed until the compactor has caught up."""


class Horizon:
    """The farthest watermark that one tenure has seen.

    Args:
        partition: Its number.

    Attributes:
        seen: None before the take-over, and where Postgres held nothing at it.
    """

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.seen: Watermark | None = None

    def begin(self, row: PartitionRow | None) -> None:
        """Take the row that was taken over from: whatever it says was folded on from there."""
        self.seen = None if row is None else row.watermark

    def believe(self, watermark: Watermark | None, asked: Watermark | None) -> None:
        """Take note of an answer's watermark.

        Args:
            watermark: Where the row stood at the answer.
            asked: What ``seen`` was when the question was asked.

        Raises:
            StoreBehind: The answer must not be believed; the message says why.
        """
        seen = self.seen
        where = f"Postgres' row of partition {self.partition}"
        if watermark is None:
            if asked is not None and asked.applied > 0:
                raise StoreBehind(f"{where} is gone: it had {asked.applied} records applied; {_WAIT}")
            return
        if seen is None:
            self.seen = watermark
            return
        if (watermark.cluster_id, watermark.topic_id) != (seen.cluster_id, seen.topic_id):
            raise StoreBehind(
                f"{where} is about cluster {watermark.cluster_id}, topic {watermark.topic_id}; it was about cluster "
                f"{seen.cluster_id}, topic {seen.topic_id}: restore the backup that belongs to this log"
            )
        if asked is not None and watermark.applied < asked.applied:
            raise StoreBehind(
                f"{where} has {watermark.applied} records applied, and had {asked.applied} before: it was restored "
                f"from an older backup; {_WAIT}"
            )
        if watermark.applied > seen.applied:
            self.seen = watermark
