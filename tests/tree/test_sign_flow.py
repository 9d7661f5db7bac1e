"""Modules on their way: out of a build, to whoever signs, and back; and the two scripts of a build's own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.advice import BuildOptions, Given
from driverforge_build.app.build import BuildRequest
from driverforge_build.app.build import build as build_images
from driverforge_build.app.runner import CellReport, Result
from driverforge_build.app.signing import Signing, beside, check_date, try_signer, write_sums
from driverforge_build.engine.signers import key_signer
from driverforge_build.matrix import load_matrix
from driverforge_build.ports import ModuleSigner, ToSign
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.sitecertificate import UNSIGNED
from driverforge_build.render.spec import FILE_TIME, image_specs
from driverforge_core.errors import InputError, StorageFailed, TemporaryFailure
from driverforge_core.image import ModuleSet
from driverforge_core.modinfo import with_signature, without_signature
from driverforge_core.modsign import check_module
from support.fakes.fakeengine import FakeEngine
from support.process import run
from support.samples.modulesets import module_set
from support.samples.signingkeys import SigningKey, bare, cms, signing_key
from support.samples.synthetic import all_cells, synthetic_lock
from support.samples.tinyko import tiny_ko

MATRIX = load_matrix()
KERNEL, DRIVER = "6.1.0-50-cloud-amd64", "535.261.03"
CELL = next(cell for cell in all_cells(MATRIX) if cell.key == f"debian12-amd64-{DRIVER}-{KERNEL}")
LIBRARY = Path(__file__).parents[2] / "entrypoints"


def ko(name: str) -> bytes:
    return tiny_ko([f"name={name}", f"vermagic={KERNEL} SMP", "depends="])


def bare_modules() -> dict[str, bytes]:
    modules = {"nvidia.ko": ko("nvidia"), "nvidia-uvm.ko": ko("nvidia_uvm")}
    return {
        **module_set(modules, release=KERNEL, digests=("sha256",)),
        **module_set(modules, release=KERNEL, module_type="proprietary", digests=("sha256",)),
    }


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return signing_key(tmp_path_factory.mktemp("key"))


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(contents={CELL.key: bare_modules()})


def context(key: SigningKey) -> BuildContext:
    (image,) = image_specs([CELL], synthetic_lock(MATRIX), given=Given(certificate=key.file))
    return context_of(image, resources.templates())


@pytest.fixture
def build(engine: FakeEngine, key: SigningKey, tmp_path: Path) -> Callable[..., CellReport]:
    def run_it(
        signer: ModuleSigner, *, given: Path | None = None, unsigned_to: Path | None = None
    ) -> CellReport:
        signing = Signing(
            certificate=key.certificate, signer=signer, folder=tmp_path / "signing", given=given
        )
        request = BuildRequest(
            folder=tmp_path,
            options=BuildOptions(retries=0),
            signing=None if unsigned_to else signing,
            unsigned_to=unsigned_to,
        )
        (report,) = build_images(
            request, (context(key),), {}, [engine], lambda _: nullcontext(lambda *_: None)
        )
        return report

    return run_it


def test_modules_leave_the_build_are_signed_and_come_back(
    build: Callable[..., CellReport], engine: FakeEngine, key: SigningKey, tmp_path: Path
) -> None:
    report = build(key_signer(str(key.key)))
    assert (report.result, report.error) == (Result.BUILT, None)
    back = engine.brought[CELL.key][UNSIGNED]
    modules = bare_modules()
    assert {path: back[path] for path in modules} == modules
    (tmp_path / "nvidia.ko").write_bytes(modules["open/nvidia.ko"])
    assert back["open/nvidia.ko.p7s"] == cms(tmp_path / "nvidia.ko", key)
    assert len(back) == len(modules) + 4
    # BuildKit compares size and time, and all signatures have one size
    files = [path for path in (tmp_path / "signing").rglob("*") if path.is_file()]
    assert {path.stat().st_mtime <= FILE_TIME for path in files} == {True}
    assert len({path.stat().st_mtime for path in files if path.suffix == ".p7s"}) == 2


def test_private_key_is_nowhere_below_the_cache(
    build: Callable[..., CellReport], key: SigningKey, tmp_path: Path
) -> None:
    build(key_signer(str(key.key)))
    secret = key.key.read_bytes().splitlines()[3]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert not [path for path in files if secret in path.read_bytes()]


@pytest.mark.parametrize("ending", ["p7s", "sig"])
def test_modules_are_signed_elsewhere_between_two_runs(
    build: Callable[..., CellReport], engine: FakeEngine, key: SigningKey, tmp_path: Path, ending: str
) -> None:
    away = tmp_path / "away"
    assert build(beside, unsigned_to=away).result is Result.WRITTEN
    assert write_sums(away) == (away / "SHA256SUMS",)
    (away / "a-cell-that-failed").mkdir()
    assert write_sums(away) == (away / "SHA256SUMS",)
    checked = run("sha256sum", "--check", "SHA256SUMS", cwd=away)
    assert checked.stdout.count(": OK") == 4
    assert not engine.images
    for module in away.rglob("*.ko"):
        made = cms(module, key) if ending == "p7s" else bare(module, key)
        module.with_name(f"{module.name}.{ending}").write_bytes(made)
    (away / CELL.key / "open/conftest.txt").write_text("#define NV_A\n")
    engine.contents = {}  # nothing is compiled again
    assert build(beside, given=away).error is None
    assert f"{CELL.key}/open/nvidia.ko" in (away / "SHA256SUMS").read_text()
    assert {"proprietary/nvidia-uvm.ko.p7s", "open/conftest.txt"} <= engine.brought[CELL.key][UNSIGNED].keys()


def test_what_comes_back_wrong_makes_no_image(
    build: Callable[..., CellReport], engine: FakeEngine, key: SigningKey, tmp_path: Path
) -> None:
    away = tmp_path / "away"
    module = away / CELL.key / "open/nvidia.ko"

    def said() -> str:
        report = build(beside, given=away)
        assert report.error is not None
        return report.error.render()

    assert f"there are no modules in {away / CELL.key}" in said()
    build(beside, unsigned_to=away)
    described = away / CELL.key / "open/module-set.json"
    text = described.read_bytes()
    described.write_bytes(b"\xff" + text)
    assert "module-set.json" in said()
    described.write_bytes(text)
    assert "no signature for open/nvidia-uvm.ko" in said()
    for path in away.rglob("*.ko"):
        path.with_name(f"{path.name}.sig").write_bytes(bare(path, key))
    good = module.read_bytes()
    module.write_bytes(good + b"\0")
    assert "open/nvidia.ko is not the module that was built" in said()
    module.write_bytes(good)
    other = away / CELL.key / "open/nvidia-uvm.ko.sig"
    (module.parent / "nvidia.ko.sig").write_bytes(other.read_bytes())
    assert "open/nvidia.ko: the signature is over something else than this module" in said()
    module.unlink()
    assert "hand back the modules with the signatures" in said()
    assert not engine.images


def test_a_signer_that_fails_makes_no_image(build: Callable[..., CellReport], engine: FakeEngine) -> None:
    def silent(_: ToSign) -> bytes:
        raise TemporaryFailure("kms says nothing for 300 s")

    assert build(silent).error is not None
    empty = build(lambda _: b"").error
    assert empty is not None
    assert "the signer gave no signature" in empty.brief
    assert not engine.images


def test_a_disk_that_is_full_and_files_that_cannot_be_had_are_the_cells_failure(
    build: Callable[..., CellReport], engine: FakeEngine, key: SigningKey, tmp_path: Path
) -> None:
    signs = key_signer(str(key.key))

    def full(what: ToSign) -> bytes:
        what.module.with_name(f"{what.module.name}.p7s").symlink_to("/dev/full")
        return signs(what)

    error = build(full).error
    assert isinstance(error, StorageFailed)
    assert "No space left on device" in error.brief
    assert str(tmp_path / "signing" / CELL.key) in error.brief
    assert "--cache-dir" in error.resolution
    away = tmp_path / "away"
    build(beside, unsigned_to=away)
    (away / "SHA256SUMS").unlink(missing_ok=True)
    (away / "SHA256SUMS").symlink_to("/dev/full")
    with pytest.raises(StorageFailed, match="No space left on device"):
        write_sums(away)
    (away / CELL.key / "open/nvidia.ko.p7s").mkdir()
    error = build(beside, given=away).error
    assert isinstance(error, StorageFailed)
    assert "nvidia.ko.p7s" in error.brief
    assert "--signatures" in error.resolution
    with pytest.raises(StorageFailed, match="Not a directory") as caught:
        build(beside, unsigned_to=key.file / "away")
    assert "--unsigned-to" in caught.value.resolution
    assert not engine.images


def test_a_kernels_digest_is_the_one_that_is_asked_for(
    build: Callable[..., CellReport], engine: FakeEngine, key: SigningKey
) -> None:
    modules = {"nvidia.ko": ko("nvidia")}
    engine.contents = {CELL.key: module_set(modules, release=KERNEL, digests=("sha512", "sha256"))}
    asked: list[ToSign] = []

    def signer(what: ToSign) -> bytes:
        asked.append(what)
        return key_signer(str(key.key))(what)

    assert build(signer).error is None
    assert [what.algorithm for what in asked] == ["sha512"]


def test_a_certificate_is_judged_by_its_dates(key: SigningKey) -> None:
    good = key.certificate
    check_date(good, datetime.now(timezone.utc))
    with pytest.raises(InputError, match="Site modules has expired"):
        check_date(good, good.not_after.replace(year=good.not_after.year + 1))
    with pytest.raises(InputError, match="is not valid yet"):
        check_date(good, good.not_before.replace(year=good.not_before.year - 1))


def test_a_key_of_another_certificate_is_found_before_anything_is_built(
    key: SigningKey, tmp_path: Path
) -> None:
    other = signing_key(tmp_path)
    try_signer(key_signer(str(other.key)), other.certificate)
    with pytest.raises(InputError, match="not made by the certificate's key"):
        try_signer(key_signer(str(other.key)), key.certificate)


def test_inputs_are_of_the_certificate_and_not_of_the_key(key: SigningKey, tmp_path: Path) -> None:
    (plain,) = image_specs([CELL], synthetic_lock(MATRIX))
    unsigned = context_of(plain, resources.templates())
    other = signing_key(tmp_path / "other")
    renewed = signing_key(tmp_path / "renewed")
    with_text = replace(key, file=tmp_path / "with-text.pem")
    text = run("openssl", "x509", "-in", key.file, "-text").stdout
    with_text.file.write_text(text + key.key.read_text())
    inputs = [context(one).inputs for one in (key, other, renewed)]
    assert len({unsigned.inputs, *inputs}) == 4
    assert context(with_text).inputs == inputs[0], "the key beside the certificate is no input"
    secret = key.key.read_bytes().splitlines()[3]
    assert not [path for path, entry in context(with_text).entries.items() if secret in entry.content]


class Scripts:
    """attach-signatures and verify-signatures, with folders of the test in the places of the image's."""

    def __init__(self, folder: Path, key: SigningKey) -> None:
        self.folder, self.key = folder, key
        self.unsigned, self.out = folder / "unsigned", folder / "out"
        (folder / "certificate.der").write_bytes(key.certificate.der)
        for path, content in bare_modules().items():
            (self.unsigned / path).parent.mkdir(parents=True, exist_ok=True)
            (self.unsigned / path).write_bytes(content)
        for module in [*self.unsigned.rglob("*.ko")]:
            module.with_name(f"{module.name}.p7s").write_bytes(cms(module, key))

    def _run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        text = (resources.templates() / "scripts" / name).read_text()
        text = text.replace("/opt/driverforge/lib", str(LIBRARY))
        text = text.replace("/run/driverforge", str(self.folder))
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(FILE_TIME)}
        command = [sys.executable, "-I", "-c", text, *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def attach(self, driver: str = DRIVER, *kinds: str) -> subprocess.CompletedProcess[str]:
        types = kinds or ("open", "proprietary")
        return self._run(
            "attach-signatures", str(self.unsigned), str(self.out), driver, KERNEL, "amd64", *types
        )

    def verify(self) -> subprocess.CompletedProcess[str]:
        return self._run("verify-signatures", str(self.out), KERNEL, "open", "proprietary")

    @property
    def place(self) -> Path:
        return self.out / "opt/lib/modules" / KERNEL / "open"


@pytest.fixture
def scripts(tmp_path: Path, key: SigningKey) -> Scripts:
    (tmp_path / "image").mkdir()
    return Scripts(tmp_path / "image", key)


def test_signatures_are_attached_and_verified(scripts: Scripts, key: SigningKey) -> None:
    (scripts.unsigned / "open/conftest.txt").write_text("#define NV_A\n")
    attached = scripts.attach()
    assert attached.returncode == 0, attached.stderr
    signed = (scripts.place / "nvidia.ko").read_bytes()
    assert without_signature(signed) == ko("nvidia")
    check_module(signed, key.certificate, ("sha256",))
    assert (scripts.place / "conftest.txt").read_text() == "#define NV_A\n"
    assert not (scripts.place.with_name("proprietary") / "conftest.txt").exists()
    described = ModuleSet.from_json((scripts.place / "module-set.json").read_text())
    assert (described.signer, described.signer_key) == ("Site modules", key.certificate.key_id)
    assert {path.stat().st_mtime for path in (scripts.out, *scripts.out.rglob("*"))} == {FILE_TIME}
    verified = scripts.verify()
    assert verified.returncode == 0, verified.stderr
    assert f"open/nvidia.ko: signed by Site modules {key.certificate.key_id}" in verified.stdout


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda s: (s.unsigned / "open/nvidia.ko.p7s").unlink(), "no signature for open/nvidia.ko"),
        (lambda s: (s.unsigned / "open/nvidia.ko").write_bytes(b"other"), "its description says"),
        (lambda s: (s.unsigned / "proprietary/module-set.json").unlink(), "no proprietary modules to sign"),
    ],
)
def test_nothing_is_attached_where_a_part_is_missing(
    scripts: Scripts, spoil: Callable[[Scripts], object], said: str
) -> None:
    spoil(scripts)
    done = scripts.attach()
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_modules_of_another_image_are_refused(scripts: Scripts) -> None:
    done = scripts.attach("535.309.01")
    assert done.returncode != 0
    assert "the open modules are of another image" in done.stderr


def _another_key(scripts: Scripts) -> None:
    other = signing_key(scripts.folder / "other")
    (scripts.folder / "certificate.der").write_bytes(other.certificate.der)


def _stripped_later(scripts: Scripts) -> None:
    module = scripts.place / "nvidia.ko"
    module.write_bytes(module.read_bytes().replace(b"name=nvidia", b"name=NVIDIA", 1))


def _unsigned(scripts: Scripts) -> None:
    (scripts.place / "nvidia.ko").write_bytes(ko("nvidia"))


def _put(scripts: Scripts, content: bytes, *, digest: str = "sha256") -> None:
    """Another module in the place of nvidia.ko, signed by the right key and described."""
    other = scripts.folder / "other.ko"
    other.write_bytes(content)
    signed = with_signature(content, cms(other, scripts.key, digest=digest))
    (scripts.place / "nvidia.ko").write_bytes(signed)
    description = scripts.place / "module-set.json"
    described = ModuleSet.from_json(description.read_text())
    named = {**described.modules, "nvidia.ko": f"sha256:{hashlib.sha256(signed).hexdigest()}"}
    description.write_text(replace(described, modules=named).to_json())


def _of_another_kernel(scripts: Scripts) -> None:
    _put(scripts, tiny_ko(["vermagic=6.1.0-53-cloud-amd64 SMP", "depends="]))


def _other_digest(scripts: Scripts) -> None:
    _put(scripts, ko("nvidia"), digest="sha512")


def _not_described(scripts: Scripts) -> None:
    (scripts.place / "nvidia.ko").write_bytes((scripts.place / "nvidia-uvm.ko").read_bytes())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_another_key, "names another certificate"),
        (_stripped_later, "over something else"),
        (_unsigned, "has no signature"),
        (_of_another_kernel, "its vermagic is '6.1.0-53-cloud-amd64 SMP', not of 6.1.0-50-cloud-amd64"),
        (_not_described, "not the module that module-set.json names"),
        (_other_digest, "over sha512, which this kernel may not know"),
    ],
)
def test_the_verifying_stage_ends_the_build(
    scripts: Scripts, spoil: Callable[[Scripts], None], said: str
) -> None:
    assert scripts.attach().returncode == 0
    spoil(scripts)
    done = scripts.verify()
    assert done.returncode != 0
    assert done.stderr.startswith("verify-signatures: open/nvidia")
    assert said in done.stderr
