"""`python -m demo`: the acceptance trace on servers that it starts itself. Exit code 0 if all is as it must be."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Final, NoReturn

from demo.checks import failures
from demo.errors import DemoError
from demo.installation import ROOT, Installation
from demo.processes import Services
from demo.story import APP, PARTITIONS, RUN, Told, answer, installation_variables, tell
from demo.world import World
from devstack import Stack, StackError
from devstack.server import MODES, Mode

_FAILED: Final = 1
_USAGE: Final = 2
_INTERRUPTED: Final = 130
_BEGAN: Final = time.monotonic()


def say(text: str) -> None:
    """Print with the seconds since the start."""
    print(f"[{time.monotonic() - _BEGAN:6.1f} s] {text}", flush=True)


def main() -> int:
    """Run the demo; gives the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    mode = os.environ.get("STACK") or "auto"
    if mode not in MODES:
        print(f"demo: STACK is {mode!r}; it must be one of {', '.join(MODES)}", file=sys.stderr)
        return _USAGE
    try:
        return _on_stack(mode)
    except StackError as error:
        print(f"demo: the servers cannot be had: {error}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        print("demo: interrupted; everything that it started is stopped", file=sys.stderr)
        return _INTERRUPTED


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _on_stack(mode: Mode) -> int:
    say("starting Kafka and Postgres (the first time, they are downloaded)")
    with Stack.start(ROOT, mode=mode, services=("kafka", "postgres")) as stack:
        ways = ", ".join(f"{name}: {origin}" for name, origin in stack.origins().items())
        say(f"they serve ({ways})")
        with World(answer) as world:
            installation = Installation.at(
                stack.environment(),
                stack.folder / "demo",
                app=APP,
                partitions=PARTITIONS,
                extra=installation_variables(world),
            )
            say(f"the model and the ticket system listen at {world.url}")
            say("the group's session is 6 s here instead of 10 s, to keep the demo short")
            try:
                return _play(installation, world)
            finally:
                if "env" in stack.origins().values():
                    installation.remove()


def _play(installation: Installation, world: World) -> int:
    with Services(installation.environment, installation.folder / "logs") as services:
        try:
            told = tell(installation, services, world, say)
            history = installation.runfold("events", RUN)
        except DemoError as error:
            print(f"\n{services.tails()}\n\ndemo: FAILED: {error}", flush=True)
            return _FAILED
        wrong = failures(told)
        print(f"\n{history}", flush=True)
        _sum_up(told)
        if wrong:
            print(f"\n{services.tails()}\n", flush=True)
            for line in wrong:
                print(f"demo: FAILED: {line}", flush=True)
            return _FAILED
    tickets = told.world.resources["tickets"]
    seconds = time.monotonic() - _BEGAN
    print(
        f"demo: ok, {len(told.events)} events, {len(tickets)} tickets without a duplicate, "
        f"{sum(told.world.asked.values())} model calls and none twice, in {seconds:.0f} s",
        flush=True,
    )
    return 0


def _sum_up(told: Told) -> None:
    asked = told.world.asked
    for collection in ("tickets", "publications"):
        for key, resource in told.world.resources[collection].items():
            posted = sum(post.key == key for post in told.world.posts)
            print(f"{collection:<13} {resource['id']}  key {key}, posted {posted} time(s)")
    twice = sum(count > 1 for count in asked.values())
    print(f"model calls   {sum(asked.values())} asked, {twice} of them more than once")
    usage = told.at_end["usage"]
    cost = told.at_end["cost_usd"]
    price = "unknown" if cost is None else f"${cost:.6f}"
    print(f"spend         {usage.get('input_tokens', 0)} + {usage.get('output_tokens', 0)} tokens, {price}")


if __name__ == "__main__":
    sys.exit(main())
