"""`driverforge verify` as a user calls it, with stand-ins for the engine and for QEMU.

The kernel's package is a real .deb, and its kernel a text. tests/vm/test_verify.py boots a real one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from driverforge_build.advice import Given
from driverforge_build.cli import run
from driverforge_build.fetch.packagefile import unpack_package
from driverforge_build.fetch.web import registry_transport
from driverforge_build.lock.file import dump_lock, load_lock
from driverforge_build.lock.pins import HeaderFact, Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.probes import header_probe, question
from driverforge_build.plan.rows import all_cells
from driverforge_build.render.bake import immutable_tag_of
from driverforge_build.render.context import driver_contexts
from driverforge_core.errors import InputError
from driverforge_oci.client import RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import content_of, referrers
from driverforge_oci.session import Session
from support.fakes.engineapi import engine_api
from support.fakes.mockpath import MockPath
from support.jsonschemas import check_document
from support.machines.registry import serve
from support.process import missing
from support.process import run as run_program
from support.samples.aptrepo import Deb, build_deb
from support.samples.modulesets import module_set
from support.samples.registrysite import store
from support.samples.synthetic import synthetic_lock
from support.samples.tinyko import tiny_ko

pytestmark = pytest.mark.skipif(bool(missing("dpkg-deb")), reason="dpkg-deb makes the kernel's package here")

RELEASE = "6.1.0-50-cloud-amd64"
CELL = f"debian12-amd64-535.261.03-{RELEASE}"
OTHER = "debian12-amd64-535.261.03-6.12.95+deb12-cloud-amd64"
JIT = "debian12-amd64-535.261.03-jit"
STATIC = b"\x7fELF\x02\x01".ljust(18, b"\0") + (62).to_bytes(2, "little") + bytes(44)
NO_GPU = f"""
release {RELEASE}
begin kernel/video.ko
end kernel/video.ko 0
begin open/nvidia.ko
log [ 1.0] NVRM: No NVIDIA GPU found.
end open/nvidia.ko 19 no such device
begin proprietary/nvidia.ko
log [ 1.0] NVRM: No NVIDIA GPU found.
end proprietary/nvidia.ko 19 no such device
done"""
# a .ko of ASCII alone, for a Deb's files are texts
VIDEO = tiny_ko(["depends=i2c-core"]).decode()
KERNEL = Deb(
    name=f"linux-image-{RELEASE}",
    version="6.1.176-1",
    files={
        f"boot/vmlinuz-{RELEASE}": "the kernel",
        f"lib/modules/{RELEASE}/modules.builtin": "kernel/drivers/i2c/i2c-core.ko\n",
        f"lib/modules/{RELEASE}/kernel/video.ko": VIDEO,
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    folder: Path
    mock: MockPath
    # what the engine calls its image
    ids: list[str]
    # what has to happen before it has that
    without: list[str]

    def verify(self, *words: str) -> int:
        given = ["--lock", str(self.folder / "lock.json"), "--mirror", f"debian12={self.folder.as_uri()}"]
        given += ["--cache-dir", str(self.folder / "cache")]
        return run(["verify", *words, *given, "--busybox", f"amd64={self.folder / 'busybox'}"])


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    deb = tmp_path / "pool" / f"linux-image-{RELEASE}.deb"
    build_deb(KERNEL, deb)
    matrix = load_matrix()
    target = synthetic_lock(matrix).targets["debian12-amd64"]
    answers = {question(header_probe(row)): HeaderFact(breaks=False, found="") for row in matrix.probes}
    image = replace(
        target.kernels[RELEASE].image,
        path=f"pool/{deb.name}",
        sha256=hashlib.sha256(deb.read_bytes()).hexdigest(),
        size=deb.stat().st_size,
    )
    kernels = {**target.kernels, RELEASE: replace(target.kernels[RELEASE], image=image)}
    facts = {kernel.headers[0].key: answers for kernel in kernels.values()}
    lock = Lock(targets={target.key: replace(target, kernels=kernels, header_facts=facts)})
    (tmp_path / "lock.json").write_text(dump_lock(lock))
    (tmp_path / "busybox").write_bytes(STATIC)
    mock = MockPath(tmp_path / "bin")
    mock.add(
        "docker",
        'case "$1" in version) echo 29.0.0 ;; buildx) echo "github.com/docker/buildx v0.30.0 x" ;; esac',
    )
    monkeypatch.setenv("PATH", f"{mock.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    ids = [f"sha256:{'ab' * 32}"]
    without: list[str] = []
    with engine_api(lambda path: _engine(path, _modules(), ids[0], without)) as host:
        monkeypatch.setenv("DOCKER_HOST", host)
        yield Bench(folder=tmp_path, mock=mock, ids=ids, without=without)


def _modules() -> dict[str, bytes]:
    nvidia = tiny_ko(["depends=video", f"vermagic={RELEASE} SMP "])
    return {
        **module_set({"nvidia.ko": nvidia}, release=RELEASE),
        **module_set({"nvidia.ko": nvidia}, release=RELEASE, module_type="proprietary"),
    }


def _engine(path: str, modules: Mapping[str, bytes], image: str, without: list[str]) -> tuple[int, object]:
    """An engine that has the image of CELL, and no other; `without` it, once that is pulled and tagged."""
    if "/images/create" in path:
        without[:] = ["its name"]
        return 200, {"status": "pulled"}
    if "/tag?" in path:
        assert "repo=localhost%2Fdriverforge%2Fdriver" in path
        without.clear()
        return 201, {}
    if without and "/images/localhost/" in path:
        return 404, {"message": "no such image"}
    if "/containers/create" in path:
        return 201, {"Id": "c1"}
    if "/archive" in path:
        return 200, _tar(modules)
    if "/containers/c1" in path:
        return 204, {}
    if "/history" in path:
        return 200, []
    if f"535.261.03-{RELEASE}-debian12-r" not in path:
        return 404, {"message": "no such image"}
    return 200, {"Id": image, "Size": 1, "RootFS": {}, "Config": {"Labels": {}}}


def _tar(modules: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in modules.items():
            entry = tarfile.TarInfo(f"{RELEASE}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def guest(bench: Bench, says: str) -> None:
    bench.mock.add("qemu-system-x86_64", f"cat <<'X'\n{says}\nX\nexit 0")


def test_an_image_passes_and_all_reports_say_so(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    guest(bench, NO_GPU)
    junit, statements = bench.folder / "reports/junit.xml", bench.folder / "attestations"
    status = bench.verify("--select", "debian12-*", "--junit", str(junit), "--attestations", str(statements))
    out, err = capsys.readouterr()
    assert status == 0, out + err
    assert out.startswith(f"{CELL}  passed  ")
    assert out.endswith("1 passed, 0 failed\n")
    assert f"{CELL}: open: booting {RELEASE}\n" in err
    assert f"{CELL}: open: open/nvidia.ko\n" in err
    [suite] = ET.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("4", "0")
    made = json.loads((statements / f"{CELL}.intoto.json").read_text())
    assert made["subject"][0]["digest"] == {"sha256": "ab" * 32}
    assert made["predicate"]["result"] == "PASSED"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    with serve(tmp_path / "registry") as server:
        yield f"{server.address}/site"


def pushed(bench: Bench, registry: str) -> tuple[RegistryClient, Reference, str]:
    """Put CELL's image into the registry; its digest, and that of its configuration."""
    matrix, lock = load_matrix(), load_lock(bench.folder / "lock.json")
    (made,) = driver_contexts(
        [cell for cell in all_cells(matrix, lock) if cell.key == CELL], lock, given=Given()
    )
    client = RegistryClient(Session(registry_transport({}, lambda *_: None)))
    place = Reference.parse(f"{registry}/driver:{immutable_tag_of(made)}")
    digest, config = store(client, place, made)
    return client, place.with_digest(digest), config


@pytest.mark.parametrize(("word", "result", "status"), [("19", "PASSED", 0), ("8", "FAILED", 1)])
def test_the_outcome_is_attached_to_the_image_in_the_registry(
    bench: Bench, registry: str, capsys: pytest.CaptureFixture[str], word: str, result: str, status: int
) -> None:
    guest(bench, NO_GPU.replace("end open/nvidia.ko 19", f"end open/nvidia.ko {word}"))
    client, place, bench.ids[0] = pushed(bench, registry)
    words = (CELL, "--attest", "--registry", registry, "--json")
    for sent in (True, False):
        assert bench.verify(*words) == status
        document = json.loads(capsys.readouterr().out)
        check_document("verify", document)
        [cell] = document["cells"]
        assert (cell["attached"]["kind"], cell["attached"]["sent"]) == ("test-result", sent)
    (one,) = referrers(client, place)
    made = json.loads(content_of(client, place, one, limit=1 << 20))
    assert made["subject"][0]["digest"] == {"sha256": place.digest.partition(":")[2]}
    assert made["predicate"]["result"] == result


def test_nothing_is_attached_to_an_image_that_was_not_tried(
    bench: Bench, registry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    guest(bench, NO_GPU)
    words = (CELL, "--attest", "--registry", registry, "--json")
    assert bench.verify(*words) == 1
    [cell] = json.loads(capsys.readouterr().out)["cells"]
    assert (cell["result"], cell["attached"]) == ("passed", None)
    assert "does not have" in cell["not_attached"]["brief"]
    assert f"driverforge push --lock {bench.folder}/lock.json" in cell["not_attached"]["resolution"]
    # the engine's image is another build than the registry's
    client, place, _ = pushed(bench, registry)
    assert bench.verify(*words) == 1
    [cell] = json.loads(capsys.readouterr().out)["cells"]
    assert f"is another build of {CELL}" in cell["not_attached"]["brief"]
    assert cell["not_attached"]["resolution"].startswith("docker pull ")
    assert referrers(client, place) == ()


def test_an_image_that_another_machine_has_built_is_pulled(
    bench: Bench, registry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stage of its own: its engine has nothing, the registry has all."""
    guest(bench, NO_GPU)
    _, _, bench.ids[0] = pushed(bench, registry)
    bench.without.append("the image")
    words = ("--select", "debian12-amd64-*-cloud-amd64", "--registry", registry, "--json")
    assert bench.verify(*words) == 0
    assert json.loads(capsys.readouterr().out)["cells"] == []
    assert bench.verify(*words, "--pull", "--attest") == 0
    [cell] = json.loads(capsys.readouterr().out)["cells"]
    assert (cell["cell"], cell["result"]) == (CELL, "passed")
    assert cell["attached"]["sent"]
    assert bench.without == [], "it was pulled, and got the name that `build` gives"
    assert bench.verify("--select", "debian12-*", "--pull") == 64
    assert "--pull needs --registry" in capsys.readouterr().err


def test_a_module_that_fails_is_the_commands_failure(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    guest(bench, NO_GPU.replace("end open/nvidia.ko 19", "end open/nvidia.ko 8"))
    assert bench.verify(CELL, "--json") == 1
    [cell] = json.loads(capsys.readouterr().out)["cells"]
    assert (cell["cell"], cell["result"], cell["kernel"]) == (CELL, "failed", RELEASE)
    assert [check["outcome"] for check in cell["checks"] if check["kind"] == "insert"] == [
        "wrong-kernel",
        "no-gpu",
    ]


def test_a_kernel_that_cannot_be_had_is_that_cells_error(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    guest(bench, NO_GPU)
    (bench.folder / f"pool/linux-image-{RELEASE}.deb").unlink()
    assert bench.verify(CELL) == 1
    assert "error: the mirror has no " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (JIT, f"{JIT} is no image with kernel modules that the plan has"),
        (OTHER, "has not been built from these inputs"),
    ],
)
def test_a_named_cell_without_an_image_is_no_success(
    bench: Bench, cell: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    guest(bench, NO_GPU)
    assert bench.verify(cell) == 64
    assert said in capsys.readouterr().err
    # nothing tried of what a list names is no success either; a build that failed costs no other image's test
    assert bench.verify("--select", cell) == (64 if cell == OTHER else 0)
    assert bench.verify("--select", cell, "--select", CELL) == 0


def test_without_qemu_nothing_is_downloaded(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.folder / "tools").mkdir()
    for name in ("docker", "cat"):
        found = bench.mock.folder / name
        (bench.folder / "tools" / name).symlink_to(found if found.exists() else f"/bin/{name}")
    monkeypatch.setenv("PATH", str(bench.folder / "tools"))
    assert bench.verify(CELL) == 69
    assert "not installed: qemu-system-x86_64" in capsys.readouterr().err
    assert not (bench.folder / "cache/blobs").exists()


def test_where_no_image_is_there_is_nothing_to_verify(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.verify("--select", "debian12-*-jit") == 0
    assert capsys.readouterr().out.startswith("nothing to verify")


def test_a_package_is_unpacked_as_dpkg_does(tmp_path: Path) -> None:
    deb = tmp_path / "kernel.deb"
    build_deb(KERNEL, deb)
    run_program("dpkg-deb", "-x", deb, tmp_path / "dpkg")
    unpack_package(deb, tmp_path / "ours")
    assert _contents(tmp_path / "ours") == _contents(tmp_path / "dpkg") != {}
    with pytest.raises(InputError, match="unpacks to more than 100 bytes"):
        unpack_package(deb, tmp_path / "limited", limit=100)
    deb.write_bytes(deb.read_bytes()[:-200])
    with pytest.raises(InputError, match="cannot be read as a package"):
        unpack_package(deb, tmp_path / "cut")


def test_what_leads_out_of_the_folder_is_left_out(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("../outside", "/etc/outside", "./inside"):
            entry = tarfile.TarInfo(name)
            entry.size = 1
            archive.addfile(entry, io.BytesIO(b"x"))
        link = tarfile.TarInfo("lib/modules/build")
        link.type, link.linkname = tarfile.SYMTYPE, "/usr/src"
        archive.addfile(link)
    deb, data = tmp_path / "a.deb", out.getvalue()
    head = f"{'data.tar':16}{0:<12}{0:<6}{0:<6}{'100644':8}{len(data):<10}`\n".encode()
    deb.write_bytes(b"!<arch>\n" + head + data)
    unpack_package(deb, tmp_path / "deep/target")
    assert _contents(tmp_path / "deep") == {"target/inside": b"x"}
    assert not (tmp_path / "outside").exists()


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
