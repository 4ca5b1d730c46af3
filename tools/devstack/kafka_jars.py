"""Apache Kafka's jars from Maven: fetched once a checkout, checked against the committed sums at every start."""

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from devstack.errors import NoServersError, StackError

_HERE: Final = Path(__file__).parent / "kafka"
_POM: Final = _HERE / "pom.xml"
_SUMS: Final = _HERE / "jars.sha256"
_OLDEST_JAVA: Final = 17
_NEEDS: Final = (
    f"a local Kafka needs Java {_OLDEST_JAVA} or newer and Maven (or give Docker, or RUNFOLD_KAFKA_BOOTSTRAP)"
)


def java() -> str:
    """Return the path of a Java runtime that Kafka 4 accepts."""
    found = shutil.which("java")
    if found is None:
        message = f"{_NEEDS}: there is no `java` in PATH"
        raise NoServersError(message)
    told = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        message = f"{_NEEDS}: {found} says {told.strip()!r}"
        raise NoServersError(message)
    return found


def kafka_jars(folder: Path) -> Path:
    """Return `folder`, filled with exactly the jars of the committed list.

    Safe for several processes at once: one downloads, the others wait for it. Raises StackError where a jar is not
    what it should be.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _download(folder)
        wrong = _differences(folder)
    if wrong:
        message = f"{folder} does not hold the jars of {_SUMS}; remove it and try again: {', '.join(wrong)}"
        raise StackError(message)
    return folder


def _download(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        message = f"{_NEEDS}: there is no `mvn` in PATH"
        raise NoServersError(message)
    sys.stderr.write("devstack: fetching Apache Kafka from Maven (54 MB, once a checkout) ... ")
    sys.stderr.flush()
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    told = subprocess.run(
        [
            *(maven, "-B", "--no-transfer-progress", "-f", str(_POM), "dependency:copy-dependencies"),
            *(f"-DoutputDirectory={partial.absolute()}", "-DincludeScope=runtime"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode != 0:
        sys.stderr.write("failed\n")
        message = f"Maven could not fetch Kafka:\n{told.stdout[-3000:]}{told.stderr[-1000:]}"
        raise StackError(message)
    partial.rename(folder)
    sys.stderr.write("done\n")


def _differences(folder: Path) -> list[str]:
    """Return the names of jars that are missing, changed, or not listed (the class path takes all that is there)."""
    expected = {}
    for line in _SUMS.read_text(encoding="ascii").splitlines():
        digest, name = line.split()
        expected[name] = digest
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
