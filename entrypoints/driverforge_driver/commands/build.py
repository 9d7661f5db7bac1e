"""`driverctl build`: compile the kernel modules of this image's driver for a kernel release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driverforge_driver.app.module_build import make_request
from driverforge_driver.commands.driver_options import absolute
from driverforge_driver.compile import job

if TYPE_CHECKING:
    import argparse

    from driverforge_host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kernel",
        metavar="RELEASE",
        help="kernel release, as uname -r prints it; default: the running kernel",
    )
    parser.add_argument(
        "--module-type",
        metavar="TYPE",
        action="append",
        choices=("open", "proprietary"),
        help="'open' or 'proprietary', may be given twice; "
        "every type that the image has sources of by default",
    )
    parser.add_argument(
        "--headers",
        metavar="DIR",
        default="",
        help="folder with the kernel's header packages; default: fetch them",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        default="/",
        help="modules appear under DIR/opt/lib/modules/RELEASE/TYPE; default: /",
    )
    parser.add_argument(
        "-j",
        "--jobs",
        metavar="N",
        type=int,
        default=0,
        help="compilers to run at once; default: one per processor that the cgroup's limit pays for",
    )
    parser.add_argument(
        "--work-dir",
        metavar="DIR",
        help="folder to compile in, with 1.5 GiB of space; default: /var/tmp/driverforge",
    )
    parser.add_argument(
        "--image", metavar="FILE", help="description of the image; default: /opt/driverforge/image.json"
    )
    parser.add_argument("--plan", action="store_true", help="print what would be done, and do nothing")


def run(args: argparse.Namespace, host: Host) -> int:
    request = make_request(
        host,
        kernel=args.kernel or "",
        module_types=args.module_type or (),
        jobs=args.jobs,
        headers=absolute(args.headers),
        output=absolute(args.output),
        work=absolute(args.work_dir or ""),
        image_file=args.image or "",
    )
    if args.plan:
        job.check_sources(request.image, request.module_types)
        print("\n".join(job.describe(request)))
        return 0
    host.clock.catch_signals()  # one ends the compilers, and the work folder is removed
    for result in job.build(host, request):
        print(f"{result.module_type}: {result.path} ({result.origin.value})")
    return 0
