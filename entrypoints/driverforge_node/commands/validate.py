"""driverctl validate: `nvidia-validator` of NVIDIA's operator image, one part of the node a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driverforge_node.validate.validator_settings import VARIABLES

if TYPE_CHECKING:
    import argparse

    from driverforge_node.ports import Host


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
    from functools import cache

    from driverforge_core.validations import Component
    from driverforge_node.app.status_exporter import export
    from driverforge_node.app.validation import validate
    from driverforge_node.host import api_server
    from driverforge_node.host.cuda_driver import DriverApi
    from driverforge_node.host.metrics_server import HttpMetrics
    from driverforge_node.validate.context import Context
    from driverforge_node.validate.validator_settings import parse

    settings = parse(host.environ, {v.name: getattr(args, v.name) for v in VARIABLES})
    context = Context(
        host=host,
        settings=settings,
        cluster=cache(lambda: api_server.ApiServer(api_server.find(host.environ, settings.kubeconfig))),
        cuda=DriverApi,
    )
    if settings.component is Component.METRICS:
        export(context, HttpMetrics())
    else:
        validate(context)
    return 0
