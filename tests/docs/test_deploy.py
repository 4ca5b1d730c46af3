"""The compose file agrees with the services, as far as that can be seen without a Docker engine."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from devstack.ports import free_ports
from runfold.service.health import Health, served
from runfold.service.main import STOP_S
from runfold.service.variables import NAMES

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
OURS = {name: service for name, service in COMPOSE["services"].items() if "build" in service}


def test_there_is_a_container_for_each_service() -> None:
    folders = {service["build"]["args"]["SERVICE"] for service in OURS.values()}
    assert folders == {path.name for path in (ROOT / "services").iterdir() if path.is_dir()}


@pytest.mark.parametrize("name", OURS)
def test_a_service_is_given_longer_to_stop_than_it_may_take(name: str) -> None:
    assert float(OURS[name]["stop_grace_period"].removesuffix("s")) > STOP_S


@pytest.mark.parametrize("name", OURS)
def test_a_service_is_given_variables_that_exist_and_serves_beyond_loopback(name: str) -> None:
    environment = OURS[name]["environment"]
    assert {variable for variable in environment if variable.startswith("RUNFOLD_")} <= NAMES
    assert environment["RUNFOLD_METRICS_HOST"] == "0.0.0.0"  # noqa: S104 - inside a container


@pytest.mark.parametrize("name", OURS)
async def test_the_health_check_tells_a_service_that_is_ready_from_one_that_is_not(name: str) -> None:
    """The very command of the file, on another port."""
    (port,) = free_ports(1)
    kind, *command = OURS[name]["healthcheck"]["test"]
    assert (kind, command[0]) == ("CMD", "python")
    probed = OURS[name]["environment"]["RUNFOLD_METRICS_PORT"]
    line, count = re.subn(rf":{probed}/", f":{port}/", command[-1])
    assert count == 1

    async def probe() -> int:
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, *command[1:-1], line], check=False, capture_output=True
        )
        return done.returncode

    health = Health(["kafka"])
    assert await probe() != 0
    async with served("0.0.0.0", port, health, lambda: b""):  # noqa: S104 - as in the container
        assert await probe() != 0
        health.reached("kafka")
        assert await probe() == 0
