"""driverctl validate: `nvidia-validator` of NVIDIA's operator image, one part of the node a run."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from driverforge_core.validations import Component
from driverforge_kube.address import find
from driverforge_kube.apiserver import KubernetesClient
from driverforge_toolkit.adapters.cuda_driver import DriverApi
from driverforge_toolkit.adapters.metrics_server import HttpMetrics
from driverforge_toolkit.app.validation import export, validate
from driverforge_toolkit.validate.context import Context
from driverforge_toolkit.validate.validator_settings import VARIABLES, parse

if TYPE_CHECKING:
    import argparse

    from driverforge_host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for variable in VARIABLES:
        default = f"; default: {variable.default}" if variable.default else ""
        help_ = f"{variable.meaning} [${variable.name}]{default}"
        if variable.kind == "bool":
            # upstream's switches may stand without a value
            parser.add_argument(
                variable.flag, dest=variable.name, metavar="BOOL", nargs="?", const="true", help=help_
            )
        else:
            parser.add_argument(variable.flag, dest=variable.name, metavar=variable.kind.upper(), help=help_)


def run(args: argparse.Namespace, host: Host) -> int:
    settings = parse(host.environ, {v.name: getattr(args, v.name) for v in VARIABLES})
    context = Context(
        host=host,
        settings=settings,
        cluster=cache(lambda: KubernetesClient(find(host.environ, settings.kubeconfig))),
        cuda=DriverApi,
    )
    if settings.component is Component.METRICS:
        export(context, HttpMetrics())
    else:
        validate(context)
    return 0
