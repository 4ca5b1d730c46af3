"""What the images install, without Docker: built wheels on the service's own lock, in an environment of their own."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

_ROOT = Path(__file__).resolve().parents[2]
_PIP = ("-m", "pip", "--disable-pip-version-check")


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that has to succeed, outside of the checkout, and return what it printed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def data_files(root: Path) -> set[Path]:
    """Return the schemas' files below a folder, without the distribution's own; none may be missing in the wheel."""
    found = {path.relative_to(root) for suffix in ("avsc", "json", "yaml") for path in root.rglob(f"*.{suffix}")}
    return {path for path in found if path.parts[0] != "src"}


def test_the_compactor_installs_without_agents(tmp_path: Path) -> None:
    """The wheels of the compactor work on its lock alone: the schemas are inside, pydantic-ai is not."""
    wheels = tmp_path / "wheels"
    sources = [_ROOT / "schemas", _ROOT / "libs/runfold", _ROOT / "services/snapshot_compactor"]
    build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir")
    run(sys.executable, *_PIP, *build, wheels, *sources, cwd=tmp_path)
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    lock = _ROOT / "deploy/locks/snapshot_compactor.lock"
    run(python, *_PIP, "install", "--require-hashes", "-r", lock, cwd=tmp_path)
    run(python, *_PIP, "install", "--no-deps", "--no-index", *sorted(wheels.glob("*.whl")), cwd=tmp_path)
    run(python, "-m", "pip", "check", cwd=tmp_path)

    installed = run(python, *_PIP, "list", "--format=freeze", cwd=tmp_path)
    assert "runfold-snapshot-compactor==" in installed
    assert "pydantic-ai" not in installed
    run(python, "-c", "import runfold_snapshot_compactor.__main__", cwd=tmp_path)
    root = Path(run(python, "-c", "import runfold_schemas; print(runfold_schemas.root())", cwd=tmp_path).strip())
    assert root.is_relative_to(tmp_path)
    assert data_files(root) == data_files(_ROOT / "schemas")
    assert (tmp_path / "venv" / "bin" / "runfold-snapshot-compactor").exists()
