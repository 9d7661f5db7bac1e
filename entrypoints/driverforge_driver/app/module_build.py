"""What `driverctl build` compiles: its words, the image and the environment as one request."""

from __future__ import annotations

from collections.abc import Sequence

from driverforge_core.errors import InputError, Unsupported, UsageError
from driverforge_core.image import FACTS_PATH, ImageFacts
from driverforge_driver.compile.job import BuildRequest, request_for
from driverforge_driver.state import network, variables
from driverforge_driver.state.network import NetworkBuildFiles
from driverforge_host.gpu.detect import pci_devices
from driverforge_host.ports import Host


def make_request(
    host: Host,
    *,
    kernel: str = "",
    module_types: Sequence[str] = (),
    jobs: int = 0,
    headers: str = "",
    output: str = "/",
    work: str = "",
    image_file: str = "",
) -> BuildRequest:
    """The request of a command line.

    Empty values stand for the running kernel, every module type that the image has sources of, as many
    compilers as we have processors, and the image's own description. Paths are absolute. Raises UsageError,
    InputError, and Unsupported outside an image of ours.
    """
    if jobs < 0:
        raise UsageError(f"-j {jobs}: give the number of compilers to run at once")
    image = read_image(host, image_file)
    epoch = host.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch and not epoch.isdigit():
        raise InputError(
            f"environment: SOURCE_DATE_EPOCH={epoch!r}: write seconds since 1970",
            resolution="see docs/environment.md",
        )
    release = kernel or host.modules.release()
    return request_for(
        host,
        image=image,
        kernel=release,
        module_types=tuple(dict.fromkeys(module_types or image.sources)),
        jobs=jobs,
        network=network_files(host, release),
        headers=headers,
        output=output,
        work=work,
        logs=f"{work}/logs" if work else "",
        epoch=int(epoch) if epoch else None,
    )


def network_files(host: Host, release: str) -> NetworkBuildFiles | None:
    """What nvidia-peermem is compiled against.

    None where the environment does not ask for it, or where the kernel's own symbols count.

    Raises InputError for bad values in the environment.
    """
    settings = variables.parse(host.environ)
    if not settings.gpu_direct_rdma:
        return None
    return network.observe_network(
        host, release, pci_devices(host.files), on_host=settings.mofed_on_host
    ).build_files


def read_image(host: Host, path: str) -> ImageFacts:
    """The image's description. Raises Unsupported outside an image of ours."""
    try:
        return ImageFacts.from_json(host.files.read_text(path or FACTS_PATH))
    except FileNotFoundError:
        raise Unsupported(
            f"not in a driver image: there is no {path or FACTS_PATH}",
            resolution="run this in an image that driverforge built, or give --image FILE",
        ) from None
