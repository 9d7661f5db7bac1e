"""Rows of matrix.yaml against facts that were read in the distributions' and NVIDIA's own sources."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pytest

from driverforge_build.matrix import KernelSeries, OsRow, Repository, flavour_of, load_matrix
from driverforge_build.matrix.expand import driver_archs
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.globs import expand_braces, glob_set
from driverforge_core.arch import to_machine
from driverforge_core.kernel import KernelRelease
from support.facts import CLAIMS, facts, keys, releases
from support.nonsense import spoilt, values
from support.samples.synthetic import release_of

MATRIX = load_matrix()

# Rocky's and Oracle's kernels have the releases of Red Hat's; the facts name examples for these
EXAMPLES = {"rocky8": "rhel8", "rocky9": "rhel9", "rocky10": "rhel10"}

# kernels that facts speak of alone
SEEN = {
    "ubuntu22.04": [KernelRelease.parse("6.8.0-1015-aws")],
    "ubuntu24.04": [KernelRelease.parse("6.17.0-1018-azure")],
}
# names of a row for kernels that no fact reaches: those of backports
UNREACHED = {("debian12", ("kernels", 1, "compilers", 0))}

ANSWERED = {
    # claim of a fact: why the row differs
    "no binutils": "the stage that links modules has the tool chain, and gcc depends on binutils",
    "no ca-certificates": "the archives are http, and apt checks the signature of their index",
}

LATER = {
    # a repository that the facts' lists have not: who names it
    "rhel-10-for-{machine}-extensions-rpms": "radii: rhsm.go, nvidia.go; ypk: issue 59",
}

ELSEWHERE = {
    # facts that are no row's: what has them, or why nothing does
    "checksum_source": "the lock's",
    "published_sha256": "the lock's",
    "package_epoch": "the lock's",
    "firmware_files": "dockerfiles/scripts/place-firmware",
    "build_refuses": "exclusion no-realtime, the node's check of a kernel's configuration, and its variable",
    "dkms_packages": "docs/matrix.md: the runfile in their place",
    "driver_branches_in_archive": "docs/matrix.md: 26.04",
    "python_in_image": "rows name the package that brings the interpreter",
    "release_example": "the examples that rows are compared on",
    "headers_dependencies": "discovery follows the packages' own",
    "same_version_group": "discovery follows the packages' own",
    "repository_packages": "discovery reads what a repository holds",
    "entitlement_files": "discovery",
    "kernel_tree": "the node's family",
    "compiler_word": "the headers say it",
    "compiler_version": "the headers say it",
    "empty_packages": "tests/unit/test_matrix_corrections.py",
    "precompiled_tree": "dockerfiles/scripts/place-modules looks for the files",
    "precompiled_archs": "the archive says for which kernels there are modules",
    "default_kernel": "rows have both kernels",
}


OWN_MODULES = {
    # where the facts have the modules that a distribution signs
    "zypper": {"flavour": "default"},  # in SUSE's own repository, of its default kernel
    "dnf": {"repository": "nvidia"},  # the name; the repository is Red Hat's (LATER)
}


class Subject:
    """A row as one architecture sees it, compared claim by claim."""

    def __init__(self, row: OsRow, arch: Arch) -> None:
        self.asked: set[str] = set()
        self.whole, self.row, self.arch = row, row.on(arch), arch
        self.names = {
            "machine": to_machine(arch),
            "sbsa": "sbsa" if arch == "arm64" else "x86_64",
        }

    def contradictions(self) -> Iterator[str]:
        row = self.row
        yield from self._base()
        yield from self._words("package_manager", [row.package_manager])
        yield from self._words("python_package", [row.python.package])
        yield from self._words("python_version", [row.python.version])
        yield from self._words("keyring", [row.keyring])
        yield from self._words(
            "bootstrap_packages", (row.python.package, *row.tools.runtime), only=("must_include",)
        )
        # the name of NVIDIA's is our own
        later = {name.format_map(self.names) for name in LATER}
        own = [one.id for one in row.repositories if not (one.vendors or one.id in later)]
        yield from self._words("repository_id", own)
        for whole, repository in zip(self.whole.repositories, row.repositories, strict=True):
            yield from self._repository(whole.id, repository)
        globs = [glob for series in row.kernels for glob in expand_braces(series.releases)]
        yield from self._words("kernel_series", sorted({".".join(glob.split(".")[:2]) for glob in globs}))
        for series in row.kernels:
            yield from self._flavours(series)
            for example in (*releases(EXAMPLES.get(row.id, row.id)), *self._seen(series)):
                yield from self._kernel(series, example)
        yield from self._drivers()

    def _seen(self, series: KernelSeries) -> Iterator[Mapping[str, Any]]:
        """Kernels that the facts have no example of."""
        if self.arch in series.flavours:
            for release in (release_of(series, self.arch), *SEEN.get(self.row.id, ())):
                yield {"release": str(release), "flavour": flavour_of(release), "arch": [self.arch]}

    def _base(self) -> Iterator[str]:
        """The image by a tag that a source names, by the beginning of one, or by its other name."""
        if wrong := [*self._words("base_image", [self.row.base])]:
            aliases = [fact for fact in facts(self.row.id) if fact.key == "base_image_alias"]
            if not any(self.row.base in fact.wanted for fact in aliases):
                yield from wrong

    def _repository(self, name: str, repository: Repository) -> Iterator[str]:
        """Its parts, address, trust and price; `name` may hold {machine}, as the facts' names do."""
        if _is_nvidias(repository):
            folders = [url.rstrip("/").rsplit("/", 2)[1] for url in repository.urls]
            yield from self._words("nvidia_repository", folders)
            yield from self._words("keyring_sha256", [repository.key_sha256], repository="nvidia")
            return
        yield from self._words("repository_components", repository.components)
        addresses = (*repository.urls, *filter(None, [repository.older]))
        told = addresses or (repository.mirrorlist or repository.archive,)
        yield from self._words("repository_url", [*filter(None, told)], repository=name)
        yield from self._words("repository_signature", [repository.signed], repository=name)
        yield from self._words("keyring", [self.row.keyring], repository=name)
        entitled = "required" if repository.entitled else "none"
        yield from self._words("entitlement", [entitled], repository=name)

    def _flavours(self, series: KernelSeries) -> Iterator[str]:
        for flavour in series.flavours.get(self.arch, ()):
            yield from self._words("kernel_flavours", [flavour])

    def _kernel(self, series: KernelSeries, example: Mapping[str, str]) -> Iterator[str]:
        release, flavour = example["release"], example["flavour"]
        if (
            self.arch not in example["arch"]
            or flavour not in series.flavours.get(self.arch, ())
            or not glob_set((series.releases,))(release)
        ):
            return
        case = {"kernel": release, "flavour": flavour}
        names = {"release": release, "plain": release.partition("+")[0], "abi": example.get("abi", "")}
        packages = (*series.image_packages(release)[:1], *series.module_packages(release))
        yield from self._words("module_packages", packages, names, **case)
        tools = (*self.row.tools.jit, *self.row.tools.runtime, *series.compilers)
        headers = series.header_packages(release)
        # the kernel's own; others come beside it
        yield from self._words("headers_packages", headers[:1], names, only=("one_of",), **case)
        rest = [claim for claim in CLAIMS if claim != "one_of"]
        yield from self._words("headers_packages", headers, names, only=rest, **case)
        yield from self._words("image_packages", series.image_packages(release)[:1], names, **case)
        yield from self._words("headers_repository", series.repositories, names, **case)
        yield from self._words("jit_tools", tools, names, **case)
        compilers = [[*self._words("compiler_package", [name], names, **case)] for name in series.compilers]
        if all(compilers):
            yield from compilers[0]

    def _drivers(self) -> Iterator[str]:
        for driver in self.row.drivers:
            if self.arch not in driver_archs(MATRIX, self.row, driver):
                continue
            names = {"branch": driver.branch, "version": driver.version}
            case = dict(names)
            yield from self._words("module_types_from_branch", driver.module_types, names, **case)
            if fabric := self.row.fabric_of(driver):
                packages = (*fabric.packages, *fabric.companions)
                yield from self._words("fabric_packages", packages, names, repository="nvidia", **case)
            if driver.url:
                yield from self._words("driver_url", [driver.url], **case)
            if not driver.vendor_modules:
                continue
            if self.row.package_manager == "zypper":  # NVIDIA's own repository, which the row names last
                case["repository"] = "nvidia"
            for source in driver.modules:
                key = f"precompiled_{source.id}_packages"
                own = OWN_MODULES.get(self.row.package_manager, {})
                kernels = {**names, "variant-": ""}
                yield from self._words(key, source.packages, kernels, **own, **_without(case, "repository"))
                signatures = [name for name in source.packages if "signatures" in name]
                yield from self._words("signature_packages", signatures, names, **case)
            yield from self._words(
                "userspace_packages", (*driver.userspace, *driver.companions), names, **case
            )
            firmware = [driver.firmware.package] if driver.firmware else []
            yield from self._words(
                "firmware_package", firmware, names, **_without(case, "repository"), flavour="default"
            )
            tree = [f"/{driver.firmware.tree}"] if driver.firmware else []
            yield from self._words("firmware_path", tree, names, **case)

    def _words(
        self,
        key: str,
        words: Sequence[str],
        names: Mapping[str, str] | None = None,
        *,
        only: Collection[str] = CLAIMS,
        **case: str,
    ) -> Iterator[str]:
        """What of the words contradicts the facts of a key, of those with some claims `only`."""
        self.asked.add(key)
        for fact in facts(self.row.id):
            if fact.key == key and fact.claim in only and fact.holds(arch=self.arch, **case):
                for wrong in fact.contradictions(words, {**self.names, **(names or {})}):
                    if wrong not in ANSWERED:
                        yield f"{wrong}: {' '.join([self.arch, *case.values()])}: {fact}"


def _is_nvidias(repository: Repository) -> bool:
    return any(url.startswith("https://developer.download.nvidia.com/") for url in repository.urls)


def _without(case: Mapping[str, str], key: str) -> dict[str, str]:
    return {name: value for name, value in case.items() if name != key}


@pytest.mark.parametrize("key", sorted(row.id for row in MATRIX.rows))
def test_a_row_says_what_the_sources_say(key: str) -> None:
    row = MATRIX.row(key)
    assert row is not None
    assert [wrong for arch in row.archs for wrong in Subject(row, arch).contradictions()] == []


@pytest.mark.parametrize("key", sorted(row.id for row in MATRIX.rows))
def test_nonsense_in_a_name_that_the_facts_speak_of_contradicts_them(key: str) -> None:
    row = MATRIX.row(key)
    assert row is not None
    whole, blind = row.model_dump(), []
    for path, text in values(whole):
        kind = " ".join([name for name in path if isinstance(name, str)][-2:])
        if isinstance(text, str) and any(fact.speaks_of(kind, text) for fact in facts(key)):
            changed = OsRow.model_validate(spoilt(whole, path))
            if not any(wrong for arch in row.archs for wrong in Subject(changed, arch).contradictions()):
                blind.append((key, path))
    assert {*blind} == {(system, path) for system, path in UNREACHED if system == key}


def test_each_fact_is_compared_with_rows_or_kept_by_something_else() -> None:
    subjects = [Subject(row, arch) for row in MATRIX.rows for arch in row.archs]
    for subject in subjects:
        assert not [*subject.contradictions()]
    compared = {key for subject in subjects for key in subject.asked} | {"base_image_alias"}
    assert not compared & set(ELSEWHERE)
    assert keys() == compared | set(ELSEWHERE)
