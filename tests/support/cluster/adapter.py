"""The operator's own way to an API server, in the hands of a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig

from driverforge_operator.cluster.api import ApiServer
from support.cluster.kubernetes import OPERATOR, Api


@contextmanager
def adapter(api: Api, namespace: str, *, user: str = OPERATOR) -> Iterator[ApiServer]:
    """As a user. A page has two objects, so that lists have several."""
    config = KubeConfig.from_dict(json.loads(api.kubeconfig(user))).get()
    assert config
    with Client(config, ConnectionParams(timeout=httpx2.Timeout(30), trust_env=False)) as http:
        yield ApiServer(http, namespace, page=2)
