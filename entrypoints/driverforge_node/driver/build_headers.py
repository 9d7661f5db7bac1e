"""Header packages of a kernel, unpacked under the work folder."""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsRelease
from driverforge_node import family, log
from driverforge_node.host.ports import Host
from driverforge_node.packages import Access, Package


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """A kernel's build files and what they ask for."""

    tree: family.HeaderTree
    compiler: family.Compiler
    packages: tuple[Package, ...]

    @property
    def version(self) -> str:
        """Names and versions of all header packages: modules of two builds with the same are interchangeable."""
        return " ".join(sorted(f"{package.name}={package.version}" for package in self.packages))


def prepare(host: Host, release: OsRelease, kernel: KernelRelease, *, given: str, folder: str) -> Headers:
    """Fetch (or take from the folder `given`) the header packages of `kernel` and unpack them below `folder`.

    Raises Unsupported (the mirror has none), Unavailable (mirror), InputError (`given` holds no packages).
    """
    rules = family.of(release)
    manager = rules.package_manager()
    access = Access(
        commands=host.commands, files=host.files, environ=host.environ, ca_bundle=trust(host, rules)
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
        paths = manager.download(
            access, rules.header_packages(kernel), into, rules.repositories(release, kernel, host.environ)
        )
    root = f"{folder}/headers"
    host.files.make_dirs(root)
    packages = tuple(manager.extract(access, path, root) for path in paths)
    tree = rules.header_tree(kernel, host.files, root)
    return Headers(tree=tree, compiler=rules.compiler(host.files, tree), packages=packages)


def trust(host: Host, rules: family.Family) -> str:
    """The PEM file that package managers shall trust, '' for their own default.

    The site's own CA certificates are made known first, where it put some; else SSL_CERT_FILE is handed on (apt and dnf do not read it).
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
