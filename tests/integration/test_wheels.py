"""What the images install, without Docker: built wheels on each service's own lock, in an environment of its own."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

_ROOT = Path(__file__).resolve().parents[2]
_PIP = ("-m", "pip", "--disable-pip-version-check")
_SERVICES = ("step_executor", "snapshot_compactor", "reconciler")


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that has to succeed, outside of the checkout, and return what it printed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def data_files(root: Path) -> set[Path]:
    """Return the schemas' files below a folder; all that is not for the checks of a checkout has to be in the wheel."""
    found = {path.relative_to(root) for suffix in ("avsc", "json", "yaml") for path in root.rglob(f"*.{suffix}")}
    return {path for path in found if path.parts[0] not in ("src", "vendor", "fingerprints.json")}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build every distribution once."""
    folder = tmp_path_factory.mktemp("wheels")
    sources = [_ROOT / "schemas", _ROOT / "libs/runfold", *(_ROOT / "services" / name for name in _SERVICES)]
    build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir")
    run(sys.executable, *_PIP, *build, folder, *sources, cwd=folder)
    return folder


@pytest.mark.parametrize("services", [("snapshot_compactor",), ("step_executor", "reconciler")])
def test_services_install_from_wheels_on_their_own_lock(
    services: tuple[str, ...], wheels: Path, tmp_path: Path
) -> None:
    """The lock is complete, the commands start, the schemas are inside; the compactor does without pydantic-ai.

    Two services whose locks are the same share an environment: making one takes most of the time.
    """
    (lock,) = {(_ROOT / f"deploy/locks/{service}.lock").read_text(encoding="utf-8") for service in services}
    (tmp_path / "lock").write_text(lock, encoding="utf-8")
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    pip = (sys.executable, *_PIP, "--python", python)
    names = ["runfold", "runfold_schemas", *(f"runfold_{service}" for service in services)]
    ours = [next(wheels.glob(f"{name}-*.whl")) for name in names]
    run(*pip, "install", "--no-compile", "--require-hashes", "-r", tmp_path / "lock", cwd=tmp_path)
    run(*pip, "install", "--no-compile", "--no-deps", "--no-index", *ours, cwd=tmp_path)
    run(*pip, "check", cwd=tmp_path)

    assert ("pydantic-ai" in run(*pip, "list", "--format=freeze", cwd=tmp_path)) == (len(services) > 1)
    for service in services:
        command = python.with_name(f"runfold-{service.replace('_', '-')}")
        assert "RUNFOLD_METRICS_HOST" in run(command, "--help", cwd=tmp_path)
    root = Path(run(python, "-c", "import runfold_schemas; print(runfold_schemas.root())", cwd=tmp_path).strip())
    assert root.is_relative_to(tmp_path)
    assert data_files(root) == data_files(_ROOT / "schemas")
