"""The command line of driverctl build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driverctl.cli import run
from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import InputError, Unsupported, UsageError
from driverforge_core.image import FACTS_PATH, ImageFacts
from driverforge_core.osid import OsId
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.real import real_host
from driverforge_host.ports import Host

RELEASE = "6.1.0-50-cloud-amd64"


@pytest.fixture
def image(tmp_path: Path) -> Host:
    """The root of a JIT image with the sources of both module types."""
    sources = {
        kind: f"/usr/src/nvidia-535.261.03/{folder}"
        for kind, folder in (("open", "kernel-open"), ("proprietary", "kernel"))
    }
    facts = ImageFacts(
        os=OsId.parse("debian12"),
        arch="amd64",
        driver=DriverVersion("535.261.03"),
        payload="packages",
        module_types=("open", "proprietary"),
        variant="jit",
        kernels=(),
        sources=sources,
        firmware="",
    )
    for name, text in ((FACTS_PATH, facts.to_json()), ("/etc/os-release", 'ID=debian\nVERSION_ID="12"\n')):
        path = Path(f"{tmp_path}{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return replace(real_host(), files=RootedFiles("/", beneath=str(tmp_path)), environ={})


def test_the_plan_names_every_step_and_does_nothing(
    image: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert (
        run(
            ["build", "--kernel", RELEASE, "--plan", "-j", "3", "--headers", "debs", "--output", "/out"],
            lambda: image,
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        f"unpack the packages of {Path.cwd()}/debs in /var/tmp/driverforge/535.261.03-{RELEASE}"
    )
    assert sum("make -j3" in line for line in lines) == 2
    assert f"publish /out/opt/lib/modules/{RELEASE}/open, /out/opt/lib/modules/{RELEASE}/proprietary" in lines
    assert sorted(tmp_path.rglob("*")) == before


def test_one_module_type_can_be_asked_for(image: Host, capsys: pytest.CaptureFixture[str]) -> None:
    run(["build", "--kernel", RELEASE, "--plan", "--module-type", "open"], lambda: image)
    assert "proprietary" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "environ", "kind"),
    [
        (["--kernel", RELEASE, "-j", "-1"], {}, UsageError),
        (["--kernel", "6.1/../x"], {}, InputError),
        (["--kernel", RELEASE], {"SOURCE_DATE_EPOCH": "today"}, InputError),
        (["--kernel", RELEASE], {"GPU_DIRECT_RDMA_ENABLED": "yes"}, InputError),
        (["--kernel", RELEASE, "--image", "/nowhere.json"], {}, Unsupported),
    ],
)
def test_what_cannot_be_is_refused(
    image: Host, arguments: list[str], environ: dict[str, str], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        run(["build", "--plan", *arguments], lambda: replace(image, environ=environ))
