"""The row for SL Micro of docs/matrix.md, from repositories that stand in for a site's, to its images."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.matrix.load import parse_matrix
from support.process import missing
from support.samples import everysystem
from support.samples.aptrepo import SigningKey
from support.samples.nvidiasite import data_centre
from support.samples.runfile import write_runfile

PROGRAMS = ("createrepo_c", "rpmbuild", "gpg", "gpgv")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)
PAGE = Path(__file__).parents[2] / "docs/matrix.md"
SYSTEM, DRIVER = "sl-micro6.2", "580.178.04"


def shown_row() -> str:
    """The example of the page, as a site's file."""
    head, narrower = "extends: builtin\n", "keep: {systems: [sles16.0], branches: ['580']}\n"
    found = re.search(rf"```yaml\n{head}(\nsystems:\n  - id: {SYSTEM} .*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return f"{head}{narrower}{found[1]}"


def test_a_sites_own_sl_micro_is_locked_planned_and_rendered(
    tmp_path: Path, key: SigningKey, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.yaml").write_text(shown_row())
    matrix = parse_matrix(shown_row().encode(), name="site.yaml")
    published = everysystem.publish(matrix, tmp_path / "repositories", key)
    for machine in ("x86_64", "aarch64"):
        write_runfile(tmp_path / "nvidia" / data_centre(DRIVER, machine), DRIVER, machine)

    def run(*words: str) -> str:
        given = ["--matrix", str(tmp_path / "site.yaml"), "--lock", str(tmp_path / "l.json")]
        status = cli.run([*words, *given, "--select", f"{SYSTEM}-*"])
        told = capsys.readouterr()
        assert status == 0, told.out + told.err
        return told.out

    base = ("--base", f"{SYSTEM}=site/base@sha256:{'0' * 64}")
    sources = (*published.words(subscribed=True), "--mirror", f"nvidia={(tmp_path / 'nvidia').as_uri()}")
    cache = ("--keyring", str(key.keyring), "--cache-dir", str(tmp_path / "cache"))
    run("lock", *base, *sources, *cache, "--trust-first-use")
    locked = json.loads((tmp_path / "l.json").read_text())["targets"]
    assert set(locked) == {f"{SYSTEM}-amd64", f"{SYSTEM}-arm64"}
    assert list(locked[f"{SYSTEM}-amd64"]["kernels"]) == ["6.12.0-160000.5-default"]
    planned = json.loads(run("plan", *base, "--json"))["cells"]
    assert {cell["cell"]: cell["verdict"] for cell in planned} == {
        f"{SYSTEM}-{arch}-{DRIVER}-jit": "build" for arch in ("amd64", "arm64")
    }
    run("generate", *base, "--output", str(tmp_path / "images"))
    bake = json.loads((tmp_path / "images/docker-bake.json").read_text())
    tags = [tag for target in bake["target"].values() for tag in target.get("tags", [])]
    assert tags
    assert all(f"{DRIVER}-{SYSTEM}-r" in tag for tag in tags)
