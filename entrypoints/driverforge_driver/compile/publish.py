"""From the .ko files in a work folder to a published module set."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from driverforge_core.errors import CommandFailed
from driverforge_core.image import ANSWERS_NAME, MODULE_SET_NAME, MODULES_ROOT, ImageFacts, ModuleSet
from driverforge_core.kernel import KernelRelease
from driverforge_core.modinfo import read_modinfo
from driverforge_core.names import NVIDIA_MODULES
from driverforge_driver.compile.conftest import CATEGORIES
from driverforge_host.ports import Files, Host


def sets_folder(output: str, kernel: KernelRelease) -> str:
    """The folder of a kernel release's module sets below `output`."""
    return f"{output.rstrip('/')}{MODULES_ROOT}/{kernel}"


def stage_modules(
    host: Host,
    work: str,
    stage: str,
    *,
    image: ImageFacts,
    module_type: str,
    kernel: KernelRelease,
    compiler: str,
    network: str,
    signature_digests: tuple[str, ...] = (),
) -> ModuleSet:
    """Strip each module of `work` into the folder `stage`, check it, and describe the set there.

    The answers that the modules were compiled by go beside them.

    Raises CommandFailed where a module that the sources have was not made, or is not for `kernel`.
    """
    host.files.make_dirs(stage)
    digests = {}
    for name in (module.replace("_", "-") for module in NVIDIA_MODULES):
        if not host.files.is_dir(f"{work}/{name}"):
            continue
        built, target = f"{work}/{name}.ko", f"{stage}/{name}.ko"
        if not host.files.exists(built):
            raise CommandFailed(
                f"make succeeded, but did not build {name}.ko", details=[f"looked for {built}"]
            )
        host.commands.run(["strip", "--strip-debug", "-o", target, built])
        contents = host.files.read_bytes(target)
        check_vermagic(name, contents, kernel)
        digests[f"{name}.ko"] = f"sha256:{hashlib.sha256(contents).hexdigest()}"
    if not digests:
        raise CommandFailed("the sources hold none of NVIDIA's modules", details=[f"looked in {work}"])
    modules = ModuleSet(
        driver=image.driver,
        module_type=module_type,
        kernel=kernel,
        arch=image.arch,
        compiler=compiler,
        modules=digests,
        signer="",
        signature_digests=signature_digests,
        network=network,
    )
    _write_answers(host.files, work, stage)
    host.files.write_atomic(f"{stage}/{MODULE_SET_NAME}", modules.to_json().encode())
    return modules


def check_vermagic(name: str, contents: bytes, kernel: KernelRelease) -> None:
    """Raises CommandFailed where the first word of a module's vermagic is another release than `kernel`."""
    vermagic = " ".join(read_modinfo(contents).get("vermagic", ()))
    if vermagic.partition(" ")[0] != str(kernel):
        raise CommandFailed(
            f"{name}.ko was built for another kernel than {kernel}",
            details=[f"vermagic: {vermagic or 'none'}"],
            resolution=f"give the header packages of {kernel} and no others",
        )


def publish(
    host: Host, staged: Sequence[tuple[str, str]], *, output: str, kernel: KernelRelease, epoch: int | None
) -> Mapping[str, str]:
    """Move staged sets, given as (module type, folder), to their places. Returns {module type: place}.

    All are copied to the file system of the output before the first one appears there under its name.
    """
    base = sets_folder(output, kernel)
    host.files.make_dirs(base)
    places = {kind: f"{base}/{kind}" for kind, _ in staged}
    try:
        for kind, stage in staged:
            host.files.remove_tree(f"{base}/.{kind}.new")
            host.commands.run(["cp", "--recursive", stage, f"{base}/.{kind}.new"])
    except BaseException:
        for kind, _ in staged:
            host.files.remove_tree(f"{base}/.{kind}.new")
        raise
    for kind, place in places.items():
        host.files.remove_tree(place)
        host.commands.run(["mv", "--no-target-directory", f"{base}/.{kind}.new", place])
    if epoch is not None:
        _set_times(host, output, base, epoch)
    return places


def _set_times(host: Host, output: str, base: str, epoch: int) -> None:
    """Give the files below `base`, and the folders above it, one time: layers come out the same."""
    host.commands.run(["find", base, "-exec", "touch", "--no-dereference", f"--date=@{epoch}", "{}", "+"])
    above = base.removeprefix(output.rstrip("/")).strip("/").split("/")[:-1]
    parents = [f"{output.rstrip('/')}/{'/'.join(above[:depth])}" for depth in range(len(above), 0, -1)]
    host.commands.run(["touch", f"--date=@{epoch}", *parents])


def _write_answers(files: Files, work: str, stage: str) -> None:
    """Put the answers of conftest.sh in `work`, whoever asked, into the folder `stage`; no file without any.

    They lie as a text beside the modules that were made of them. diff(1) shows what changed between two
    kernels, or two compilers: there is a line for each macro, by its name, and the release is in none.
    """
    lines = set()
    for name in ("headers", *CATEGORIES):
        path = f"{work}/conftest/{name}.h"
        if files.exists(path):
            lines |= {
                line
                for line in files.read_text(path).splitlines()
                if line.startswith(("#define ", "#undef "))
            }
    if lines:
        text = "".join(f"{line}\n" for line in sorted(lines, key=_macro))
        files.write_atomic(f"{stage}/{ANSWERS_NAME}", text.encode())


def _macro(line: str) -> tuple[str, str]:
    return line.split()[1], line
