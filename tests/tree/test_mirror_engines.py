"""`mirror copy --engine`: a program of others copies; what it says counts only if the mirror has it."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driverforge_oci.reference import Reference
from support.fakes.mockpath import MockPath
from support.jsonschemas import check_document
from support.machines import registry
from support.process import missing, until
from support.samples.mirrorsite import Site, lock_of
from support.samples.vendorregistry import put_image

VERSION = 'if [ "$1" = --version ]; then echo "skopeo version 1.20.0"; exit; fi\n'


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with registry.serve(tmp_path / "vendor") as vendor, registry.serve(tmp_path / "mirror") as mirror:
        names = [f"{vendor.address}/nvidia/{name}:1" for name in ("driver", "toolkit")]
        for name in names:
            put_image(Reference.parse(name))
        made = Site(home=tmp_path, vendor=vendor.address, mirror=mirror.address)
        made.list_images(names)
        yield made


@pytest.fixture
def skopeo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MockPath:
    """A skopeo that says that it copied, and does nothing."""
    mock = MockPath(tmp_path / "bin")
    mock.add("skopeo", VERSION)
    for name, value in mock.environ().items():
        monkeypatch.setenv(name, value)
    return mock


def to(site: Site, *words: str) -> list[str]:
    return ["--to", f"{site.mirror}/kse", "--engine", "skopeo", *words]


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_what_a_program_only_says_it_copied_has_failed(
    site: Site, skopeo: MockPath, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.copy(*to(site, "--json")) == 1
    document = answer(capsys)
    check_document("mirror-copy", document)
    assert [(one["state"], one["engine"]) for one in document["images"]] == [("failed", "skopeo")] * 2
    assert "is not all there" in document["images"][0]["error"]["brief"]
    copied = [shlex.split(line) for line in skopeo.calls("skopeo") if line.startswith("copy")]
    lock = json.loads((site.home / "mirror.lock.json").read_text())
    sources = {f"docker://{site.vendor}/nvidia/{name}" for name in ("driver", "toolkit")}
    assert {words[-2] for words in copied} == {
        f"{source}@{image['digest']}" for source, image in zip(sorted(sources), lock["images"], strict=True)
    }
    assert all({"--all", "--preserve-digests"} <= set(words) for words in copied)


def test_a_program_is_told_which_side_has_no_tls(site: Site, skopeo: MockPath) -> None:
    """Of 127.1 nobody supposes that it has none, as of 127.0.0.1."""
    vendor, mirror = (one.replace("127.0.0.1", "127.1") for one in (site.vendor, site.mirror))
    for scheme, sides in (("http", ["src", "dest"]), ("https", ["dest"])):
        source = f"{site.vendor}={scheme}://{vendor}"
        assert site.copy("--engine", "skopeo", "--registry", source, "--to", f"http://{mirror}/kse") == 1
        told = shlex.split(skopeo.calls("skopeo")[-1])
        assert [side for side in ("src", "dest") if f"--{side}-tls-verify=false" in told] == sides


def test_what_no_registry_has_is_told_before_and_copied_by_us(
    site: Site, skopeo: MockPath, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"{site.vendor}/nvidia/{name}:1" for name in ("driver", "toolkit")]
    made = lock_of(names[:1], ["linux/amd64", "linux/arm64"])
    whole = lock_of(names[1:])
    (site.home / "mirror.lock.json").write_text(
        json.dumps({**made, "images": [*made["images"], *whole["images"]]})
    )
    assert site.copy(*to(site, "--json")) == 1
    out, err = capsys.readouterr()
    events = [json.loads(line) for line in err.splitlines()]
    assert (events[0]["event"], events[0]["image"]) == ("beyond", names[0])
    states = [(one["image"], one["state"], one["engine"]) for one in json.loads(out)["images"]]
    assert states == [(names[0], "copied", "driverforge"), (names[1], "failed", "skopeo")]


def test_a_failure_says_what_the_program_said_and_passes_where_that_passes(
    site: Site, skopeo: MockPath, capsys: pytest.CaptureFixture[str]
) -> None:
    line = 'time="now" level=fatal msg="pinging \\"vendor\\": i/o timeout"'
    skopeo.add("skopeo", VERSION + f"echo {shlex.quote(line)} >&2; exit 1")
    assert site.copy(*to(site, "--json")) == 75
    error = answer(capsys)["images"][0]["error"]
    assert error["brief"].endswith('kse/nvidia/driver:1: pinging "vendor": i/o timeout')
    assert error["details"][-1] == line


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (None, "install skopeo"),
        ("exit 1", "skopeo does not run"),
        ("echo skopeo version 1.4.0", "1.9 or newer"),
    ],
)
def test_a_program_that_is_not_fit_is_told_before_anything_is_copied(
    site: Site,
    skopeo: MockPath,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str | None,
    told: str,
) -> None:
    if script is None:
        (skopeo.folder / "skopeo").unlink()
        monkeypatch.setenv("PATH", str(skopeo.folder))
    else:
        skopeo.add("skopeo", script)
    assert site.copy(*to(site)) == 69
    assert told in capsys.readouterr().err
    assert not (site.home / "mirror/data").exists()


def test_an_archive_is_our_own(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.copy("--to-archive", str(site.archive), "--engine", "regctl") == 64
    assert site.copy(*to(site), "--from-archive", str(site.archive)) == 64
    assert "archives are driverforge's own" in capsys.readouterr().err


def test_a_program_ends_with_the_copy_that_started_it(site: Site, skopeo: MockPath) -> None:
    skopeo.add("skopeo", VERSION + f"echo $$ >>{site.home}/pids; exec sleep 600")
    pids = site.home / "pids"
    with site.start(*to(site)) as copy:
        until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "both are copied", child=copy)
        copy.send_signal(signal.SIGINT)
        copy.communicate()
    assert copy.returncode == 130
    programs = [Path("/proc", pid) for pid in pids.read_text().split()]
    until(lambda: not any(program.exists() for program in programs), "they are gone")


def test_a_login_reaches_the_program_in_a_file_and_on_no_command_line(
    site: Site, skopeo: MockPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = {"auth": "bWU6c2VjcmV0"}
    (site.home / "config.json").write_text(json.dumps({"auths": {site.vendor: auth}}))
    handed = site.home / "handed"
    handed.mkdir()
    look = 'while [ $# -gt 0 ]; do case $1 in --*-authfile) cat "$2" >"$HANDED/$$-$#";; esac; shift; done'
    monkeypatch.setenv("HANDED", str(handed))
    skopeo.add("skopeo", VERSION + look)
    assert site.copy(*to(site)) == 1
    found = [json.loads(path.read_text()) for path in handed.iterdir()]
    assert sorted(map(len, (one["auths"] for one in found))) == [0, 0, 1, 1]
    assert {"auths": {site.vendor: auth}} in found
    assert not any("bWU6c2VjcmV0" in line or "secret" in line for line in skopeo.calls("skopeo"))
