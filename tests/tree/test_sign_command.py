"""`driverforge build` and its options for signed modules: what is refused, with which words, before anything
is built; and whose tag an image has.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import HeaderFact, Lock
from support.process import run
from support.samples.locks import kernel, package, sample_driver, target
from support.samples.sampledebian import OLD, write_matrix
from support.samples.signingkeys import SigningKey, signing_key

QUESTION = "include/linux/pci.h: arguments 4 pci_resize_resource"
CELL = f"debian12-amd64-535.261.03-{OLD}"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return signing_key(tmp_path_factory.mktemp("key"))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    write_matrix(tmp_path)
    common = package(f"linux-headers-{OLD[:8]}-common")
    facts = {common.key: {QUESTION: HeaderFact(breaks=False, found="include/linux/pci.h:2: x")}}
    found = kernel(OLD, package(f"linux-headers-{OLD}"), common)
    whole = target(found, drivers={"535.261.03": sample_driver()}, header_facts=facts)
    (tmp_path / "site.lock.json").write_text(dump_lock(Lock(targets={whole.key: whole})))
    return tmp_path


def driverforge(site: Path, command: str, *words: str | Path) -> int:
    given = ["--matrix", site / "site.yaml", "--lock", site / "site.lock.json", "--select", CELL]
    if command == "build":
        given += ["--engine", "nop", "--cache-dir", site / "cache"]
    return cli.run([command, *map(str, (*given, *words))])


def test_a_certificate_and_nothing_that_signs_makes_no_image(
    site: Path, key: SigningKey, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    given = ["--matrix", site / "site.yaml", "--lock", site / "site.lock.json", "--select", CELL]
    words = ["build", *given, "--sign-certificate", key.file, "--cache-dir", site / "cache"]
    assert cli.run([*map(str, words)]) == 64
    told = capsys.readouterr().err
    assert "there is a certificate, and nothing that signs" in told
    assert f"{CELL} has modules to sign" in told
    assert "--sign-key, --sign-command or --signatures; --unsigned-to DIR" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sign-key", "{key}"), "--sign-key needs --sign-certificate"),
        (("--unsigned-to", "{site}/away"), "--unsigned-to needs --sign-certificate"),
        (
            ("--sign-certificate", "{certificate}", "--sign-key", "{key}", "--sign-command", "kms"),
            "--sign-key and --sign-command: choose one",
        ),
        (("--sign-certificate", "{certificate}", "--sign-command", "kms '"), "No closing quotation"),
        (("--sign-certificate", "{certificate}", "--sign-command", " "), "it names no program"),
        (
            (
                "--sign-certificate",
                "{certificate}",
                "--unsigned-to",
                "{site}/away",
                "--push",
                "--registry",
                "r/x",
            ),
            "--push with --unsigned-to: it makes no images",
        ),
        (("--sign-certificate", "{site}/none.pem", "--sign-key", "{key}"), "none.pem cannot be read"),
        (("--sign-certificate", "{key}", "--sign-key", "{key}"), "there is no X.509 certificate in it"),
        (("--sign-certificate", "{key}", "--sign-key", "{key}"), "  | it has: PRIVATE KEY"),
        (
            ("--sign-certificate", "{certificate}", "--sign-command", "no-such-kms --key 1"),
            "no-such-kms of --sign-command cannot be started",
        ),
        (("--sign-certificate", "{certificate}", "--sign-key", "{site}/none"), "none cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_built(
    site: Path,
    key: SigningKey,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    filled = [word.format(key=key.key, certificate=key.file, site=site) for word in words]
    assert driverforge(site, "build", *filled) in (64, 65, 69)
    assert said in capsys.readouterr().err
    assert not (site / "cache").exists()


def test_a_key_that_does_not_fit_its_certificate_is_refused_before_anything_is_built(
    site: Path, key: SigningKey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = signing_key(tmp_path / "other")
    assert driverforge(site, "build", "--sign-certificate", key.file, "--sign-key", other.key) == 65
    assert "the signature was not made by the certificate's key" in capsys.readouterr().err
    assert not (site / "cache").exists()


def test_an_expired_certificate_is_refused_before_anything_is_built(
    site: Path, key: SigningKey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.pem"
    request = tmp_path / "request"
    run("openssl", "req", "-new", "-key", key.key, "-subj", "/CN=Old modules", "-out", request)
    run("openssl", "x509", "-req", "-in", request, "-signkey", key.key, "-days", "-1", "-out", old)
    assert driverforge(site, "build", "--sign-certificate", old, "--sign-key", key.key) == 65
    assert "the certificate Old modules" in capsys.readouterr().err
    assert not (site / "cache").exists()


def test_what_the_command_line_says_counts_before_the_environment(
    site: Path, key: SigningKey, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIVERFORGE_SIGN_KEY", str(site / "none"))
    monkeypatch.setenv("DRIVERFORGE_SIGN_CERTIFICATE", str(key.file))
    assert driverforge(site, "build", "--unsigned-to", site / "away") == 0
    assert driverforge(site, "build", "--sign-command", "cat") == 0
    monkeypatch.setenv("DRIVERFORGE_SIGN_COMMAND", "no-such-kms")
    assert driverforge(site, "build", "--sign-key", key.key) == 0
    assert driverforge(site, "build") == 64
    assert "--sign-key and --sign-command: choose one" in capsys.readouterr().err
    monkeypatch.delenv("DRIVERFORGE_SIGN_KEY")
    monkeypatch.setenv("DRIVERFORGE_SIGN_COMMAND", "cat")
    assert driverforge(site, "build") == 0


def test_a_jit_image_has_nothing_to_sign(
    site: Path, key: SigningKey, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--matrix", site / "site.yaml", "--lock", site / "site.lock.json", "--engine", "nop"]
    words = ["build", *given, "--select", "*-jit", "--cache-dir", site / "cache"]
    words += ["--sign-certificate", key.file, "--unsigned-to", site / "away"]
    assert cli.run([*map(str, words)]) == 64
    assert "none of these images has modules that are signed here" in capsys.readouterr().err


def test_all_commands_know_an_image_by_its_certificate(
    site: Path,
    key: SigningKey,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tag(*words: str | Path) -> str:
        assert driverforge(site, "push", "--plan", "--json", "--registry", "r/x", *words) == 0
        return str(json.loads(capsys.readouterr().out)["tags"][CELL][0])

    other = signing_key(tmp_path / "other")
    tags = {tag(), tag("--sign-certificate", key.file), tag("--sign-certificate", other.file)}
    assert len(tags) == 3
    monkeypatch.setenv("DRIVERFORGE_SIGN_CERTIFICATE", str(key.file))
    assert tag() == tag("--sign-certificate", key.file)
    assert driverforge(site, "generate", "--output", site / "out") == 0
    assert (site / f"out/{CELL}/certificate.der").read_bytes() == key.certificate.der
