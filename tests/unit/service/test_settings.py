"""Settings: read once, errors name the variable and the mend, secrets stay secret."""

import os
import re
from pathlib import Path

import pytest

from runfold.service import settings as subject
from runfold.service.options import parse
from runfold.service.settings import (
    AppSettings,
    ClientSettings,
    CompactorSettings,
    SettingsError,
    StepExecutorSettings,
    load,
)
from runfold.service.variables import BY_FIELD, VARIABLES

SECRET = "hunter2"  # noqa: S105 - the point is that it is never printed
DSN = f"postgresql://runfold:{SECRET}@127.0.0.1:5432/runfold"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing of the surroundings, and give what has no default."""
    for name in [name for name in os.environ if name.startswith("RUNFOLD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RUNFOLD_POSTGRES_DSN", DSN)
    monkeypatch.setenv("RUNFOLD_BLOB_URL", "file:///tmp/blobs")


def refused(kind: type[subject.Installation] = ClientSettings) -> str:
    with pytest.raises(SettingsError) as caught:
        load(kind)
    return str(caught.value)


def test_the_table_and_the_types_name_the_same_variables() -> None:
    kinds = (ClientSettings, CompactorSettings, StepExecutorSettings)
    fields = {name: field for kind in kinds for name, field in kind.model_fields.items()}
    assert set(fields) == set(BY_FIELD)
    for variable in VARIABLES:
        default = fields[variable.field].default
        if variable.shown_default not in (None, "found", "the broker's"):
            assert str(default) == variable.shown_default


def test_defaults_are_those_of_the_contract() -> None:
    found = load(ClientSettings)
    assert (found.kafka_bootstrap, found.topic_prefix, found.partitions) == ("127.0.0.1:9092", "runfold.", 12)
    assert (found.postgres_schema, found.replication_factor, found.app) == ("runfold", None, None)
    compactor = load(CompactorSettings)
    assert (compactor.snapshot_every, compactor.metrics_host, compactor.metrics_port) == (50, "127.0.0.1", 0)


def test_an_option_stands_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNFOLD_PARTITIONS", "4")
    assert load(ClientSettings).partitions == 4
    assert load(ClientSettings, {"partitions": "6"}).partitions == 6


def test_an_unknown_variable_is_named_with_the_nearest_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNFOLD_PARTITONS", "4")
    assert refused() == "RUNFOLD_PARTITONS: there is no such variable; did you mean RUNFOLD_PARTITIONS?"


def test_a_variable_of_another_service_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNFOLD_APP", "agents:app")
    monkeypatch.setenv("RUNFOLD_SNAPSHOT_EVERY", "7")
    assert load(CompactorSettings).snapshot_every == 7
    assert load(AppSettings).app == "agents:app"


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("RUNFOLD_KAFKA_BOOTSTRAP", "localhost", "'localhost': must be host:port"),
        ("RUNFOLD_PARTITIONS", "many", "'many': input should be a valid integer"),
        ("RUNFOLD_PARTITIONS", "0", "'0': input should be greater than or equal to 1"),
        ("RUNFOLD_TOPIC_PREFIX", "run fold", "'run fold': must be 1 to 150 characters"),
        ("RUNFOLD_POSTGRES_SCHEMA", "a;drop", "'a;drop': must be a lower-case Postgres identifier"),
        ("RUNFOLD_BLOB_URL", "http://x", "'http://x': must be s3://bucket[/prefix] or file:///folder"),
        ("RUNFOLD_METRICS_HOST", "every where", "'every where': must be an address or a host name"),
        ("RUNFOLD_KAFKA_CONFIG", "/nowhere/at/all", "'/nowhere/at/all': cannot be read: No such file or directory"),
    ],
)
def test_a_bad_value_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str) -> None:
    monkeypatch.setenv(variable, value)
    kind = CompactorSettings if "METRICS" in variable else ClientSettings
    assert refused(kind).startswith(f"{variable}: {said}")


def test_everything_that_is_wrong_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNFOLD_POSTGRES_DSN")
    monkeypatch.setenv("RUNFOLD_BLOB_URL", "nonsense")
    monkeypatch.setenv("RUNFOLD_AP", "x:y")
    said = refused(AppSettings).splitlines()
    assert [re.split(r": | is not set", line)[0] for line in said] == [
        "RUNFOLD_AP",
        "RUNFOLD_POSTGRES_DSN",
        "RUNFOLD_BLOB_URL",
        "RUNFOLD_APP",
    ]
    assert "RUNFOLD_POSTGRES_DSN is not set: give a libpq URL there or with --postgres-dsn" in said[1]


def test_the_password_is_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SECRET not in repr(load(ClientSettings))
    monkeypatch.setenv("RUNFOLD_POSTGRES_DSN", f"mysql://runfold:{SECRET}@db/x")
    said = refused()
    assert SECRET not in said
    assert said.startswith("RUNFOLD_POSTGRES_DSN: must be a libpq URL")


def test_settings_cannot_be_changed_after_reading(tmp_path: Path) -> None:
    found = load(ClientSettings, {"blob_url": f"file://{tmp_path}"})
    with pytest.raises(ValueError, match="frozen"):
        found.partitions = 3


def test_a_service_has_an_option_for_each_of_its_variables() -> None:
    given = parse("runfold-x", "", CompactorSettings.model_fields, ["--kafka-bootstrap", "k:1", "--snapshot-every=3"])
    assert given == {"kafka_bootstrap": "k:1", "snapshot_every": "3"}


def test_an_option_of_another_command_is_accepted_and_ignored() -> None:
    """One set of options serves every command, as one environment does."""
    line = [word for variable in VARIABLES for word in (variable.option, "x")]
    given = parse("runfold-x", "", CompactorSettings.model_fields, line)
    assert set(given) == set(CompactorSettings.model_fields)


def test_an_unknown_option_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("runfold-x", "", CompactorSettings.model_fields, ["--kafka-bootstrp", "k:1"])
    assert caught.value.code == 2
    assert "--kafka-bootstrp" in capsys.readouterr().err
