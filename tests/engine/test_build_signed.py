"""Signed modules for real: a driver in miniature is compiled for a kernel of Debian's, its modules leave the
build, are signed in each way that there is, and come back.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import secrets
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from driverforge_build.lock.file import dump_lock
from driverforge_build.matrix import load_matrix
from driverforge_build.plan.rows import all_cells, make_plan
from driverforge_build.verdict.decide import Judge
from driverforge_core.image import ModuleSet
from driverforge_core.modinfo import without_signature
from driverforge_core.modsign import check_module
from support.machines import kernels
from support.machines.builderbench import BuilderBench, real_lock
from support.machines.engine import Engine
from support.process import run
from support.samples.signingkeys import SigningKey, signing_key
from support.samples.tinydriver import DRIVER, PLAIN_MIRROR, PLAIN_SUITE, SUITE, Site, site, tiny_lock
from support.skipping import provided

PASSPHRASE = "a passphrase that nobody finds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    builder: BuilderBench
    site: Site
    cell: str
    key: SigningKey
    folder: Path
    made: dict[str, str] = field(default_factory=dict)

    def build(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        mirrors = [f"debian12/{SUITE}={self.site.mirror}", f"debian12/{PLAIN_SUITE}={PLAIN_MIRROR}"]
        serving = [
            *(word for mirror in mirrors for word in ("--mirror", mirror)),
            "--ca",
            self.site.authorities,
        ]
        signing = ["--sign-certificate", self.key.file]
        given = [*serving, "--network", "host", "--json", *signing]
        return self.builder.driverforge("build", "--select", self.cell, *given, *words, check=check)

    def built(self, *words: str | Path) -> dict[str, Any]:
        (cell,) = json.loads(self.build(*words).stdout)["cells"]
        assert cell["error"] is None
        return dict(cell)

    @property
    def release(self) -> str:
        return self.cell.removeprefix(f"debian12-amd64-{DRIVER}-")


@pytest.fixture(scope="module")
def bench(engine: Engine, bookworm: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("signed")
    (folder / "mirror").mkdir()
    with site(folder / "mirror", folder / "site") as serving:
        builder = BuilderBench(
            engine=engine,
            base=bookworm,
            folder=folder,
            lock=folder / "lock.json",
            environment={"HTTP_PROXY": serving.proxy, "KBUILD_SIGN_PIN": PASSPHRASE},
        )
        pins = tiny_lock(real_lock(), folder / "mirror", salt=secrets.token_hex(8))
        builder.lock.write_text(dump_lock(pins))
        matrix = load_matrix()
        plan = make_plan(
            all_cells(matrix, pins), Judge(matrix, pins, today=datetime.now(timezone.utc).date())
        )
        kernels_of = [
            cell.key
            for cell in plan.to_build()
            if cell.kernel and cell.os.id == "debian12" and cell.kernel.flavour == "cloud-amd64"
        ]
        if not kernels_of:
            pytest.skip(f"the mirror has no kernel that {DRIVER} builds for")
        key = signing_key(folder / "key", password=PASSPHRASE)
        made = Bench(builder=builder, site=serving, cell=kernels_of[0], key=key, folder=folder)
        yield made
        builder.forget(*made.made.values())


@pytest.fixture(scope="module")
def built(bench: Bench) -> dict[str, Any]:
    """The report of the cell, signed by a key in a file with a passphrase."""
    cell = bench.built("--sign-key", bench.key.key)
    bench.made["file"] = cell["reference"]
    return cell


def modules(bench: Bench, reference: str) -> Mapping[str, bytes]:
    """Files of a kernel's folder in an image."""
    container = bench.builder.engine.docker("create", reference).stdout.strip()
    target = bench.folder / secrets.token_hex(4)
    try:
        source = f"{container}:/opt/lib/modules/{bench.release}"
        bench.builder.engine.docker("cp", source, str(target))
    finally:
        bench.builder.engine.docker("rm", container)
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*.*")}


def test_every_module_of_the_image_is_signed_and_the_labels_say_by_whom(
    bench: Bench, built: dict[str, Any]
) -> None:
    found = modules(bench, built["reference"])
    for kind in ("open", "proprietary"):
        described = ModuleSet.from_json(found[f"{kind}/module-set.json"].decode())
        assert described.signer == "Site modules"
        assert described.signature_digests == ("sha256",), "CONFIG_MODULE_SIG_HASH of Debian 12"
        for name, digest in described.modules.items():
            check_module(found[f"{kind}/{name}"], bench.key.certificate, ("sha256",))
            assert digest == f"sha256:{hashlib.sha256(found[f'{kind}/{name}']).hexdigest()}"
    (image,) = json.loads(bench.builder.engine.docker("image", "inspect", built["reference"]).stdout)
    assert image["Config"]["Labels"]["io.driverforge.signer"] == "Site modules"
    assert image["Config"]["Labels"]["io.driverforge.signer-key"] == bench.key.certificate.key_id


def test_the_key_and_its_passphrase_are_nowhere(bench: Bench, built: dict[str, Any]) -> None:
    """Layers, configuration, history, logs, contexts, and what the engine keeps of its builds."""
    body = bench.key.key.read_bytes().splitlines()
    secret = {"key": body[3], "file name": str(bench.key.key).encode(), "passphrase": PASSPHRASE.encode()}
    clear = run("openssl", "pkey", "-in", bench.key.key, "-passin", f"pass:{PASSPHRASE}").stdout.splitlines()
    secret["clear key"] = clear[3].encode()
    saved = bench.folder / "saved.tar"
    bench.builder.engine.docker("image", "save", "--output", saved, built["reference"])
    places = dict(blobs(saved))
    for words in (("history", "--no-trunc", built["reference"]), ("image", "inspect", built["reference"])):
        places[words[0]] = bench.builder.engine.docker(*words).stdout.encode()
    looked = [
        path for name in ("cache", "site") for path in (bench.folder / name).rglob("*") if path.is_file()
    ]
    places |= {str(path): path.read_bytes() for path in looked}
    assert any(path.endswith(".log") for path in places)
    root = Path(bench.builder.engine.docker("info", "--format", "{{.DockerRootDir}}").stdout.strip())
    kept = [path for path in (root / "buildkit").rglob("*") if path.is_file()]
    assert kept or not root.is_dir(), "where the engine's own records are"
    places |= {str(path): path.read_bytes() for path in kept if path.stat().st_size < 64 << 20}
    found = [(place, what) for place, data in places.items() for what, word in secret.items() if word in data]
    assert not found
    public = bench.key.certificate.key_id.encode()
    assert [place for place, data in places.items() if public in data], "what is there would be seen"


def blobs(saved: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(saved) as archive:
        for member in archive:
            if stream := archive.extractfile(member):
                data = stream.read()
                yield member.name, gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def test_modules_signed_elsewhere_by_the_kernels_own_program_make_the_same_image(
    bench: Bench, built: dict[str, Any]
) -> None:
    """Three jobs of a pipeline: the second has nothing but the folder, the third compiles nothing."""
    away = bench.folder / "away"
    written = bench.built("--unsigned-to", away)
    assert written["result"] == "written"
    names = [line.split()[1] for line in (away / "SHA256SUMS").read_text().splitlines()]
    assert f"{bench.cell}/open/nvidia.ko" in names
    run("sha256sum", "--check", "SHA256SUMS", cwd=away)
    image = modules(bench, built["reference"])
    open_module = (away / bench.cell / "open/nvidia.ko").read_bytes()
    assert without_signature(image["open/nvidia.ko"]) == open_module
    kernel = provided(lambda: kernels.newest("6.1"))
    for name in names:
        program = kernel.build / "scripts/sign-file"
        run(
            program,
            "-d",
            "sha256",
            bench.key.key,
            bench.key.file,
            away / name,
            env={"KBUILD_SIGN_PIN": PASSPHRASE},
        )
    again = bench.built("--signatures", away)
    assert again["id"] == built["id"]
    assert "driverctl build" not in Path(again["log"]).read_text()


def test_a_program_that_is_given_digests_makes_the_same_image(
    bench: Bench, built: dict[str, Any], tmp_path: Path
) -> None:
    program = tmp_path / "kms"
    program.write_text(
        f"#!/bin/sh\nopenssl pkeyutl -sign -inkey {bench.key.key} -passin env:KBUILD_SIGN_PIN "
        "-pkeyopt digest:$DRIVERFORGE_HASH | base64\n"
    )
    program.chmod(0o755)
    assert bench.built("--sign-command", program)["id"] == built["id"]


@pytest.mark.full(reason="builds once more without the layer cache")
def test_compiled_modules_are_the_same_bytes_when_they_are_compiled_again(bench: Bench) -> None:
    first, second = bench.folder / "first", bench.folder / "second"
    bench.built("--unsigned-to", first)
    bench.built("--unsigned-to", second, "--no-cache")
    assert (first / "SHA256SUMS").read_text() == (second / "SHA256SUMS").read_text()


def test_a_module_that_was_changed_while_it_was_away_ends_the_build(bench: Bench) -> None:
    away = bench.folder / "changed"
    bench.built("--unsigned-to", away)
    module = away / bench.cell / "open/nvidia.ko"
    for path in away.rglob("*.ko"):
        words = ["-sign", bench.key.key, "-passin", f"pass:{PASSPHRASE}", "-out", f"{path}.sig", path]
        run("openssl", "dgst", "-sha256", *words)
    module.write_bytes(module.read_bytes() + b"\0")
    done = bench.build("--signatures", away, check=False)
    assert done.returncode == 1
    assert "open/nvidia.ko is not the module that was built" in done.stdout


def test_the_images_own_stages_refuse_what_has_not_come_through_us(bench: Bench) -> None:
    """By hand, from the generated folder: without signatures, and with those of another key."""
    output = bench.folder / "generated"
    chosen = ("--select", bench.cell, "--sign-certificate", bench.key.file)
    bench.builder.driverforge("generate", *chosen, "--output", output)
    away = bench.folder / "by-hand"
    bench.built("--unsigned-to", away)

    def by_hand() -> str:
        context = f"unsigned={away / bench.cell}"
        words = ["build", "--network", "host", "--build-context", context, str(output / bench.cell)]
        return bench.builder.engine.docker("buildx", *words, "--progress", "plain", check=False).stderr

    assert "there is no signature for" in by_hand()
    other = signing_key(bench.folder / "other")
    for path in away.rglob("*.ko"):
        files = ["-in", path, "-signer", other.file, "-inkey", other.key, "-out", f"{path}.p7s"]
        run("openssl", "cms", "-sign", "-binary", "-noattr", "-nocerts", "-outform", "DER", *files)
    said = by_hand()
    assert "verify-signatures: open/nvidia" in said
    assert "names another certificate" in said
