"""The story, told once a session by the demo's driver."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.installation import Installation
from demo.processes import Services
from demo.story import APP, PARTITIONS, RUN, Told, answer, installation_variables, tell
from demo.world import World
from devstack import Stack


@dataclass(frozen=True, slots=True)
class Played:
    """What there is to check, what the driver said, and what `runfold events` prints for people."""

    told: Told
    said: list[str]
    table: str


@contextmanager
def playing(stack: Stack, folder: Path) -> Iterator[Played]:
    """Play the story on given servers; its installation lives as long as the block."""
    said: list[str] = []
    with World(answer) as world:
        variables = installation_variables(world)
        installation = Installation.at(stack.environment(), folder, app=APP, partitions=PARTITIONS, extra=variables)
        try:
            with Services(installation.environment, folder / "logs") as services:
                try:
                    told = tell(installation, services, world, said.append)
                except Exception as error:
                    error.add_note("\n".join(said))
                    raise
            yield Played(told, said, installation.runfold("events", RUN))
        finally:
            installation.remove()
