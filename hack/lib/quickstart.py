"""The quickstart: the main job end to end on real parts, with a table at the end. `hack/quickstart` starts it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests"))  # the test bench is a part of the quickstart: engine, registry, guests

import images  # noqa: E402
import machine  # noqa: E402
import node  # noqa: E402
from report import Report  # noqa: E402

from driverforge_core.cell import CellId  # noqa: E402
from driverforge_core.errors import DriverforgeError, Unavailable  # noqa: E402
from support import cache, engine, registry  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="hack/quickstart", description="Build two driver images and run them on a node, for real, without a GPU."
    )
    parser.add_argument("--work", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--clean", action="store_true", help="remove everything that a run made")
    parser.add_argument("--images-only", action="store_true", help="stop after the images are pushed: no kernel is booted")
    return parser.parse_args()


def main() -> int:
    args = arguments()
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
    missing = machine.shortcomings()
    for text in missing:
        report.missing("this machine", text)
    with report.phase("packages of this machine"):
        machine.install(report, os.environ.get("DRIVERFORGE_PACKAGES", "").split())
    report.places |= {"work": str(args.work), "cache": str(cache.root())}
    with ExitStack() as stack:
        site = prepare(args.work, report, stack)
        with report.phase("lock: find kernels and packages, pin them"):
            images.lock(site, report)
        with report.phase("plan: a verdict for each cell") as result:
            jit, precompiled = images.choose(site, report)
            result(f"chosen: {precompiled}")
        with report.phase("build: the JIT image, and one for that kernel"):
            images.build(site, report, jit, precompiled)
        with report.phase("push to the local registry"):
            pushed = images.push(site, report, jit, precompiled)
        report.places["images"] = ", ".join(pushed.values())
        if args.images_only:
            return 0
        if lack := machine.guest_shortcomings():
            report.missing("boot a node", lack)
            return 0
        kernel = CellId.parse(precompiled).kernel
        if kernel is None:
            raise Unavailable(f"{precompiled} is for no kernel")
        return node.run(report, work=args.work, release=str(kernel), image=pushed[precompiled])


def prepare(work: Path, report: Report, stack: ExitStack) -> images.Site:
    """An engine with BuildKit, a base image, a registry."""
    with report.phase("container engine with BuildKit") as result:
        docker = engine.find_or_start()
        if docker.owned:
            stack.callback(docker.stop)
        result(f"{'our own' if docker.owned else 'yours'}: {docker.host}")
    with report.phase("base image of Debian 12"):
        base = engine.debian_base(docker)
    with report.phase("local registry") as result:
        server = stack.enter_context(registry.serve(work / "registry"))
        result(server.address)
    program = Path(sys.executable).with_name("driverforge")
    environ = {**os.environ, **docker.environment()}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    return images.Site(work=work, driverforge=program, base=base, registry=f"{server.address}/nvidia", environ=environ)


if __name__ == "__main__":
    if shutil.which("sh") is None:
        sys.exit("no POSIX shell")
    sys.exit(main())
