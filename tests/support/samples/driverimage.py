"""A stand-in of NVIDIA's driver images, laid out as theirs.

As the Dockerfiles of ubuntu24.04, rhel9 and debian13 in NVIDIA/gpu-driver-container have it: the archive in
/drivers, a script `nvidia-driver`, the variables. The archive is a miniature.
"""

from __future__ import annotations

from pathlib import Path

from support.machines.engine import Engine
from support.samples.runfile import write_runfile

_DOCKERFILE = """\
ARG BASE
FROM ${BASE}
SHELL ["/bin/bash", "-c"]
ENV TARGETARCH=amd64
ENV DRIVER_VERSION=@
ENV DRIVER_TYPE=passthrough
ENV DRIVER_BRANCH=580
ENV NVIDIA_VISIBLE_DEVICES=void
RUN ln -s /sbin/ldconfig /sbin/ldconfig.real
COPY nvidia-driver ocp_dtk_entrypoint /usr/local/bin/
ADD drivers drivers/
WORKDIR /drivers
ENTRYPOINT ["nvidia-driver", "init"]
"""


def push_stand_in(engine: Engine, base: str, folder: Path, image: str, *, holds: str, says: str) -> str:
    """Push a stand-in with the archive of one version, which says that it has another; returns its digest."""
    write_runfile(folder / f"drivers/NVIDIA-Linux-x86_64-{holds}.run", holds)
    for name in ("nvidia-driver", "ocp_dtk_entrypoint"):
        (folder / name).write_text("#!/bin/bash\necho NVIDIA, in a stand-in\n")
        (folder / name).chmod(0o755)
    (folder / "Dockerfile").write_text(_DOCKERFILE.replace("@", says))
    words = ("buildx", "build", "--quiet", "--load", "--provenance=false", "--network", engine.network)
    engine.docker(*words, "--build-arg", f"BASE={base}", "--tag", image, folder)
    engine.docker("push", "--quiet", image)
    digest = engine.docker("image", "inspect", "--format", "{{index .RepoDigests 0}}", image).stdout
    engine.docker("image", "rm", "--force", image, check=False)
    return digest.strip().partition("@")[2]
