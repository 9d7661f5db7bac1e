"""What both programs say of a command line or an installation that cannot work."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from driverctl.cli import run
from driverforge_core.errors import UsageError
from driverforge_host.adapters.real import real_host


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (("runtime", "plan", "--sokcet", "x"), "driverctl runtime"),
        (("cdi", "list", "--spec-dri", "x"), "driverctl cdi list"),
        (("devices", "links", "--plan"), "driverctl devices"),
        (("doctor", "here"), "driverctl doctor"),
    ],
)
def test_an_unknown_option_is_told_by_the_command_that_lacks_it(words: tuple[str, ...], program: str) -> None:
    with pytest.raises(UsageError) as caught:
        run([*words, "--nonsense"], real_host)
    assert caught.value.brief.startswith(f"{program}: unrecognized arguments: ")
    assert caught.value.brief.endswith("--nonsense")
    assert caught.value.details[0].startswith(f"usage: {program} ")
    assert caught.value.resolution == f"{program} --help"


def test_an_installation_without_the_builder_says_what_to_install() -> None:
    hide = "import sys; sys.modules['click'] = None; sys.argv = ['driverforge']"
    script = f"{hide}; from driverforge_build.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert done.stderr == (
        "error: this installation has no builder\n  | Python has no click\n  next: "
        "pip install '.[build]' in a checkout of driverforge\n"
    )


def test_an_installation_without_the_toolkits_packages_says_what_to_install() -> None:
    hide = "import sys; sys.modules['h2'] = None; sys.argv = ['driverctl', 'runtime', 'plan']"
    script = f"{hide}; from driverctl.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert done.stderr == (
        "error: driverctl runtime lacks Python packages in this installation\n"
        f"  | Python {sys.version.split()[0]} has no h2\n"
        "  next: pip install '.[toolkit]' in a checkout of driverforge, with Python 3.11 or newer\n"
    )


def test_help_names_the_packages_that_the_toolkits_half_lacks() -> None:
    hide = "import sys; sys.modules['h2'] = sys.modules['yaml'] = None; sys.argv = ['driverctl', '--help']"
    script = f"{hide}; from driverctl.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    said = " ".join(done.stdout.split())
    assert "or revert that (not here: Python has no h2, yaml)" in said
    assert "toolkit's image" not in said


@pytest.mark.parametrize(
    ("program", "words", "status", "brief"),
    [
        ("driverctl", ("runtime", "plan", "--json", "--runtime", "rkt"), 64, "rkt"),
        ("driverctl", ("status", "--json", "--nonsense"), 64, "unrecognized arguments"),
        ("nvidia-driver", ("status", "--json", "--nonsense"), 1, "unrecognized arguments"),
    ],
)
def test_json_is_an_object_on_failure_too(
    program: str, words: tuple[str, ...], status: int, brief: str
) -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}; sys.argv[0] = {program!r}; "
    script = f"{code}from driverctl.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert done.returncode == status
    assert document["error"]["exit_status"] == status
    assert brief in document["error"]["brief"]
    assert set(document["error"]) == {"brief", "details", "resolution", "exit_status"}
    assert done.stderr.startswith("error: ")
