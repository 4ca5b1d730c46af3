"""Free ports on the loopback interface."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from devstack.errors import StackError

HOST: Final = "127.0.0.1"

# Below what kernels hand out for outgoing connections (Linux from 32768, macOS from 49152): a server that was killed
# must find its port still free when it comes back, whatever connected elsewhere meanwhile.
_LOWEST: Final = 18000
_HIGHEST: Final = 30000
# A server binds its port seconds after it was chosen: another one of the same stack must not get it meanwhile.
_GIVEN: Final = set[int]()
_EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Return `count` different TCP ports on which nothing listens at the moment, and that nobody here was given."""
    candidates = [port for port in range(_LOWEST, _highest()) if port not in _GIVEN]
    random.shuffle(candidates)
    found: list[int] = []
    with ExitStack() as held:
        for port in candidates:
            if len(found) == count:
                _GIVEN.update(found)
                return found
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            found.append(port)
    message = f"no {count} free ports between {_LOWEST} and {_highest()} on {HOST}"
    raise StackError(message)


def _highest() -> int:
    """Return the end of the range to choose from: below this machine's ephemeral ports where that is known."""
    try:
        lowest_ephemeral = int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return _HIGHEST
    return _HIGHEST if lowest_ephemeral <= _LOWEST + 1000 else min(_HIGHEST, lowest_ephemeral)
