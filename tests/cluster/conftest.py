"""One API server for the tier; the tier is skipped where its programs cannot be had."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.cluster import kubernetes_build
from support.cluster.kubelet import SUITES
from support.cluster.kubernetes import Api, api_server
from support.skipping import provided

# what a test may start a kubelet as
NODES = (*(f"node-{suite}" for suite in SUITES), "node-guest")


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A cluster whose namespaces are `restricted` unless they say otherwise.

    Nodes are there while a test runs one.
    """
    programs = provided(kubernetes_build.programs)
    with api_server(programs, tmp_path_factory.mktemp("cluster"), nodes=NODES) as running:
        yield running
