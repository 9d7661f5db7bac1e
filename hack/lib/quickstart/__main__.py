"""The quickstart: the main job end to end on real parts, with a table at the end.

`hack/quickstart` starts it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import FrameType

TOP = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TOP / "tests"))  # the test bench is a part of the quickstart: engine, registry, guests

from driverforge_core.cell import CellId  # noqa: E402
from driverforge_core.errors import DriverforgeError, Unavailable  # noqa: E402
from quickstart import cluster, images, machine, node  # noqa: E402
from quickstart.report import Report  # noqa: E402
from support import cache  # noqa: E402
from support.machines import engine, registry  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="hack/quickstart",
        description="Build two driver images and run them on a node, for real, without a GPU.",
    )
    parser.add_argument("--work", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--clean", action="store_true", help="remove everything that a run made")
    parser.add_argument(
        "--images-only", action="store_true", help="stop after the images are pushed: no kernel is booted"
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="the node is one of a Kubernetes cluster, and the operator puts the driver onto it",
    )
    return parser.parse_args()


def end(number: int, _: FrameType | None) -> None:
    """Let all that is open be closed: guest, cluster and registry have folders and processes."""
    signal.signal(number, signal.SIG_IGN)  # one is enough, and what it started shall come to its end
    raise SystemExit(128 + number)


def main() -> int:
    args = arguments()
    signal.signal(signal.SIGTERM, end)
    report = Report()
    if args.clean:
        machine.clean(report)
        return 0
    try:
        return run(args, report)
    except DriverforgeError as error:
        report.say(error.render())
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    finally:
        report.table()


def run(args: argparse.Namespace, report: Report) -> int:
    """All phases in order. What this machine cannot have is named, and the rest is done."""
    report.places |= {"work": str(args.work), "cache": str(cache.root())}
    with ExitStack() as stack:
        site = images.Site(
            work=args.work,
            driverforge=Path(sys.executable).with_name("driverforge"),
            environ=dict(os.environ),
        )
        try:
            with report.phase("packages of this machine"):
                machine.install(report, os.environ.get("DRIVERFORGE_PACKAGES", "").split())
            site = with_engine(site, report, stack)
        except Unavailable as error:
            report.say(error.render())
        with report.phase("lock: find kernels and packages, pin them"):
            images.lock(site, report)
        with report.phase("plan: a verdict for each cell") as result:
            jit, precompiled = images.choose(site, report)
            result(f"chosen: {precompiled}")
        if site.engine is None:
            report.missing(
                "build, push, boot a node", "they need root, apt-get and a container engine, see above"
            )
            return os.EX_UNAVAILABLE
        with report.phase("build: the JIT image, and one for that kernel"):
            images.build(site, report, jit, precompiled)
        with report.phase("push to the local registry"):
            pushed = images.push(site, report, jit, precompiled)
        report.places |= {f"image {cell}": reference for cell, reference in pushed.items()}
        report.places["logs of the build"] = str(site.work / "build")
        if args.images_only:
            return 0
        if lack := machine.guest_shortcomings():
            report.missing("boot a node", lack)
            return os.EX_UNAVAILABLE
        if args.cluster:
            cell = CellId.parse(precompiled)
            cluster.run(
                report,
                site.engine,
                cluster.Site(work=args.work, cell=cell, image=pushed[precompiled], registry=site.registry),
            )
            return 0
        node.run(
            report,
            site.engine,
            work=args.work,
            release=str(CellId.parse(precompiled).kernel),
            image=pushed[precompiled],
        )
    return 0


def with_engine(site: images.Site, report: Report, stack: ExitStack) -> images.Site:
    """An engine with BuildKit, a base image, a registry; all of it stops with `stack`."""
    with report.phase("container engine with BuildKit") as result:
        docker = engine.find_or_start()
        if docker.owned:
            stack.callback(docker.stop)
        result(f"{'our own' if docker.home else 'yours'}: {docker.host}")
    with report.phase("base image of Debian 12"):
        base = engine.debian_base(docker)
    with report.phase("local registry") as result:
        server = stack.enter_context(registry.serve(site.work / "registry"))
        result(server.address)
    return replace(
        site,
        base=base,
        registry=f"{server.address}/nvidia",
        environ={**os.environ, **docker.environment()},
        engine=docker,
    )


if __name__ == "__main__":
    sys.exit(main())
