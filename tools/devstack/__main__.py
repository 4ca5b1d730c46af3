"""`python -m devstack up|down|status`: one stack for development, which outlives the command that starts it."""

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from devstack.errors import StackError
from devstack.record import Record
from devstack.server import MODES, Mode
from devstack.stack import FOLDER, Stack, sweep

_NAME: Final = "dev"
_ROOT: Final = Path(__file__).resolve().parents[2]
_BASE: Final = _ROOT / FOLDER
_ENVIRONMENT: Final = _BASE / "env"


def main() -> int:
    """Run one command; return 0 if it did what it says, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="devstack", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("up", help="start Kafka, Postgres and S3, and write .stack/env")
    starting.add_argument("--mode", choices=MODES, default="auto", help="how the servers are found")
    commands.add_parser("down", help="stop them and remove their data")
    commands.add_parser("status", help="say which of them run")
    arguments = parser.parse_args()
    try:
        match arguments.command:
            case "up":
                return up(arguments.mode)
            case "down":
                return down()
            case _:
                return status()
    except StackError as error:
        sys.stderr.write(f"devstack: {error}\n")
        return 1


def up(mode: Mode) -> int:
    """Start the stack unless it runs, and write the addresses to .stack/env."""
    record = Record.load(_BASE / _NAME)
    if record is not None and _ENVIRONMENT.exists() and all(process.alive() for process in record.processes.values()):
        print(f"devstack: already up; {_ENVIRONMENT.relative_to(_ROOT)} has the addresses")
        return 0
    if record is not None:
        down()
    began = time.monotonic()
    stack = Stack.start(_ROOT, mode=mode, name=_NAME)
    lines = [f"{key}={value}\n" for key, value in stack.environment().items()]
    _ENVIRONMENT.write_text("".join(lines), encoding="utf-8")
    stack.detach()
    found = ", ".join(f"{name} ({origin})" for name, origin in stack.origins().items())
    print(f"devstack: {found} ready after {time.monotonic() - began:.1f} s")
    print("devstack: for a shell: set -a; . .stack/env; set +a")
    return 0


def down() -> int:
    """Stop the stack and remove its data; the same for what killed test sessions have left running."""
    sweep(_BASE)
    _ENVIRONMENT.unlink(missing_ok=True)
    record = Record.load(_BASE / _NAME)
    if record is not None:
        record.stop_all()
        print("devstack: down, and its data removed")
    else:
        print("devstack: nothing is up")
    shutil.rmtree(_BASE / _NAME, ignore_errors=True)
    return 0


def status() -> int:
    """Print a line for each server; return 1 if one has died. That nothing is up is an answer too."""
    record = Record.load(_BASE / _NAME)
    if record is None:
        print("devstack: nothing is up")
        return 0
    for name, process in record.processes.items():
        print(f"{name}: {'running' if process.alive() else 'dead'}, pid {process.pid}")
    if record.compose_project is not None:
        print(f"containers: docker compose --project-name {record.compose_project} ps")
    return 0 if all(process.alive() for process in record.processes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
