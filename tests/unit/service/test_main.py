"""The frame of a service, as a real process: exit codes, SIGTERM at any moment, health, one JSON object a line."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from runfold.service.errors import InstallationError
from runfold.service.garbage import THRESHOLDS
from runfold.service.watchdog import EXIT_STALLED
from runfold.service.wiring import beside

FRAME = """
import asyncio, sys, time
from runfold.service.errors import InstallationError
from runfold.service.main import Service
from runfold.service.settings import CompactorSettings
from runfold.service.watchdog import Watchdog

async def serve(settings, kit):
{body}

sys.exit(Service("runfold-test", "A test.", CompactorSettings, serve, needs=["kafka"]).main())
"""
SURROUNDINGS = {
    **{name: value for name, value in os.environ.items() if not name.startswith("RUNFOLD_")},
    "RUNFOLD_POSTGRES_DSN": "postgresql://x:hunter2@127.0.0.1:1/x",
    "RUNFOLD_BLOB_URL": "file:///tmp/x",
}


@contextmanager
def service(body: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run a service with this body; it is gone with the block."""
    code = FRAME.format(body="\n".join(f"    {line}" for line in body.splitlines()))
    with subprocess.Popen(
        [sys.executable, "-c", code, *options], stderr=subprocess.PIPE, text=True, env=SURROUNDINGS
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], event: str) -> dict[str, object]:
    assert process.stderr is not None
    for line in process.stderr:
        said: dict[str, object] = json.loads(line)
        if said["event"] == event:
            return said
    message = f"never said {event!r}"
    raise AssertionError(message)


def test_sigterm_stops_it_cleanly() -> None:
    body = "left = asyncio.Event()\nasync def leave(): left.set()\nkit.log.info('up')\n"
    body += "await kit.until_stopped(left.wait(), leave)"
    with service(body) as process:
        until(process, "up")
        process.send_signal(signal.SIGTERM)
        until(process, "stopped")
        assert process.wait(10) == 0


def test_a_service_that_does_not_stop_in_time_ends_all_the_same() -> None:
    body = "from runfold.service import main\nmain.STOP_S = 0.2\nkit.log.info('up')\nawait asyncio.Event().wait()"
    with service(body) as process:
        until(process, "up")
        process.send_signal(signal.SIGTERM)
        until(process, "stopping")
        assert "did not stop within 0.2 s" in str(until(process, "failed")["error"])
        assert process.wait(10) == 1


def test_what_breaks_an_engine_is_told_without_its_group() -> None:
    body = (
        "async def work(): raise ValueError('broken')\nasync def leave(): ...\nawait kit.until_stopped(work(), leave)"
    )
    with service(body) as process:
        assert until(process, "failed")["error"] == "broken"
        assert process.wait(10) == 1


def test_what_start_up_made_is_left_out_of_collections() -> None:
    body = (
        "import gc\n"
        "kit.log.info('imported', frozen=gc.get_freeze_count(), every=gc.get_threshold())\n"
        "async def work(): raise ValueError(f'{gc.get_freeze_count()}')\n"
        "async def leave(): ...\n"
        "made = [[] for _ in range(1000)]\n"
        "await kit.until_stopped(work(), leave)"
    )
    with service(body) as process:
        imported = until(process, "imported")
        frozen = imported["frozen"]
        assert isinstance(frozen, int)
        assert frozen > 10_000
        assert imported["every"] == list(THRESHOLDS)
        assert int(str(until(process, "failed")["error"])) >= frozen + 1000


def test_sigterm_while_a_dependency_is_away_stops_it() -> None:
    body = (
        "async def ask(): raise ConnectionError('refused')\n"
        "await kit.reach('kafka', ask, ConnectionError, variable='RUNFOLD_KAFKA_BOOTSTRAP')"
    )
    with service(body) as process:
        said = until(process, "dependency_away")
        assert (said["dependency"], said["variable"]) == ("kafka", "RUNFOLD_KAFKA_BOOTSTRAP")
        process.send_signal(signal.SIGTERM)
        until(process, "stopped_before_ready")
        assert process.wait(10) == 0


def test_a_wrong_installation_is_2_with_the_mend() -> None:
    with service("raise InstallationError('topics are missing: run `runfold setup`')") as process:
        assert "run `runfold setup`" in str(until(process, "start_refused")["error"])
        assert process.wait(10) == 2


@pytest.mark.parametrize(
    "body",
    [
        "raise SystemExit(0)",
        "async def leave(): raise SystemExit(0)\nasync with asyncio.TaskGroup() as group: group.create_task(leave())",
    ],
)
def test_a_service_that_the_authors_code_ends_has_failed(body: str) -> None:
    with service(body) as process:
        assert until(process, "failed")["error"] == "SystemExit: 0 was raised in a service"
        assert process.wait(10) == 1


def test_a_failure_is_1_and_says_why() -> None:
    with service("raise ValueError('broken')") as process:
        said = until(process, "failed")
        assert (said["error"], said["level"]) == ("broken", "error")
        assert process.wait(10) == 1


def test_wrong_settings_are_2_and_hold_no_secret() -> None:
    with service("pass", "--partitions", "many") as process:
        _, said = process.communicate(timeout=10)
        assert process.returncode == 2
        assert "RUNFOLD_PARTITIONS: 'many'" in said
        assert "hunter2" not in said


def test_the_first_line_shows_the_settings_without_the_password() -> None:
    with service("raise ValueError('broken')") as process:
        settings = until(process, "starting")["settings"]
        assert isinstance(settings, dict)
        assert settings["partitions"] == 12
        assert "hunter2" not in str(settings)


def test_a_hung_loop_ends_the_process() -> None:
    code = (
        "import asyncio, time\n"
        "from runfold.service.watchdog import Watchdog\n"
        "async def main():\n"
        "    async with Watchdog(stalled_s=0.2, beat_s=0.02):\n"
        "        time.sleep(60)\n"
        "asyncio.run(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == EXIT_STALLED
    assert json.loads(done.stderr)["event"] == "event_loop_stalled"


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_names_every_variable(option: str) -> None:
    code = FRAME.format(body="    pass")
    done = subprocess.run(
        [sys.executable, "-c", code, option], capture_output=True, text=True, env=SURROUNDINGS, check=True
    )
    assert "RUNFOLD_SNAPSHOT_EVERY" in done.stdout


async def test_work_beside_a_block_is_done_when_the_block_is() -> None:
    async with beside(asyncio.sleep(0.01, "worked")) as working:
        assert not working.done()
    assert working.result() == "worked"


async def test_work_that_fails_ends_the_block_beside_it_and_is_raised_alone() -> None:
    async def work() -> None:
        raise InstallationError("no app") from KeyError("why")

    with pytest.raises(InstallationError, match="no app") as failed:
        async with beside(work()):
            await asyncio.Event().wait()
    assert isinstance(failed.value.__cause__, KeyError)


async def test_a_block_that_fails_ends_the_work_beside_it() -> None:
    tasks: list[asyncio.Task[bool]] = []

    async def serve() -> None:
        async with beside(asyncio.Event().wait()) as working:
            tasks.append(working)
            await asyncio.sleep(0)
            raise InstallationError("no topics")

    with pytest.raises(InstallationError, match="no topics"):
        await serve()
    assert tasks[0].cancelled()
