"""A kernel's headers: fetched, unpacked under the work folder, and probed before a compiler runs."""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_core import log
from driverforge_core.cms import DIGESTS
from driverforge_core.errors import InputError, Unsupported
from driverforge_core.headerprobe import ProbeRule
from driverforge_core.image import ImageFacts
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsRelease
from driverforge_driver.family.lookup import family_of
from driverforge_driver.family.protocol import Compiler, Family, HeaderTree, config_value
from driverforge_driver.packages import PackageAccess, PackageFile, PackageRequest
from driverforge_driver.state import variables
from driverforge_host import catalogue
from driverforge_host.ports import Files, Host

# A real-time kernel has one of them; the second one until 5.3
REALTIME = ("CONFIG_PREEMPT_RT", "CONFIG_PREEMPT_RT_FULL")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelHeaders:
    """A kernel's build files, and the compiler that they ask for."""

    tree: HeaderTree
    compiler: Compiler
    packages: tuple[PackageFile, ...]

    @property
    def version(self) -> str:
        """Names and versions of all header packages.

        Modules of two builds with the same ones are interchangeable.
        """
        return " ".join(sorted(f"{package.name}={package.version}" for package in self.packages))


def unpack_headers(
    host: Host, release: OsRelease, kernel: KernelRelease, *, given: str, folder: str
) -> KernelHeaders:
    """Fetch the header packages of `kernel` and unpack them below `folder`.

    With `given`, they are taken from that folder.

    Raises Unsupported (the mirror has none), Unavailable (no mirror answers), InputError (`given` holds no
    packages).
    """
    rules = family_of(release)
    manager = rules.package_manager()
    access = PackageAccess(
        commands=host.commands,
        files=host.files,
        environ=host.environ,
        # an update of the trust store costs what a whole compilation from the cache may cost
        ca_bundle="" if given else site_ca_bundle(host, rules),
    )
    if given:
        paths = tuple(
            f"{given}/{name}" for name in host.files.list_dir(given) if name.endswith(manager.suffix())
        )
        if not paths:
            raise InputError(
                f"no {manager.suffix()} files in {given}",
                resolution="give --headers the folder that holds the header packages",
            )
    else:
        into = f"{folder}/packages"
        host.files.make_dirs(into)
        log.info("fetching header packages", kernel=kernel)
        request = PackageRequest(
            names=rules.header_packages(kernel),
            dependencies=rules.header_dependencies(),
            attempts=rules.repositories(release, kernel, host.environ),
        )
        paths = manager.download(access, request, into)
    root = f"{folder}/headers"
    host.files.make_dirs(root)
    packages = tuple(manager.extract(access, path, root) for path in paths)
    tree = rules.header_tree(kernel, host.files, root)
    return KernelHeaders(tree=tree, compiler=rules.compiler(host.files, tree), packages=packages)


def site_ca_bundle(host: Host, rules: Family) -> str:
    """The PEM file that the package manager has to trust; '' for its own default.

    Where the site put certificates of its own, they are added to the image's store first. Else it is
    SSL_CERT_FILE, which apt and dnf do not read themselves.
    """
    store = rules.trust_store()
    given = host.environ.get("SSL_CERT_FILE", "")
    if not host.files.list_dir(store.anchors):
        return given
    if host.commands.find(store.update[0]) is None:
        log.warning(
            "certificates of the site are not used: the program that adds them is missing",
            folder=store.anchors,
            program=store.update[0],
        )
        return given
    host.commands.run(store.update)
    return store.bundle


def check_header_probes(
    files: Files,
    tree: HeaderTree,
    image: ImageFacts,
    module_types: tuple[str, ...],
    kernel: KernelRelease,
    *,
    realtime: bool,
) -> None:
    """Raises Unsupported where this driver does not compile for `kernel`, with the header's line.

    It takes milliseconds. The compiler would find the same after minutes. With `realtime`, a real-time kernel
    is none of the reasons.
    """
    _check_realtime(files.read_text(f"{tree.output}/.config"), kernel, wanted=realtime)
    for rule in catalogue.PROBES:
        header = f"{tree.source}/{rule.probe.header}"
        if not _concerned(rule, image, module_types, kernel) or not files.exists(header):
            continue
        evidence = rule.probe.breaks(files.read_text(header))
        if evidence is not None:
            raise Unsupported(
                f"driver {image.driver} does not compile for kernel {kernel}: {rule.reason}",
                details=[evidence],
                resolution="use a newer driver branch, or boot an older kernel of this series",
            )


def _concerned(
    rule: ProbeRule, image: ImageFacts, module_types: tuple[str, ...], kernel: KernelRelease
) -> bool:
    """Whether a rule is about an image's own source, of one of the module types."""
    unpatched = [
        kind for kind in module_types if not rule.patched(image.driver, image.source_versions.get(kind, ""))
    ]
    return rule.concerns(image.driver, unpatched, kernel)


def _check_realtime(config: str, kernel: KernelRelease, *, wanted: bool) -> None:
    """What conftest.sh checks as preempt_rt_sanity_check, with the same way round it."""
    found = next((option for option in REALTIME if config_value(config, option) == "y"), None)
    if found is None:
        return
    if not wanted:
        raise Unsupported(
            f"kernel {kernel} is a real-time kernel (PREEMPT_RT), which NVIDIA's modules refuse",
            details=[f"{found}=y in the headers of {kernel}"],
            resolution=(
                "boot the same kernel in its normal flavour; or, without NVIDIA's support, set "
                f"{variables.IGNORE_REALTIME}=1"
            ),
        )
    log.warning("NVIDIA does not support real-time kernels", kernel=kernel, compiled_for=found)


def signature_digests(config: str) -> tuple[str, ...]:
    """Digest algorithms that a kernel has for module signatures, its own choice first; by its .config.

    What is a module itself does not count: it may be needed to load that very module.
    """
    own = config_value(config, "CONFIG_MODULE_SIG_HASH")
    # sha384 is a part of the kernel's sha512
    options = {"sha256": "SHA256", "sha384": "SHA512", "sha512": "SHA512"}
    built_in = [name for name in DIGESTS if config_value(config, f"CONFIG_CRYPTO_{options[name]}") == "y"]
    return tuple(name for name in dict.fromkeys([own, *built_in]) if own and name in DIGESTS)
