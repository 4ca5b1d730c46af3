"""What each run of the crowd does: chosen by seed and run id alone, so that it does not depend on any timing."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from demo.world import Turn
from tests.crowd.names import COLLECTIONS

_TURNS: Final = (2, 4)
_CALLS: Final = (1, 3)
_WEIGHTS: Final = {"read": 3, "publish": 3, "refund": 2, "file_ticket": 4, "pay": 2, "enter": 3, "send": 1}
GATED: Final = "refund"


@dataclass(frozen=True, slots=True)
class Script:
    """The model's answers: turns of calls, then a text. An instance is a ``demo.world.Script``.

    Args:
        seed: Of the whole crowd.
        tools: Those that may be called.
    """

    seed: int
    tools: tuple[str, ...] = tuple(COLLECTIONS)

    def turns(self, run_id: str) -> list[list[str]]:
        """Give the tools that a run calls, turn by turn."""
        chance = Random(f"{self.seed}:{run_id}")  # noqa: S311 - a plan, no secret
        weights = [_WEIGHTS[tool] for tool in self.tools]
        return [chance.choices(self.tools, weights, k=chance.randint(*_CALLS)) for _ in range(chance.randint(*_TURNS))]

    def __call__(self, conversation: str, answered: int) -> Turn:
        """Give the next answer."""
        turns = self.turns(conversation)
        if answered == len(turns):
            return Turn(text=output_of(conversation))
        return Turn(
            calls=[
                (tool, {"title": f"{conversation}, answer {answered}, call {number}"})
                for number, tool in enumerate(turns[answered])
            ]
        )

    def first_gate(self, run_id: str) -> str | None:
        """Give the id that the run's first approval will have; None if it needs none.

        Of the calls of one answer each takes its step in order, a gate directly before its call.
        """
        step = 0
        for turn in self.turns(run_id):
            step += 1
            for tool in turn:
                step += 1
                if tool == GATED:
                    return f"{run_id}:{step}"
        return None


def output_of(run_id: str) -> str:
    """Give what a run ends with."""
    return f"{run_id} is done"
