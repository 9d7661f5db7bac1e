"""`hack/bench runtime` where nvidia-ctk cannot be had: ours is measured, theirs comes from a record, and both
say so.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.benchrun import smallest
from support.process import missing

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root"),
    pytest.mark.skipif(
        bool(missing("apt-get", "dpkg-deb", "unshare", "setsid")),
        reason="containerd is unpacked from Debian's package",
    ),
]


@pytest.fixture
def without_go(tmp_path: Path) -> str:
    """A PATH with every program of this machine's but go."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in os.environ["PATH"].split(":"):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if program.name != "go" and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


def test_recorded_figures_are_compared_with_and_named(tmp_path: Path, without_go: str) -> None:
    outcome = smallest("runtime", tmp_path, PATH=without_go)
    assert any(
        "nvidia-ctk cannot be had here, its figures are those of a record" in one for one in outcome["notes"]
    )
    names = [measure["what"].partition(",")[0] for measure in outcome["measures"]]
    assert names == ["plan", "apply", "apply against its libraries"]
    own = [measure for measure in outcome["measures"] if "its libraries" in measure["what"]]
    assert {measure["reference"]["recorded"] for measure in own} == {False}
    for measure in (measure for measure in outcome["measures"] if measure not in own):
        assert (measure["ours"]["recorded"], measure["reference"]["recorded"]) == (False, True)
        assert len(measure["ours"]["samples"]) == 1
        assert len(measure["reference"]["samples"]) > 1
