"""The command line: settings options anywhere, wrong usage is 2 and says what is wrong, and it starts quickly."""

import os
import resource
import subprocess
import sys

import pytest

from runfold.cli import main
from runfold.cli.app import settings_first
from runfold.cli.explain import one_line
from runfold.cli.writing import outcome, refusal
from runfold.client import Settled, Submitted
from runfold.client.scan import Place
from runfold.ports.publisher import Published
from runfold.service.variables import VARIABLES

PLACES = {
    "RUNFOLD_POSTGRES_DSN": "postgresql://someone:hunter2@127.0.0.1:1/nowhere",
    "RUNFOLD_KAFKA_BOOTSTRAP": "127.0.0.1:1",
    "RUNFOLD_BLOB_URL": "file:///tmp/runfold-nowhere",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Point every dependency at a port where nobody listens."""
    for name in [name for name in os.environ if name.startswith("RUNFOLD_")]:
        monkeypatch.delenv(name)
    for name, value in PLACES.items():
        monkeypatch.setenv(name, value)


def test_settings_may_stand_anywhere() -> None:
    line = ["events", "r-1", "--partitions", "4", "--json", "--topic-prefix=x.", "--", "--partitions"]
    assert settings_first(line) == [
        "--partitions",
        "4",
        "--topic-prefix=x.",
        "events",
        "r-1",
        "--json",
        "--",
        "--partitions",
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["start", "research", "--input", "{bad"], "--input is not JSON"),
        (["start", "research", "--input", '{"a": NaN}'], "NaN is not JSON"),
        (["start", "research", "--input", "{}", "--run-id", "no spaces"], "run_id"),
        (["resolve", "r-1", "24", "--by", "ops"], "exactly one of --result, --absent and --error"),
        (["resolve", "r-1", "24", "--by", "ops", "--absent", "--error", "x"], "exactly one of"),
        (["resolve", "r-1", "24", "--by", "ops", "--result", "oops"], "--result is not JSON"),
        (["start", "research", "--input", "{}", "--wait-timeout", "3"], "--wait-timeout is for --wait"),
        (["list", "--status", "sleeping"], "sleeping"),
        (["verify", "--partition", "12"], "--partition 12: there are 12, counted from 0"),
        (["rebuild", "--partition", "12"], "--partition 12: there are 12, counted from 0"),
        (["frobnicate"], "frobnicate"),
        (["approve", "r-1", "r-1:19"], "--by"),
        (["list", "--partitions", "many"], "RUNFOLD_PARTITIONS: 'many'"),
    ],
)
def test_wrong_usage_is_2_and_names_what_is_wrong(
    line: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert not shown.out


def test_every_variable_is_an_option_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Also the variables of services, which `list` does not use; it then tries to do its work."""
    values = {"--kafka-config": os.devnull, "--partitions": "3", "--replication-factor": "1", "--app": "a:b"} | {
        f"--{name.removeprefix('RUNFOLD_').lower().replace('_', '-')}": value for name, value in PLACES.items()
    }
    line = [word for variable in VARIABLES for word in (variable.option, values.get(variable.option, "1"))]
    line[line.index("--postgres-schema") + 1] = "runfold"
    assert main(["list", *line]) == 3, capsys.readouterr().err
    assert main([*line, "list"]) == 3, capsys.readouterr().err


def test_an_error_on_several_lines_becomes_one_that_separates_them() -> None:
    assert one_line(ValueError("a failed\n\tIs it  running?\n")) == "a failed; Is it running?"


def test_an_input_without_an_executor_is_queued_and_says_where_to_look() -> None:
    submitted = Submitted("run-1", Published("runfold.requests", 2, 7), Place(None, None))
    assert outcome(submitted, None, 5.0) == (
        "it is durably queued at runfold.requests[2]@7, not refused: no executor has handled it within 5 s (after a "
        "crash the take-over takes about 10 s); see `runfold events run-1` or `runfold dead list`"
    )


@pytest.mark.parametrize("reason", ["run_exists", "not_open", "unsupported_type", "version_mismatch"])
def test_a_refusal_gives_each_hint_once(reason: str) -> None:
    detail = "an id is never used again, see `runfold waits`, is not served"
    said = refusal(Settled("dead", reason=reason, detail=detail))
    assert all(said.count(hint) == 1 for hint in ("never used again", "`runfold waits`", "not served"))


@pytest.mark.parametrize(("more", "is_told"), [((), True), (("--wait-timeout", "9"), False)])
def test_a_timeout_beside_wait_is_told_from_the_limit_of_the_waiting(
    *, more: tuple[str, ...], is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is about an executor's taking the start; who means the end is told the option."""
    line = ["start", "research", "--input", "{}", "--wait", "--timeout", "3", *more]
    assert main(line) == 3, "no broker listens"
    assert ("--wait-timeout SECONDS sets one" in capsys.readouterr().err) == is_told


def test_bad_json_names_the_position(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", "research", "--input", '{"a": 1,}']) == 2
    assert "line 1 column 9" in capsys.readouterr().err


def test_an_unknown_variable_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RUNFOLD_KAFKA_BOOTSTRP", "x:1")
    assert main(["list"]) == 2
    assert "did you mean RUNFOLD_KAFKA_BOOTSTRAP?" in capsys.readouterr().err


def test_postgres_that_cannot_be_reached_is_3_and_names_address_and_variable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "--json"]) == 3
    shown = capsys.readouterr()
    (line,) = shown.err.splitlines()
    assert "Postgres could not be reached at 127.0.0.1:1/nowhere (RUNFOLD_POSTGRES_DSN)" in line
    assert "hunter2" not in line
    assert not shown.out


def test_help_starts_quickly() -> None:
    """In CPU time, which a busy machine does not change."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent()
    shown = subprocess.run([sys.executable, "-m", "runfold.cli", "--help"], check=True, capture_output=True)
    assert b"RUNFOLD_KAFKA_BOOTSTRAP" in shown.stdout
    assert spent() - before < 0.5


def test_nothing_heavy_is_imported_for_help() -> None:
    code = (
        "import sys; from runfold.cli import main; main(['list', '--help']);"
        "print([name for name in ('confluent_kafka', 'psycopg', 'boto3', 'pydantic_ai', 'fastavro')"
        " if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_a_package_that_is_not_installed_is_named_with_the_mend() -> None:
    code = "import sys; sys.modules['typer'] = None; from runfold.cli import main; main(['list'])"
    said = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert said.stderr == "runfold: typer is not installed: the command needs `pip install 'runfold[cli]'`\n"
    assert said.returncode == 1
