"""`driverforge-operator run`."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import uuid

import click

from driverforge_core import log
from driverforge_operator.commands.options import namespace_option


def _address(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    # digits of other scripts are decimal, too
    if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise click.BadParameter(f"{text}: write [ADDRESS]:PORT")
    # an address of IPv6 has brackets here, and none in a socket
    return host.strip("[]"), int(port)


@click.command("run")
@namespace_option
@click.option(
    "--lease",
    "seconds",
    type=click.IntRange(min=3),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="After that long without a word from it, another replica goes on in a leader's place.",
)
@click.option(
    "--listen",
    default=":8080",
    show_default=True,
    metavar="[ADDRESS]:PORT",
    callback=_address,
    help="Where /healthz, /readyz and /metrics are served: all addresses where none is given; port 0 is any "
    "that is free.",
)
@click.option(
    "--log-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    envvar="DRIVERFORGE_LOG_FORMAT",
    help="One event a line, for people or for programs.",
)
def run_command(*, namespace: str, seconds: int, listen: tuple[str, int], log_format: str) -> int:
    """Keep the cluster as its ClusterPolicy and NVIDIADriver resources ask, until SIGTERM.

    Of several replicas one writes: the holder of the Lease `driverforge-operator`, which it gives back when
    it is stopped. While NVIDIA's operator runs in the cluster nothing is written, but a condition that says
    so. Logs go to stderr, one event a line.
    """
    from driverforge_kube.endpoints import serving
    from driverforge_operator.app.control import Controller
    from driverforge_operator.app.lease import Elector, Terms
    from driverforge_operator.app.metrics import Metrics
    from driverforge_operator.cluster.api import connect
    from driverforge_operator.cluster.registries import registries

    log.configure(log_format)
    # a line a request is what the audit log is for
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    metrics = Metrics()
    cluster = connect(namespace, answered=metrics.answered)
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    elector = Elector(cluster, identity, Terms(seconds=seconds))
    controller = Controller(
        cluster,
        namespace,
        registries=registries(cluster, os.environ),
        environment=os.environ,
        leads=elector.leads,
        identity=identity,
        metrics=metrics,
    )
    pages = {
        "/healthz": controller.health,
        "/readyz": controller.ready,
        "/metrics": lambda: (True, metrics.text()),
    }
    taken = "serve on another port: --listen [ADDRESS]:PORT"
    with serving(listen, pages, resolution=taken) as port:
        log.info("serving", port=port)
        election = threading.Thread(target=elector.run, args=(stop,), name="lease", daemon=True)
        election.start()
        controller.run(stop)
        election.join(timeout=5)
        if not election.is_alive():
            elector.release()
    return 0
