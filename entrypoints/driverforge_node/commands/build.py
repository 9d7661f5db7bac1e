"""driverctl build: compile the kernel modules of this image's driver for a kernel release."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from driverforge_core.image import ImageFacts
    from driverforge_node.driver.build import BuildRequest
    from driverforge_node.driver.facts import BuildFiles
    from driverforge_node.host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kernel",
        metavar="RELEASE",
        help="kernel release, as uname -r prints it; the running kernel by default",
    )
    parser.add_argument("--module-type", metavar="TYPE", action="append", choices=("open", "proprietary"),
        help="'open' or 'proprietary', may be given twice; every type that the image has sources of by default")  # fmt: skip
    parser.add_argument(
        "--headers",
        metavar="DIR",
        default="",
        help="folder with the kernel's header packages; fetched from the mirror by default",
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
        help="compilers to run at once; as many as there are processors by default",
    )
    parser.add_argument(
        "--work-dir",
        metavar="DIR",
        help="where to unpack and compile, about 1.5 GiB; default: /var/tmp/driverforge",
    )
    parser.add_argument(
        "--image", metavar="FILE", help="description of the image; default: /opt/driverforge/image.json"
    )
    parser.add_argument("--plan", action="store_true", help="print what would be done, and do nothing")


def run(args: argparse.Namespace, host: Host) -> int:
    from driverforge_node.driver import build

    request = make_request(args, host)
    if args.plan:
        build.check_sources(request.image, request.module_types)
        print("\n".join(build.steps(request)))
        return 0
    host.clock.wait(0)  # from here on a stop signal ends the compilers, and the work folder goes
    for result in build.build(host, request):
        print(f"{result.module_type}: {result.path} ({result.origin})")
    return 0


def make_request(args: argparse.Namespace, host: Host) -> BuildRequest:
    """The command line and the image's own description as one value. Raises UsageError, InputError."""
    from driverforge_core.errors import InputError, UsageError
    from driverforge_core.kernel import KernelRelease
    from driverforge_core.osid import parse_os_release
    from driverforge_node.commands.start import absolute
    from driverforge_node.driver.build import LOGS, WORK, BuildRequest, processors

    if args.jobs < 0:
        raise UsageError(f"-j {args.jobs}: give the number of compilers to run at once")
    image = read_image(host, args.image)
    epoch = host.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch and not epoch.isdigit():
        raise InputError(
            f"environment: SOURCE_DATE_EPOCH={epoch!r}: write seconds since 1970",
            resolution="see docs/environment.md",
        )
    kernel = KernelRelease.parse(args.kernel or host.modules.release())
    return BuildRequest(
        image=image,
        release=parse_os_release(host.files.read_text("/etc/os-release")),
        kernel=kernel,
        module_types=tuple(dict.fromkeys(args.module_type or image.sources)),
        jobs=args.jobs or processors(host),
        network=network_files(host, str(kernel)),
        headers=absolute(args.headers),
        output=absolute(args.output),
        work=absolute(args.work_dir) if args.work_dir else WORK,
        logs=absolute(f"{args.work_dir}/logs") if args.work_dir else LOGS,
        epoch=int(epoch) if epoch else None,
    )


def network_files(host: Host, release: str) -> BuildFiles | None:
    """What nvidia-peermem is compiled against where the environment asks for it. Raises InputError for a variable's bad value."""
    from driverforge_node import settings as settings_
    from driverforge_node.driver import network
    from driverforge_node.driver.observe import pci_devices

    settings = settings_.parse(host.environ)
    if not settings.gpu_direct_rdma:
        return None
    return network.look(host, release, pci_devices(host.files), on_host=settings.host_mofed).build_files


def read_image(host: Host, path: str | None) -> ImageFacts:
    """The image's description. Raises Unsupported outside an image of ours."""
    from driverforge_core.errors import Unsupported
    from driverforge_core.image import FACTS_PATH, ImageFacts

    try:
        return ImageFacts.from_json(host.files.read_text(path or FACTS_PATH))
    except FileNotFoundError:
        raise Unsupported(
            f"not in a driver image: there is no {path or FACTS_PATH}",
            resolution="run this in an image that driverforge built, or give --image FILE",
        ) from None
