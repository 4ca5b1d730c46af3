"""What a stack has started, written down so that a later program can stop it even if its owner was killed."""

import json
import os
import signal
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from devstack.docker import Compose
from devstack.processes import Identity, stop_foreign
from devstack.server import ServiceName

_FILE: Final = "stack.json"
_STOP_S: Final = 30.0


@dataclass(slots=True)
class Record:
    """`owner` is None for a stack that is meant to outlive the program which started it."""

    folder: Path
    owner: Identity | None
    processes: dict[str, Identity] = field(default_factory=dict)
    compose_project: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Read the record of a stack's folder, None if there is none (or only half of one)."""
        try:
            data: dict[str, Any] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return cls(
            folder=folder,
            owner=None if data["owner"] is None else Identity(**data["owner"]),
            processes={name: Identity(**process) for name, process in data["processes"].items()},
            compose_project=data["compose_project"],
            environment=data["environment"],
        )

    def save(self) -> None:
        """Write it, at once and whole."""
        data = {
            "owner": None if self.owner is None else asdict(self.owner),
            "processes": {name: asdict(process) for name, process in self.processes.items()},
            "compose_project": self.compose_project,
            "environment": self.environment,
        }
        partial = self.folder / f"{_FILE}.partial"
        partial.write_text(json.dumps(data, indent=2), encoding="utf-8")
        partial.replace(self.folder / _FILE)

    def started(self, name: ServiceName, process: Identity) -> None:
        """Add a process; called from the threads that start the servers."""
        with self._lock:
            self.processes[name] = process
            self.save()

    def abandoned(self) -> bool:
        """Say whether the owner is gone without having stopped its servers."""
        return self.owner is not None and self.owner.pid != os.getpid() and not self.owner.alive()

    def stop_all(self) -> None:
        """Stop every server in the record, by pid and start time or by project, and nothing else."""
        for name, process in self.processes.items():
            # Fast shutdown for Postgres; Kafka and S3 end on SIGTERM.
            stop_foreign(process, signal.SIGINT if name == "postgres" else signal.SIGTERM, _STOP_S)
        if self.compose_project is not None:
            Compose(self.compose_project).down()
