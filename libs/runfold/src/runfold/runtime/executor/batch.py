"""Events of one run that are appended together, folded as they are added."""

from __future__ import annotations

from runfold.codec import log as log_codec
from runfold.core.drafts import Stamp
from runfold.core.events import Cause, Event, ModelCallRequested, ToolCallRequested
from runfold.core.state import State
from runfold.core.transitions import fold
from runfold.runtime.executor.tenure import Tenure
from runfold.runtime.executor.writer import Encoded, EpochWriter

Request = ModelCallRequested | ToolCallRequested


class Batch:
    """Collects drafts; each is encoded and checked before it is folded, so that a refused one changes nothing.

    The state runs ahead of the log until the batch is acknowledged. That is safe: nothing acts before, and an
    epoch whose append failed throws its states away.

    Attributes:
        state: After the events added so far; None before ``run_started``.
        requests: Model calls and tool calls among them: to be performed once the batch is acknowledged.
    """

    def __init__(self, tenure: Tenure, state: State | None) -> None:
        self.state = state
        self.records: list[Encoded] = []
        self.requests: list[Request] = []
        self.causes: list[Cause] = []
        self._tenure = tenure
        self._stamp: Stamp | None = None
        self._writer: EpochWriter = tenure.writer

    @property
    def known(self) -> State:
        """The state of a run that exists.

        Raises:
            LookupError: It has not started: a defect of the caller.
        """
        if self.state is None:
            raise LookupError("a batch of a run that has not started")
        return self.state

    def stamp(self, cause: Cause | None = None) -> Stamp:
        """The facts of the moment, for a draft; what is appended together has one time."""
        if cause is not None:
            return self._tenure.stamp(cause)
        if self._stamp is None:
            self._stamp = self._tenure.stamp()
        return self._stamp

    def add(self, event: Event) -> State:
        """Add one event; gives the state after it.

        Raises:
            IllegalTransition, RecordTooLarge: The batch and the state are as before.
        """
        head, value = log_codec.encode(event)
        record = (event.run_id, head, value)
        self._writer.check_size(record)
        self.state = fold(self.state, event)
        self.records.append(record)
        # Two questions: to make a union costs more than to ask both.
        if isinstance(event, ModelCallRequested) or isinstance(event, ToolCallRequested):  # noqa: SIM101
            self.requests.append(event)
        if event.cause is not None:
            self.causes.append(event.cause)
        return self.state

    def take(self) -> tuple[list[Encoded], list[Request], list[Cause]]:
        """Give what was collected, and start anew."""
        taken = (self.records, self.requests, self.causes)
        self.records, self.requests, self.causes = [], [], []
        self._stamp = None
        return taken
