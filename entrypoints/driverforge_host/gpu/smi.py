"""nvidia-smi of a driver on the node: where it is, and the GPUs that it names."""

from __future__ import annotations

from driverforge_host.ports import Files, Host

SMI_FOLDERS = ("usr/bin", "usr/sbin", "bin", "sbin", "usr/lib/wsl/lib", "opt/bin")
SMI_TIMEOUT = 120.0  # seconds: the first call wakes every GPU of the node


def nvidia_smi_of(files: Files, root: str) -> str:
    """nvidia-smi below a root, as the root calls it; '' where it has none."""
    inside = files.under(root)
    paths = (f"/{folder}/nvidia-smi" for folder in SMI_FOLDERS)
    return next((path for path in paths if inside.exists(path)), "")


def host_driver(host: Host) -> str:
    """The GPUs that the nvidia-smi of the node's own driver names; '' where the node brought none that works.

    A driver's container may leave files on the node: only one that runs counts.
    """
    root = host.node.root
    smi = nvidia_smi_of(host.files, root)
    if not smi:
        return ""
    argv = [smi] if root == "/" else ["chroot", root, smi]
    result = host.commands.run([*argv, "-L"], check=False, timeout=SMI_TIMEOUT)
    return named_gpus(result.stdout) if result.ok else ""


def named_gpus(text: str) -> str:
    """Of `nvidia-smi -L`, which prints a line a GPU, and lines that are indented for its MIG devices."""
    return "; ".join(line.strip() for line in text.splitlines() if line.startswith("GPU "))
