"""Bad surroundings at start: each service and the command line say what is wrong, and what to do about it."""

import contextlib
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from demo.installation import Installation
from demo.processes import BIN, Service, Services
from demo.watching import await_state
from demo.world import Turn, World
from devstack import Stack
from devstack.ports import free_ports
from tests.acceptance.installing import crowd_installation

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

Json = Any
SERVICES = ("runfold-step-executor", "runfold-snapshot-compactor", "runfold-reconciler")
REFUSED, UNREACHABLE, USAGE = 2, 3, 2
_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def installed(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation that is set up."""
    with World(lambda task, _: Turn(text=f"{task} is done")) as world:
        installation = crowd_installation(stack, tmp_path_factory.mktemp("surroundings"), world)
        try:
            installation.runfold("setup")
            yield installation
        finally:
            installation.remove()


def _ended(command: str, environment: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    """Run a program that must end by itself; gives its code and what it said."""
    done = subprocess.run(
        [str(BIN / command), *arguments],
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
    )
    return done.returncode, done.stdout + done.stderr


def _closed() -> str:
    """Give an address where nothing listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


def _lost(variable: str) -> dict[str, str]:
    """Give the variables under which a dependency cannot be reached."""
    address = _closed()
    match variable:
        case "RUNFOLD_KAFKA_BOOTSTRAP":
            return {variable: address}
        case "RUNFOLD_POSTGRES_DSN":
            return {variable: f"postgresql://runfold:secret-word@{address}/runfold"}
        case _:
            keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
            return {"RUNFOLD_BLOB_URL": "s3://bucket/blobs", "AWS_ENDPOINT_URL": f"http://{address}", **keys}


def _readiness(service: Service) -> Json | None:
    """Give what /readyz says, None while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/readyz", timeout=2) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return json.loads(error.read())
    except OSError:
        return None


@pytest.mark.parametrize("variable", ["RUNFOLD_KAFKA_BOOTSTRAP", "RUNFOLD_POSTGRES_DSN", "RUNFOLD_BLOB_URL"])
@pytest.mark.parametrize("command", SERVICES)
def test_a_service_waits_for_what_is_away(installed: Installation, command: str, variable: str, tmp_path: Path) -> None:
    """It stays alive and not ready, names the variable in its log, keeps the password to itself, and stops cleanly."""
    with Services({**installed.environment, **_lost(variable)}, tmp_path) as services:
        service = services.start(command, "lost")  # type: ignore[arg-type]
        await_state(services, "a line that names the variable", lambda: variable in service.log.read_text() or None)
        readiness = await_state(services, "an answer of /readyz", lambda: _readiness(service))
        assert readiness["ready"] is False
        assert readiness["missing"]
        services.stop(service)
        assert "secret-word" not in service.log.read_text()


@pytest.mark.parametrize("variable", ["RUNFOLD_KAFKA_BOOTSTRAP", "RUNFOLD_POSTGRES_DSN"])
def test_the_command_line_ends_with_code_3(installed: Installation, variable: str) -> None:
    """`runfold show` names what it could not reach."""
    code, said = _ended("runfold", {**installed.environment, **_lost(variable)}, "show", "some-run")
    assert code == UNREACHABLE, said
    assert variable in said
    assert "Traceback" not in said
    assert "secret-word" not in said


@pytest.mark.parametrize("variable", ["RUNFOLD_KAFKA_BOOTSTRAP", "RUNFOLD_POSTGRES_DSN", "RUNFOLD_BLOB_URL"])
def test_check_names_what_is_away(installed: Installation, variable: str) -> None:
    """`runfold check` ends with code 3 and says which dependency, and that the others are well."""
    code, said = _ended("runfold", {**installed.environment, **_lost(variable)}, "check", "--json")
    assert code == UNREACHABLE, said
    unreachable = [row for row in json.loads(said) if row["status"] == "unreachable"]
    assert unreachable
    assert any(row["status"] == "ok" for row in json.loads(said))


def test_check_is_content_with_a_good_installation(installed: Installation) -> None:
    """Every finding is ok, and the code 0."""
    code, said = _ended("runfold", installed.environment, "check", "--json")
    assert code == 0, said
    assert {row["status"] for row in json.loads(said)} == {"ok"}


@pytest.mark.parametrize("command", ["runfold-step-executor", "runfold-snapshot-compactor"])
def test_missing_topics_refuse_the_start(installed: Installation, command: str) -> None:
    """The service ends with code 2, and names the topic and the mend."""
    environment = {**installed.environment, "RUNFOLD_TOPIC_PREFIX": "nobody-made-these."}
    code, said = _ended(command, environment)
    assert code == REFUSED, said
    assert "nobody-made-these." in said
    assert "runfold setup" in said


@pytest.mark.parametrize("command", ["runfold-step-executor", "runfold-snapshot-compactor"])
def test_another_partition_count_refuses_the_start(installed: Installation, command: str) -> None:
    """Keys would move to other partitions: the service ends with code 2 and says both counts."""
    code, said = _ended(command, {**installed.environment, "RUNFOLD_PARTITIONS": "7"})
    assert code == REFUSED, said
    assert "RUNFOLD_PARTITIONS" in said
    assert "4" in said
    assert "7" in said


def test_setup_refuses_another_partition_count(installed: Installation) -> None:
    """`runfold setup` with another count changes nothing, and fails."""
    code, said = _ended("runfold", {**installed.environment, "RUNFOLD_PARTITIONS": "7"}, "setup")
    assert code == 1, said
    assert "7" in said
    admin = AdminClient({"bootstrap.servers": installed.bootstrap})
    topics = admin.list_topics(timeout=_PATIENCE_S).topics
    assert len(topics[f"{installed.topics}requests"].partitions) == 4


def test_setup_twice_and_at_once_is_safe(installed: Installation) -> None:
    """Two more set-ups side by side change nothing and succeed."""
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(subprocess.Popen([str(BIN / "runfold"), "setup"], env=dict(installed.environment)))
            for _ in range(2)
        ]
        assert [each.wait(_PATIENCE_S) for each in both] == [0, 0]


@pytest.mark.parametrize("command", SERVICES)
def test_missing_tables_refuse_the_start(installed: Installation, command: str) -> None:
    """The service ends with code 2, and names the schema and the mend."""
    code, said = _ended(command, {**installed.environment, "RUNFOLD_POSTGRES_SCHEMA": "nobody_made_this"})
    assert code == REFUSED, said
    assert "nobody_made_this" in said
    assert "runfold setup" in said


@pytest.mark.parametrize("command", [*SERVICES, "runfold"])
def test_every_wrong_variable_is_named(installed: Installation, command: str) -> None:
    """Code 2, and a line for each variable that is unknown, malformed or missing, all at once."""
    wrong = {
        "RUNFOLD_PARTITONS": "4",
        "RUNFOLD_PARTITIONS": "many",
        "RUNFOLD_BLOB_URL": "ftp://somewhere",
        "RUNFOLD_KAFKA_BOOTSTRAP": "no port",
        "RUNFOLD_POSTGRES_DSN": "",
    }
    arguments = ["list"] if command == "runfold" else []
    code, said = _ended(command, {**installed.environment, **wrong}, *arguments)
    assert code == USAGE, said
    lines = said.splitlines()
    for variable in wrong:
        named = (f"{variable}:", f"{variable} is not set:")
        assert [line for line in lines if any(name in line for name in named)], f"{variable} is not named in\n{said}"
    assert "Traceback" not in said


@pytest.mark.parametrize("command", ["runfold-step-executor", "runfold-reconciler"])
@pytest.mark.parametrize("app", ["tests.crowd.app:nothing", "no_such_module:app"])
def test_an_app_that_is_not_there_is_named(installed: Installation, command: str, app: str) -> None:
    """Code 2, and the app's name."""
    code, said = _ended(command, {**installed.environment, "RUNFOLD_APP": app})
    assert code == REFUSED, said
    assert app in said


def test_a_safety_setting_cannot_be_overridden(installed: Installation, tmp_path: Path) -> None:
    """RUNFOLD_KAFKA_CONFIG with `acks=1` is refused by name."""
    config = tmp_path / "kafka.properties"
    config.write_text("acks=1\n")
    code, said = _ended("runfold-step-executor", {**installed.environment, "RUNFOLD_KAFKA_CONFIG": str(config)})
    assert code == REFUSED, said
    assert "acks" in said


def test_runs_wait_while_the_object_store_is_away(installed: Installation, tmp_path: Path) -> None:
    """Lost under a running executor: a run that needs it waits, one beside it is served, and both end in the end."""
    folder, aside = tmp_path / "blobs", tmp_path / "aside"
    environment = {**installed.environment, "RUNFOLD_BLOB_URL": folder.as_uri(), "RUNFOLD_INLINE_LIMIT": "1000"}
    text = "x" * 5_000

    def completed(run_id: str) -> bool | None:
        return any(row["run_id"] == run_id for row in installed.read("list", "--status", "completed")) or None

    with Services(environment, tmp_path) as services:
        parts = [
            services.start("runfold-step-executor", "executor"),
            services.start("runfold-snapshot-compactor", "compactor"),
        ]
        services.await_ready(*parts)
        folder.rename(aside)
        folder.write_text("no folder any more")
        installed.runfold(
            "start", "worker", "--run-id", "large", "--input", json.dumps({"task": text}), "--timeout", "0"
        )
        installed.runfold("start", "worker", "--run-id", "small", "--input", '{"task": "small"}')
        await_state(services, "the small run", lambda: completed("small"))
        assert completed("large") is None
        folder.unlink()
        aside.rename(folder)
        await_state(services, "the large run", lambda: completed("large"))
        for service in parts:
            services.stop(service)
