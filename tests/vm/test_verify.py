"""`driverforge verify` with a real Debian kernel out of its package, and small modules compiled for it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from driverforge_build.app.verify import Means, Subject, verify_all
from driverforge_build.discover.settings import Settings
from driverforge_build.engine.guests import QemuGuests
from driverforge_build.fetch.cache import Cache
from driverforge_build.fetch.fetcher import Fetcher
from driverforge_build.lock.pins import LockedPackage
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.fields import Arch
from driverforge_build.ports import BuiltImage, GuestBoot, GuestRun, Guests, StepListener
from driverforge_build.verify.findings import Proof, document
from driverforge_build.verify.judge import Check, Kind, Outcome
from driverforge_core.driverversion import DriverVersion
from driverforge_core.kernel import KernelRelease
from support import aptfetch
from support.fakes.fakeengine import FakeEngine
from support.jsonschemas import check_document
from support.machines import kmods
from support.machines.kernels import Image, Kernel
from support.process import require
from support.samples.modulesets import module_set
from support.skipping import provided
from support.upstream import nvidia_modules

CELL = "debian12-amd64-535.261.03-sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Verifies module sets as if they were an image of the engine."""

    release: str
    arch: Arch = "amd64"
    package: LockedPackage
    downloads: Fetcher
    folder: Path
    guests: Guests

    def verify(
        self, files: Mapping[str, bytes], *, driver: str = "535.261.03", silence: float = 120
    ) -> Proof:
        reference = f"localhost/driverforge/driver:{CELL}"
        root = f"/opt/lib/modules/{self.release}"
        image = BuiltImage(reference=reference, id=f"sha256:{'ab' * 32}", size=1, layers=())
        engine = FakeEngine(
            images={reference: image},
            contents={reference: {f"{root}/{path}": content for path, content in files.items()}},
        )
        subject = Subject(
            cell=CELL,
            reference=reference,
            os=next(row for row in load_matrix().rows if row.id == "debian12"),
            arch=self.arch,
            driver=DriverVersion(driver),
            kernel=KernelRelease.parse(self.release),
            module_types=tuple(dict.fromkeys(path.partition("/")[0] for path in files)),
            packages=(self.package,),
        )
        means = Means(
            engine=engine,
            downloads=self.downloads,
            settings=Settings(
                now=datetime.now(timezone.utc), mirrors={"debian12": "http://mirror.site/debian"}
            ),
            guests=self.guests,
            consoles=self.folder / "consoles",
            silence=silence,
        )
        [proof] = verify_all([subject], means, lambda *_: None)
        check_document("verify", document([proof]))
        return proof


@pytest.fixture(scope="module")
def guests() -> Guests:
    return QemuGuests()


@pytest.fixture
def bench(kernel: Kernel, guests: Guests, tmp_path: Path) -> Bench:
    return bench_for(kernel.release, kernel.suite, guests, tmp_path)


def bench_for(
    release: str,
    suite: str,
    guests: Guests,
    folder: Path,
    *,
    archive: aptfetch.MirrorArchive | None = None,
    arch: Arch = "amd64",
) -> Bench:
    """A cache with the kernel's package, as `driverforge lock` and a download would have left it."""
    packages = archive or aptfetch.archive()
    package = provided(lambda: packages.newest(f"linux-image-{release}", suite=suite))
    [deb] = packages.download([package])
    locked = LockedPackage(
        name=package.name,
        version=package.version,
        arch=arch,
        path=deb.as_uri(),
        sha256=hashlib.sha256(deb.read_bytes()).hexdigest(),
        size=deb.stat().st_size,
        suite=package.suite,
    )
    cache = Cache(folder / "cache")
    place = cache.blob_path(locked.sha256)
    place.parent.mkdir(parents=True)
    place.symlink_to(deb)
    return Bench(
        release=release,
        arch=arch,
        package=locked,
        downloads=Fetcher(cache, None),
        folder=folder,
        guests=guests,
    )


@pytest.fixture(scope="module")
def nogpu(kernel: Kernel) -> dict[str, bytes]:
    return files_of(kmods.nogpu(kernel))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.ko")}


def in_tree(image: Image, name: str) -> bytes:
    """A module of the kernel's own package, which its build has signed."""
    return next(image.modules.rglob(f"{name}.ko")).read_bytes()


def outcomes(proof: Proof, kind: Kind = Kind.INSERT) -> dict[str, Outcome]:
    assert proof.error is None, proof.error.render()
    return {check.module: check.outcome for check in proof.checks if check.kind is kind}


def find(proof: Proof, module: str, kind: Kind = Kind.INSERT) -> Check:
    return next(check for check in proof.checks if (check.module, check.kind) == (module, kind))


@pytest.mark.parametrize(
    "series", ["kernel", pytest.param("kernel_612", marks=pytest.mark.full(reason="more of the same"))]
)
def test_both_types_pass_where_no_gpu_is(
    series: str, request: pytest.FixtureRequest, guests: Guests, tmp_path: Path
) -> None:
    kernel: Kernel = request.getfixturevalue(series)
    bench = bench_for(kernel.release, kernel.suite, guests, tmp_path)
    nogpu = files_of(kmods.nogpu(kernel))
    names = ("nvidia.ko", "nvidia-uvm.ko", "nvidia-peermem.ko")
    files: dict[str, bytes] = {}
    for kind in ("open", "proprietary"):
        modules = {name: nogpu[name] for name in names}
        files |= module_set(modules, release=bench.release, module_type=kind)
    proof = bench.verify(files)
    assert outcomes(proof) == {
        f"{kind}/{name}": outcome
        for kind in ("open", "proprietary")
        for name, outcome in zip(names, (Outcome.NO_GPU, Outcome.NO_DRIVER, Outcome.NO_PEERS), strict=True)
    }
    assert proof.passed
    assert proof.tried is not None
    assert proof.tried.packages[0].sha256 == bench.package.sha256
    assert find(proof, "open/nvidia.ko").reason == "NVRM: No NVIDIA GPU found."
    assert "exported by nvidia.ko" in find(proof, "open/nvidia-uvm.ko").reason


def test_what_does_not_fit_this_kernel_fails(
    bench: Bench, nogpu: Mapping[str, bytes], kernel_612: Kernel
) -> None:
    release = bench.release
    other = release.replace("6.1.0", "6.1.9")
    relabelled = nogpu["nvidia.ko"].replace(f"vermagic={release}".encode(), f"vermagic={other}".encode())
    modules = {
        "nvidia.ko": relabelled,
        "nvidia-modeset.ko": files_of(kmods.mock(kernel_612))["nvidia.ko"],
        "nvidia-uvm.ko": nogpu["unknown.ko"],
        "cut.ko": nogpu["nvidia.ko"][:5000],
    }
    proof = bench.verify(module_set(modules, release=release))
    assert outcomes(proof) == {
        # the versions of its symbols fit, and this kernel looks at nothing else
        "open/nvidia.ko": Outcome.NO_GPU,
        "open/nvidia-modeset.ko": Outcome.WRONG_KERNEL,
        "open/nvidia-uvm.ko": Outcome.UNKNOWN_SYMBOL,
        "open/cut.ko": Outcome.WRONG_KERNEL,
    }
    assert not proof.passed
    assert find(proof, "open/nvidia.ko", Kind.FILE).outcome is Outcome.NOT_AS_DESCRIBED
    assert "vermagic is '6.1.9" in find(proof, "open/nvidia.ko", Kind.FILE).reason
    assert find(proof, "open/nvidia-uvm.ko").reason == "nothing exports symbol_of_another_kernel"


def test_signatures_are_enforced(
    bench: Bench, kernel: Kernel, image: Image, nogpu: Mapping[str, bytes], tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign.ko"
    foreign.write_bytes(nogpu["unknown.ko"])
    kmods.sign(foreign, kernel, kmods.signing_key(tmp_path))
    # what it depends on comes out of the kernel's package, too
    trusted = in_tree(image, "virtio_net")
    modules = {
        "nvidia-uvm.ko": nogpu["nvidia-uvm.ko"],
        "virtio_net.ko": trusted,
        "nvidia.ko": foreign.read_bytes(),
        # one byte of what was signed is another one
        "tun.ko": in_tree(image, "tun").replace(b"author=", b"Author=", 1),
    }
    proof = bench.verify(module_set(modules, release=bench.release, signer="driverforge test"))
    assert outcomes(proof, Kind.SIGNATURE) == {
        "open/virtio_net.ko": Outcome.TRUSTED,
        "open/nvidia.ko": Outcome.UNTRUSTED,
        "open/tun.ko": Outcome.REJECTED,
    }
    assert outcomes(proof)["open/tun.ko"] is Outcome.REJECTED
    assert set(outcomes(proof, Kind.UNSIGNED).values()) == {Outcome.REFUSED}
    unsigned = find(proof, "open/nvidia-uvm.ko", Kind.FILE)
    assert unsigned.reason == "it is not signed, and module-set.json names driverforge test"
    assert proof.tried is not None
    assert outcomes(proof)["open/virtio_net.ko"] is Outcome.INSERTED
    described = {module["module"]: module for module in document([proof])["cells"][0]["modules"]}[
        "open/virtio_net.ko"
    ]
    assert described["signer"] == "Build time autogenerated kernel key"
    assert described["signature_digest"] == "sha256"


def test_an_init_that_never_ends_costs_its_limit_and_says_so(
    bench: Bench, kernel: Kernel, nogpu: Mapping[str, bytes]
) -> None:
    stuck = files_of(kmods.build(kmods.SOURCES / "stuck", kernel))["stuck.ko"]
    modules = {
        "nvidia.ko": nogpu["nvidia.ko"],
        "nvidia-uvm.ko": stuck,
        "nvidia-modeset.ko": nogpu["nvidia-uvm.ko"],
    }
    proof = bench.verify(module_set(modules, release=bench.release), silence=20)
    assert outcomes(proof) == {
        "open/nvidia.ko": Outcome.NO_GPU,
        "open/nvidia-uvm.ko": Outcome.HUNG,
        "open/nvidia-modeset.ko": Outcome.NOT_REACHED,
    }
    hung = find(proof, "open/nvidia-uvm.ko")
    assert hung.reason == "its init has not ended after 20 s"
    assert any("stuck: waiting for a device that never answers" in line for line in hung.log)


def test_a_kernel_that_goes_down_is_the_modules_failure(bench: Bench, nogpu: Mapping[str, bytes]) -> None:
    modules = {"nvidia.ko": nogpu["crash.ko"], "nvidia-uvm.ko": nogpu["nvidia-uvm.ko"]}
    proof = bench.verify(module_set(modules, release=bench.release))
    assert outcomes(proof) == {
        "open/nvidia.ko": Outcome.CRASHED,
        "open/nvidia-uvm.ko": Outcome.NOT_REACHED,
    }
    assert any(
        "Kernel panic - not syncing: crash: on purpose" in line for line in find(proof, "open/nvidia.ko").log
    )


def test_a_kernel_that_does_not_come_up_is_no_verdict_on_modules(
    bench: Bench, nogpu: Mapping[str, bytes]
) -> None:
    class Rootless:
        """Guests whose kernel finds no init."""

        def busybox(self, arch: str) -> bytes:
            return bench.guests.busybox(arch)

        def run(self, boot: GuestBoot, on_line: StepListener) -> GuestRun:
            return bench.guests.run(replace(boot, append="rdinit=/none"), on_line)

    files = module_set({"nvidia.ko": nogpu["nvidia.ko"]}, release=bench.release)
    proof = replace(bench, guests=Rootless()).verify(files)
    assert not proof.checks
    assert proof.error is not None
    assert proof.error.brief == f"kernel {bench.release} went down before it tried a module"
    assert any("Kernel panic" in line for line in proof.error.details)


@pytest.mark.full(reason="compiles NVIDIA's open modules")
@pytest.mark.timeout(2400)
def test_nvidias_own_modules_pass(bench: Bench, kernel: Kernel) -> None:
    modules = files_of(nvidia_modules.build("535", kernel))
    driver = nvidia_modules.version("535")
    proof = bench.verify(module_set(modules, release=bench.release, driver=driver), driver=driver)
    assert proof.passed
    found = outcomes(proof)
    assert found["open/nvidia.ko"] is Outcome.NO_GPU
    assert found["open/nvidia-uvm.ko"] is Outcome.NO_DRIVER
    assert found["open/nvidia-modeset.ko"] is Outcome.NO_DRIVER
    assert found["open/nvidia-peermem.ko"] is Outcome.NO_PEERS


@pytest.mark.full(reason="emulates another architecture")
def test_a_kernel_of_arm64_takes_the_modules_that_came_with_it(tmp_path: Path) -> None:
    """There is no compiler for its modules here: the kernel's own are the image's."""
    provided(lambda: require("qemu-system-aarch64"))
    archive = provided(lambda: aptfetch.MirrorArchive(("bookworm",), arch="arm64"))
    release = max(archive.names(r"linux-image-6\.1\.0-[0-9]+-cloud-arm64")).removeprefix("linux-image-")
    shell = archive.unpacked([archive.newest("busybox-static")]) / "bin/busybox"
    bench = bench_for(
        release,
        "bookworm",
        QemuGuests({"arm64": shell}),
        tmp_path,
        archive=archive,
        arch="arm64",
    )
    root = archive.unpacked([archive.newest(f"linux-image-{release}")])
    modules = {f"{name}.ko": next(root.rglob(f"{name}.ko")).read_bytes() for name in ("dummy", "virtio_net")}
    proof = bench.verify(module_set(modules, release=release, signer="its build"))
    assert set(outcomes(proof).values()) == {Outcome.INSERTED}
    assert set(outcomes(proof, Kind.SIGNATURE).values()) == {Outcome.TRUSTED}
    assert proof.passed
