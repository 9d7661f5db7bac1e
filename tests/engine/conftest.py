"""What the tests of this tier share: an engine, a base image, a registry by compose.

The engine is the user's, else one of the bench's own.
"""

from __future__ import annotations

import shlex
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support import aptfetch
from support.machines.emulation import Base, emulated
from support.machines.engine import Engine, debian_base, find_or_start
from support.samples.aptrepo import SigningKey, signing_key
from support.skipping import provided

# what takes longest begins first, so that no worker is left alone with it at the end
LONGEST = (
    "test_likes_rocky",
    "test_build_image",
    "test_build_signed",
    "test_build_driver_image",
    "test_build_real",
    "test_compile_cache",
    "test_build_runfile",
    "test_mirror_copy",
    "test_bench_images",
    "test_build_operator",
    "test_build_toolkit",
    "test_conftest_answers",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """An engine with BuildKit; one of our own ends with the test run."""
    found = provided(find_or_start)
    if not found.host.startswith("unix://"):
        pytest.skip(
            f"the engine at {found.host} is on another machine, "
            "and could not reach the servers of these tests"
        )
    yield found
    found.stop()  # waits for other workers where this one started it


@pytest.fixture(scope="session")
def bookworm(engine: Engine) -> str:
    """A base image with Debian 12 whose apt configuration names this machine's mirror."""
    return provided(lambda: debian_base(engine, "bookworm"))


@pytest.fixture(
    scope="module",
    params=["amd64", pytest.param("arm64", marks=pytest.mark.full(reason="emulates another processor"))],
)
def base(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Base]:
    """Debian 12 of one architecture after the other."""
    if request.param == "amd64":
        yield Base(arch="amd64", name=request.getfixturevalue("bookworm"))
        return
    with ExitStack() as stack:
        provided(lambda: stack.enter_context(emulated(request.param)))
        yield Base(arch=request.param, name=provided(lambda: debian_base(engine, "bookworm", request.param)))


@pytest.fixture(scope="session")
def registry_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(scope="session")
def docker_compose_file() -> str:
    """pytest-docker's: what it brings up."""
    return str(Path(__file__).parent / "docker-compose.yml")


@pytest.fixture(scope="session")
def docker_compose_project_name() -> str:
    """pytest-docker's: one name, so that what a killed run left is taken down by the next."""
    return "driverforge-engine-tier"


@pytest.fixture(scope="session")
def docker_compose_command(engine: Engine, bookworm: str, registry_port: int) -> str:
    """pytest-docker's: compose against our engine; the variables are those of docker-compose.yml."""
    archive = aptfetch.archive()
    package = archive.unpacked([archive.newest("docker-registry", suite="bookworm")])
    variables = {
        **engine.environment(),
        "BENCH_BASE": bookworm,
        "BENCH_REGISTRY_PACKAGE": str(package),
        "BENCH_REGISTRY_PORT": str(registry_port),
    }
    return (
        f"env {' '.join(shlex.quote(f'{name}={value}') for name, value in variables.items())} docker compose"
    )


@pytest.fixture(scope="session")
def compose_registry(docker_services: Any, registry_port: int) -> str:
    """The address of the registry that compose runs in the engine: '127.0.0.1:PORT'."""
    address = f"127.0.0.1:{registry_port}"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}/v2/", timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    docker_services.wait_until_responsive(check=answers, timeout=60.0, pause=0.1)
    return address


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    """A key that no system knows, of a kind that rpm accepts."""
    with signing_key(tmp_path_factory.mktemp("key") / "stranger", algorithm="rsa2048") as made:
        yield made
