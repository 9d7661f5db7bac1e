"""The operator's own way to an API server, in the hands of a test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from driverforge_operator.cluster.api import ApiServer
from driverforge_operator.cluster.kubeconfig import find
from driverforge_operator.cluster.login import client
from support.cluster.kubernetes import OPERATOR, Api


@contextmanager
def adapter(api: Api, namespace: str, *, user: str = OPERATOR) -> Iterator[ApiServer]:
    """As a user. A page has two objects, so that lists have several."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "kubeconfig"
        config.write_text(api.kubeconfig(user))
        access = find({"KUBECONFIG": str(config)})
    with client(access, httpx2.Timeout(30)) as http:
        yield ApiServer(http, namespace, page=2)
