"""`driverctl build` from header packages to a published module set.

apt, dpkg and files are real; make, strip and the compiler are mock commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import (
    CommandFailed,
    DriverforgeError,
    InputError,
    StorageFailed,
    TemporaryFailure,
    Unavailable,
    Unsupported,
)
from driverforge_core.image import ImageFacts, ModuleSet
from driverforge_core.kernel import KernelRelease
from driverforge_core.log import LOGGER
from driverforge_core.osid import OsId, OsRelease
from driverforge_driver.compile.headers import check_header_probes
from driverforge_driver.compile.job import BuildRequest, build, request_for
from driverforge_driver.family.protocol import HeaderTree
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.real import real_host
from driverforge_host.adapters.subprocesses import SystemCommands
from driverforge_host.ports import Host
from support.fakes.mockpath import MockPath
from support.process import missing
from support.samples.aptrepo import Archive, Deb, SigningKey, build_deb, served, signing_key
from support.samples.tinyko import tiny_ko

pytestmark = pytest.mark.skipif(
    bool(missing("apt-get", "dpkg-deb", "gpg")), reason="apt, dpkg and gpg make and read the packages here"
)

RELEASE = "6.1.0-50-cloud-amd64"
VERSION = "6.1.176-1"
FLAVOUR, COMMON = f"usr/src/linux-headers-{RELEASE}", "usr/src/linux-headers-6.1.0-50-common"
CONFIG = """CONFIG_CC_VERSION_TEXT="gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0"
CONFIG_MODULE_SIG_HASH="sha256"
"""
RESIZE = "int pci_resize_resource(struct pci_dev *dev, int i, int size);\n"
PACKAGES = (
    Deb(
        name=f"linux-headers-{RELEASE}",
        version=VERSION,
        depends=(
            f"linux-headers-6.1.0-50-common (= {VERSION}), linux-kbuild-6.1 (>= {VERSION}), "
            "linux-compiler-gcc-12-x86"
        ),
        files={
            f"{FLAVOUR}/.config": CONFIG,
            f"{FLAVOUR}/.kernelvariables": "CC = $(CROSS_COMPILE)gcc-12\n",
            f"{FLAVOUR}/Makefile": f"include /{COMMON}/Makefile\n",
            f"{FLAVOUR}/scripts/Makefile.build": "",
        },
    ),
    Deb(
        name="linux-headers-6.1.0-50-common",
        version=VERSION,
        arch="all",
        files={f"{COMMON}/Makefile": "all:\n", f"{COMMON}/include/linux/pci.h": RESIZE},
    ),
    Deb(
        name="linux-kbuild-6.1",
        version="6.1.192-2",
        files={"usr/lib/linux-kbuild-6.1/scripts/Makefile.build": ""},
    ),
)
MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
# as make does with NVIDIA's sources: a .ko beside the folder of each module
MAKE = 'echo "  CC [M]  nvidia/nv.o"; for m in */; do cp "$KO_FOLDER/${m%/}.ko" .; done'


@dataclass
class Bench:
    """An image with sources, a mirror, and mock tools."""

    folder: Path
    tools: MockPath
    host: Host
    request: BuildRequest

    @property
    def published(self) -> Path:
        return self.folder / "out/opt/lib/modules" / RELEASE

    @property
    def work(self) -> Path:
        return self.folder / "work" / f"535.261.03-{RELEASE}"

    def build(self, **changes: Any) -> list[str]:
        return [result.origin.value for result in build(self.host, replace(self.request, **changes))]

    def refused(self, kind: type[DriverforgeError], **changes: Any) -> DriverforgeError:
        """The error of a build that must fail, having published nothing and left no work folder."""
        with pytest.raises(kind) as caught:
            self.build(**changes)
        assert not list((self.folder / "out").rglob("*.ko"))
        assert not self.work.exists()
        return caught.value


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    folder = tmp_path_factory.mktemp("mirror")
    with signing_key(folder / "key") as key:
        archive = Archive(folder / "debian", key)
        archive.publish("bookworm", {"main": PACKAGES})
        yield archive


def apt_config(folder: Path, url: str, key: SigningKey) -> Path:
    """A configuration for an apt of our own, that knows one mirror."""
    for name in ("lists/partial", "cache/archives/partial", "none"):
        (folder / name).mkdir(parents=True)
    (folder / "sources.list").write_text(f"deb [signed-by={key.keyring}] {url} bookworm main\n")
    options = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": folder / "none",
        "Dir::Etc::Parts": folder / "none",
        "Dir::Etc::PreferencesParts": folder / "none",
        "Dir::State": folder,
        "Dir::State::Lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Architecture": "amd64",
        "Acquire::Retries::Delay": "false",
    }
    (folder / "status").touch()
    (folder / "apt.conf").write_text("".join(f'{name} "{value}";\n' for name, value in options.items()))
    return folder / "apt.conf"


@pytest.fixture
def bench(tmp_path: Path, mirror: Archive) -> Bench:
    tools = MockPath(tmp_path / "bin")
    for name in MODULES:
        (tmp_path / "src/kernel-open" / name).mkdir(parents=True)
        (tmp_path / "ko").mkdir(exist_ok=True)
        (tmp_path / "ko" / f"{name}.ko").write_bytes(
            tiny_ko([f"vermagic={RELEASE} SMP mod_unload", f"name={name}"])
        )
    tools.add("make", MAKE.replace("$KO_FOLDER", str(tmp_path / "ko")))
    tools.add("gcc-12", "echo 'gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0'")
    tools.add("strip", 'cp "$4" "$3"')
    # this machine's own certificates are none of our business: with a site's CA, the program that adds it
    # would run
    for name in ("ld", "objdump", "update-ca-certificates"):
        tools.add(name)
    environ = tools.environ({"APT_CONFIG": str(apt_config(tmp_path / "apt", mirror.url, mirror.key))})
    (tmp_path / "node").mkdir()
    host = replace(
        real_host(),
        commands=SystemCommands(environ),
        node=RootedFiles(str(tmp_path / "node")),
        environ=environ,
    )
    image = ImageFacts(
        os=OsId.parse("debian12"),
        arch="amd64",
        driver=DriverVersion("535.261.03"),
        payload="packages",
        module_types=("open",),
        variant="jit",
        kernels=(),
        sources={"open": str(tmp_path / "src/kernel-open")},
        firmware="",
    )
    request = BuildRequest(
        image=image,
        release=OsRelease(id="debian", version="12", codename="bookworm", like=(), pretty_name="Debian"),
        kernel=KernelRelease.parse(RELEASE),
        module_types=("open",),
        jobs=2,
        output=str(tmp_path / "out"),
        work=str(tmp_path / "work"),
        logs=str(tmp_path / "logs"),
    )
    return Bench(folder=tmp_path, tools=tools, host=host, request=request)


def test_header_packages_of_the_mirror_become_a_published_module_set(bench: Bench) -> None:
    assert bench.build() == ["compiled"]
    place = bench.published / "open"
    described = ModuleSet.from_json((place / "module-set.json").read_text())
    assert set(described.modules) == {f"{name}.ko" for name in MODULES}
    assert {path.name for path in place.iterdir()} == {*described.modules, "module-set.json"}
    assert described.compiler == "gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0"
    assert (described.signer, described.signature_digests) == ("", ("sha256",))
    (call,) = bench.tools.calls("make")
    assert f"SYSSRC={bench.work}/headers/{COMMON}" in call
    assert f"SYSOUT={bench.work}/headers/{FLAVOUR}" in call
    assert "-j2" in call
    assert not bench.work.exists()
    assert (
        bench.folder / f"logs/build-535.261.03-open-{RELEASE}.log"
    ).read_text() == "  CC [M]  nvidia/nv.o\n"


def test_what_conftest_found_out_lies_beside_the_modules(bench: Bench) -> None:
    """As a text that diff(1) compares: a line for each macro, none with the kernel's release."""
    probed = {
        "functions": "#undef NV_B_PRESENT\n#define NV_A_ARGUMENT_COUNT 3\n",
        "headers": '#define NV_LINUX_FENCE_H_PRESENT\n// Kernel version: "6.1.0-50-cloud-amd64"\n',
        "types": "#define NV_A_ARGUMENT_COUNT 3\n#undef NV_A_ARGUMENT\n",
        "patches": "#define NV_NO_ANSWER\n",
    }
    folder = bench.folder / "probed"
    folder.mkdir()
    for name, text in probed.items():
        (folder / f"{name}.h").write_text(text)
    make = MAKE.replace("$KO_FOLDER", str(bench.folder / "ko"))
    bench.tools.add("make", f"{make}; mkdir -p conftest; cp {folder}/* conftest")
    wanted = (
        "#undef NV_A_ARGUMENT\n#define NV_A_ARGUMENT_COUNT 3\n#undef NV_B_PRESENT\n"
        "#define NV_LINUX_FENCE_H_PRESENT\n"
    )
    (bench.folder / "node/var/lib/driverforge/modules").mkdir(parents=True)
    for output, origin in (("out", "compiled"), ("again", "node cache")):
        assert bench.build(output=str(bench.folder / output)) == [origin]
        record = bench.folder / output / f"opt/lib/modules/{RELEASE}/open/conftest.txt"
        assert record.read_text() == wanted


def test_sources_stay_as_they_are(bench: Bench) -> None:
    before = sorted(bench.folder.joinpath("src").rglob("*"))
    bench.build()
    assert sorted(bench.folder.joinpath("src").rglob("*")) == before


def test_files_of_an_image_build_carry_its_time(bench: Bench) -> None:
    bench.build(epoch=1_700_000_000)
    published = [bench.folder / "out/opt", *bench.folder.joinpath("out/opt").rglob("*")]
    assert {path.stat().st_mtime for path in published} == {1_700_000_000}


def test_given_packages_need_no_mirror(bench: Bench, tmp_path: Path) -> None:
    for package in PACKAGES:
        build_deb(package, tmp_path / "debs" / f"{package.name}.deb")
    bench.tools.add("apt-get", "exit 100")
    assert bench.build(headers=str(tmp_path / "debs")) == ["compiled"]
    assert bench.tools.calls("apt-get") == []


def test_a_folder_without_packages_is_refused(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "debs").mkdir()
    (tmp_path / "debs/broken.deb").write_text("no package")
    assert "not a Debian package" in bench.refused(InputError, headers=str(tmp_path / "debs")).brief
    assert "no .deb files" in bench.refused(InputError, headers=str(tmp_path / "src")).brief


def test_headers_missing(bench: Bench) -> None:
    kernel = KernelRelease.parse("6.1.0-13-cloud-amd64")
    error = bench.refused(Unsupported, kernel=kernel)
    assert error.brief == "headers missing: the mirror has no linux-headers-6.1.0-13-cloud-amd64"
    assert any("No packages found" in line for line in error.details)
    assert "precompiled modules" in error.resolution


def test_a_package_that_the_mirror_names_only_as_a_dependency_is_missing(
    bench: Bench, mirror: Archive
) -> None:
    """apt-cache show then ends with status 0 and prints nothing."""
    archive = Archive(bench.folder / "debian", mirror.key)
    archive.publish("bookworm", {"main": PACKAGES[:2]})
    (bench.folder / "apt/sources.list").write_text(
        f"deb [signed-by={mirror.key.keyring}] {archive.url} bookworm main\n"
    )
    assert bench.refused(Unsupported).brief == "headers missing: the mirror has no linux-kbuild-6.1"


def test_mirror_unreachable(bench: Bench, mirror: Archive) -> None:
    apt = bench.folder / "apt"
    with served(mirror.folder) as server:
        url = server.url
    (apt / "sources.list").write_text(f"deb [signed-by={mirror.key.keyring}] {url} bookworm main\n")
    error = bench.refused(Unavailable)
    assert error.brief.startswith("mirror unreachable")
    assert any("Could not connect" in line or "Connection refused" in line for line in error.details)


def test_a_mirror_that_fails_in_the_middle(bench: Bench, mirror: Archive) -> None:
    with served(mirror.folder) as server:
        pool = f"/pool/main/l/linux-headers-6.1.0-50-common/linux-headers-6.1.0-50-common_{VERSION}_all.deb"
        server.broken[pool] = 503
        (bench.folder / "apt/sources.list").write_text(
            f"deb [signed-by={mirror.key.keyring}] {server.url} bookworm main\n"
        )
        error = bench.refused(Unavailable)
    assert any("503" in line for line in error.details)


def own_archive(bench: Bench, mirror: Archive) -> Archive:
    """A mirror that a test may change, in this bench's sources."""
    archive = Archive(bench.folder / "debian", mirror.key)
    archive.publish("bookworm", {"main": PACKAGES})
    use(bench, f"deb [signed-by={mirror.key.keyring}] {archive.url} bookworm main")
    return archive


def use(bench: Bench, line: str) -> None:
    (bench.folder / "apt/sources.list").write_text(f"{line}\n")


def drop_signature(archive: Archive) -> None:
    """Leave the suite as a mirror has it whose index nobody signed."""
    dist = archive.folder / "dists/bookworm"
    text = (dist / "InRelease").read_text().partition("\n\n")[2].partition("-----BEGIN")[0]
    (dist / "Release").write_text(text)
    (dist / "InRelease").unlink()


def test_a_package_changed_behind_its_index_is_no_problem_of_the_network(
    bench: Bench, mirror: Archive
) -> None:
    archive = own_archive(bench, mirror)
    (pool,) = archive.folder.rglob("linux-kbuild-*.deb")
    with pool.open("r+b") as package:
        package.seek(-1, 2)
        package.write(b"!")
    error = bench.refused(InputError)
    assert error.brief == "the mirror gives a file that differs from its index"
    assert any("Hash Sum mismatch" in line for line in error.details)
    assert "HTTP_PROXY" not in error.resolution


def test_another_package_in_the_place_of_one_is_refused(bench: Bench, mirror: Archive) -> None:
    archive = own_archive(bench, mirror)
    (pool,) = archive.folder.rglob("linux-kbuild-*.deb")
    build_deb(replace(PACKAGES[2], files={"usr/bin/theirs": "x" * 9999}), pool)
    with served(archive.folder) as server:
        use(bench, f"deb [signed-by={mirror.key.keyring}] {server.url} bookworm main")
        error = bench.refused(InputError)
    assert error.brief == "the mirror gives a file that differs from its index"


def test_an_index_that_was_changed_is_refused(bench: Bench, mirror: Archive) -> None:
    archive = own_archive(bench, mirror)
    signed = archive.folder / "dists/bookworm/InRelease"
    signed.write_text(signed.read_text().replace("Label: Debian", "Label: debian"))
    error = bench.refused(InputError)
    assert error.brief.startswith("header packages cannot be verified")
    assert any("BADSIG" in line for line in error.details)


def test_an_index_signed_with_an_unknown_key_names_the_key(
    bench: Bench, mirror: Archive, tmp_path: Path
) -> None:
    archive = own_archive(bench, mirror)
    with signing_key(tmp_path / "stranger") as stranger:
        Archive(archive.folder, stranger).publish("bookworm", {"main": PACKAGES})
        error = bench.refused(InputError)
        assert any(f"NO_PUBKEY {stranger.fingerprint[-16:]}" in line for line in error.details)
    assert "signed-by=" in error.resolution


UNSAFE = """APT::Get::AllowUnauthenticated "true";
Acquire::AllowInsecureRepositories "true";
Acquire::AllowDowngradeToInsecureRepositories "true";
"""


@pytest.mark.parametrize("options", ["", "[allow-insecure=yes] "])
def test_an_unsigned_index_is_refused_whatever_the_image_allows(
    bench: Bench, mirror: Archive, options: str
) -> None:
    archive = own_archive(bench, mirror)
    drop_signature(archive)
    use(bench, f"deb {options}{archive.url} bookworm main")
    with (bench.folder / "apt/apt.conf").open("a") as configuration:
        configuration.write(UNSAFE)
    error = bench.refused(InputError)
    assert error.brief.startswith("header packages cannot be verified")
    assert "--headers DIR" in error.resolution


SOURCES = """Types: deb
URIs: {url}
Suites: bookworm
Components: main
Trusted: yes
"""


def test_a_source_that_a_site_calls_trusted_is_named(
    bench: Bench, mirror: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    """NVIDIA's instructions for sites without the internet say trusted=yes."""
    LOGGER.propagate = True  # a command line that ran before has its own handler
    archive = own_archive(bench, mirror)
    drop_signature(archive)
    use(bench, f"# a mirror\ndeb [arch=amd64 trusted=yes] {archive.url} bookworm main")
    (bench.folder / "apt/none/site.sources").write_text(SOURCES.format(url=mirror.url))
    assert bench.build() == ["compiled"]
    sources = [getattr(record, "fields", {}).get("source") for record in caplog.records]
    apt = bench.folder / "apt"
    # a command line that ran before may have left a handler that hears it, too
    assert list(dict.fromkeys(filter(None, sources))) == [
        f"{apt}/sources.list:2",
        f"{apt}/none/site.sources:5",
    ]


def test_a_signed_mirror_gives_no_warning(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    LOGGER.propagate = True
    assert bench.build() == ["compiled"]
    assert "not verified" not in caplog.text


def test_compiler_missing(bench: Bench, tmp_path: Path) -> None:
    for package in PACKAGES:
        build_deb(package, tmp_path / "debs" / f"{package.name}.deb")
    (bench.tools.folder / "gcc-12").unlink()
    only = SystemCommands({"PATH": f"{bench.tools.folder}:{without_gcc(bench.folder)}"})
    bench.host = replace(bench.host, commands=only)
    error = bench.refused(Unsupported, headers=str(tmp_path / "debs"))
    assert error.brief == f"compiler missing: kernel {RELEASE} wants gcc-12"
    assert "gcc-12" in error.resolution
    assert bench.tools.calls("make") == []


def without_gcc(folder: Path) -> Path:
    """A folder with links to the programs that unpack packages: the machine may have any compiler."""
    links = folder / "links"
    links.mkdir()
    for name in ("sh", "dpkg-deb", "tar", "xz", "rm"):
        for place in ("/usr/bin", "/bin"):
            if (Path(place) / name).exists() and not (links / name).exists():
                (links / name).symlink_to(Path(place) / name)
    return links


def test_a_kernel_that_the_driver_cannot_be_compiled_for_is_named_before_any_compiler_runs(
    bench: Bench, tmp_path: Path
) -> None:
    four = "int pci_resize_resource(struct pci_dev *dev, int i, int size,\n\t\t\tint exclude_bars);\n"
    for package in PACKAGES:
        files = {name: four if name.endswith("pci.h") else text for name, text in package.files.items()}
        build_deb(replace(package, files=files), tmp_path / "debs" / f"{package.name}.deb")
    (bench.tools.folder / "gcc-12").unlink()
    error = bench.refused(Unsupported, headers=str(tmp_path / "debs"))
    assert error.brief.startswith(
        f"driver 535.261.03 does not compile for kernel {RELEASE}: pci_resize_resource()"
    )
    assert error.details[0].startswith("include/linux/pci.h:1: pci_resize_resource(")


def test_a_node_too_knows_which_source_a_distribution_patched(bench: Bench, tmp_path: Path) -> None:
    """550.163.01-5 of Debian has a patch for kernels without in_irq(), its open modules' -4 has none."""
    (tmp_path / "include/linux").mkdir(parents=True)
    (tmp_path / "include/linux/preempt.h").write_text("#define in_hardirq() (hardirq_count())\n")
    (tmp_path / ".config").touch()
    image = replace(
        bench.request.image,
        driver=DriverVersion("550.163.01"),
        source_versions={"open": "550.163.01-4", "proprietary": "550.163.01-5.1"},
    )
    tree = HeaderTree(root="", source=str(tmp_path), output=str(tmp_path))
    kernel = KernelRelease.parse("7.0.10+deb13-cloud-amd64")

    def check(kind: str) -> None:
        check_header_probes(RootedFiles("/"), tree, image, (kind,), kernel, realtime=False)

    check("proprietary")
    with pytest.raises(Unsupported, match="in_irq"):
        check("open")


def realtime_headers(folder: Path, option: str = "CONFIG_PREEMPT_RT", value: str = "y") -> str:
    """A folder with the packages of a kernel that is configured with that option."""
    for package in PACKAGES:
        files = {
            name: text + (f"{option}={value}\n" if name.endswith(".config") else "")
            for name, text in package.files.items()
        }
        build_deb(replace(package, files=files), folder / f"{package.name}.deb")
    return str(folder)


# NVIDIA's conftest.sh, preempt_rt_sanity_check, asks for both
@pytest.mark.parametrize("option", ["CONFIG_PREEMPT_RT", "CONFIG_PREEMPT_RT_FULL"])
def test_a_real_time_kernel_is_refused_with_the_way_round_it(
    bench: Bench, tmp_path: Path, option: str
) -> None:
    error = bench.refused(Unsupported, headers=realtime_headers(tmp_path / "debs", option))
    assert "real-time" in error.brief
    assert error.details == (f"{option}=y in the headers of {RELEASE}",)
    assert "IGNORE_PREEMPT_RT_PRESENCE=1" in error.resolution
    assert bench.tools.calls("make") == []


def test_a_kernel_that_is_configured_not_to_be_real_time_is_compiled(bench: Bench, tmp_path: Path) -> None:
    assert bench.build(headers=realtime_headers(tmp_path / "debs", value="n")) == ["compiled"]


def test_a_real_time_kernel_that_is_meant_is_compiled_and_nvidias_build_is_told(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    LOGGER.propagate = True
    told = replace(bench.host, environ={"IGNORE_PREEMPT_RT_PRESENCE": "1"})
    asked = request_for(told, image=bench.request.image, kernel=RELEASE, module_types=("open",))
    headers = realtime_headers(tmp_path / "debs")
    assert bench.build(headers=headers, realtime=asked.realtime) == ["compiled"]
    calls = bench.tools.calls("make")
    assert calls
    assert all("IGNORE_PREEMPT_RT_PRESENCE=1" in call.split() for call in calls)
    assert "NVIDIA does not support real-time kernels" in caplog.text


def test_without_the_word_nvidias_own_check_stays(bench: Bench) -> None:
    bench.build()
    assert "IGNORE_PREEMPT_RT_PRESENCE" not in " ".join(bench.tools.calls("make"))


def test_a_failed_compilation_shows_the_compilers_words_and_keeps_the_log(bench: Bench) -> None:
    bench.tools.add(
        "make",
        "echo 'nv-pci.c:223:9: error: too few arguments'; echo 'make: *** [modules] Error 2' >&2; exit 2",
    )
    error = bench.refused(CommandFailed)
    log = bench.folder / f"logs/build-535.261.03-open-{RELEASE}.log"
    assert error.details == (
        "make ended with status 2",
        "nv-pci.c:223:9: error: too few arguments",
        f"the whole log: {log}",
    )
    assert log.read_text() == "nv-pci.c:223:9: error: too few arguments\nmake: *** [modules] Error 2\n"


def test_a_disk_that_fills_up_while_compiling(bench: Bench) -> None:
    bench.tools.add("make", "echo 'ld: final link failed: No space left on device'; exit 2")
    assert bench.refused(StorageFailed).brief == "disk full while compiling"


def test_too_little_space_is_seen_before_the_compilation(bench: Bench) -> None:
    bench.tools.add("du", "echo 99999999999 x")
    assert "not enough space" in bench.refused(StorageFailed).brief
    assert bench.tools.calls("make") == []


def test_a_module_of_another_kernel_is_not_published(bench: Bench) -> None:
    (bench.folder / "ko/nvidia-uvm.ko").write_bytes(tiny_ko(["vermagic=6.1.0-49-cloud-amd64 SMP mod_unload"]))
    error = bench.refused(CommandFailed)
    assert error.details == ("vermagic: 6.1.0-49-cloud-amd64 SMP mod_unload",)


def test_a_module_that_make_forgot_is_not_overlooked(bench: Bench) -> None:
    bench.tools.add("make", f"cp {bench.folder}/ko/nvidia.ko .")
    assert "did not build nvidia-uvm.ko" in bench.refused(CommandFailed).brief


def test_one_failing_module_type_publishes_neither(bench: Bench) -> None:
    proprietary = bench.folder / "src/kernel/nvidia"
    proprietary.mkdir(parents=True)
    image = replace(
        bench.request.image, sources={**bench.request.image.sources, "proprietary": str(proprietary.parent)}
    )
    bench.tools.add(
        "make", f"pwd | grep -q proprietary && exit 2; {MAKE.replace('$KO_FOLDER', str(bench.folder / 'ko'))}"
    )
    bench.refused(CommandFailed, image=image, module_types=("open", "proprietary"))
    bench.tools.add("make", MAKE.replace("$KO_FOLDER", str(bench.folder / "ko")))
    assert bench.build(image=image, module_types=("open", "proprietary")) == ["compiled", "compiled"]
    assert {path.name for path in bench.published.iterdir()} == {"open", "proprietary"}


def test_an_image_without_sources_says_what_to_use(bench: Bench) -> None:
    image = replace(bench.request.image, sources={}, variant="precompiled")
    assert "JIT image" in bench.refused(Unsupported, image=image).resolution


def test_a_second_build_of_the_same_waits_for_nobody(bench: Bench) -> None:
    bench.work.parent.mkdir()
    with bench.host.files.lock(f"{bench.work}.lock", text="other\n") as ours:
        assert ours
        assert "another build" in bench.refused(TemporaryFailure).brief


def test_nobody_else_may_enter_the_work_folder(bench: Bench) -> None:
    bench.tools.add("make", f"stat -c %a ../.. .. >>{bench.folder}/modes; exit 2")
    bench.refused(CommandFailed)
    assert (bench.folder / "modes").read_text() == "700\n700\n"


def test_a_link_in_the_place_of_the_lock_is_not_followed(bench: Bench) -> None:
    """A folder that was given may be open to all, as a pod's volume is."""
    victim = bench.folder / "victim"
    victim.write_text("precious")
    bench.work.parent.mkdir()
    Path(f"{bench.work}.lock").symlink_to(victim)
    assert ".lock" in bench.refused(StorageFailed).brief
    assert victim.read_text() == "precious"


def test_what_a_node_compiled_once_it_does_not_compile_again(bench: Bench) -> None:
    cache = bench.folder / "node/var/lib/driverforge/modules"
    cache.mkdir(parents=True)
    assert bench.build() == ["compiled"]
    first = {path.name: path.read_bytes() for path in (bench.published / "open").iterdir()}
    assert bench.build(output=str(bench.folder / "again")) == ["node cache"]
    again = bench.folder / f"again/opt/lib/modules/{RELEASE}/open"
    assert {path.name: path.read_bytes() for path in again.iterdir()} == first
    assert len(bench.tools.calls("make")) == 1


@pytest.mark.parametrize("damage", ["nvidia.ko", "module-set.json", "built-with.json"])
def test_a_damaged_or_foreign_cache_entry_is_made_anew(bench: Bench, damage: str) -> None:
    cache = bench.folder / "node/var/lib/driverforge/modules"
    cache.mkdir(parents=True)
    bench.build()
    entry = cache / f"535.261.03/{RELEASE}/open"
    if damage == "built-with.json":
        key = json.loads((entry / damage).read_text())
        (entry / damage).write_text(
            json.dumps({**key, "compiler": "gcc-12 (Debian 12.2.0-15) 12.2.0"}, indent=2, sort_keys=True)
            + "\n"
        )
    else:
        (entry / damage).write_text("{}")
    assert bench.build() == ["compiled"]
    assert bench.build() == ["node cache"]


def test_a_cache_that_cannot_be_written_is_no_failure(bench: Bench) -> None:
    cache = bench.folder / "node/var/lib/driverforge/modules"
    cache.mkdir(parents=True)
    (cache / "535.261.03").write_text("a file in the way")
    assert bench.build() == ["compiled"]
    assert (bench.published / "open/module-set.json").exists()
