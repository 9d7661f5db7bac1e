"""One API server for the tier; the tier is skipped where its programs are not there and were not asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from driverforge_core.errors import Unavailable
from support import kubernetes_build
from support.kubelet import SUITES
from support.kubernetes import Api, api_server

NODES = tuple(f"node-{suite}" for suite in SUITES)  # what a test may start a kubelet as


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A cluster whose namespaces are `restricted` unless they say otherwise; nodes are there while a test runs one."""
    try:
        programs = kubernetes_build.programs()
    except Unavailable as reason:
        pytest.skip(f"{reason.brief}: {reason.resolution}")
    with api_server(programs, tmp_path_factory.mktemp("cluster"), nodes=NODES) as running:
        yield running
