"""Root configurations that projects publish: what they write onto nodes, or tell people to write.

Their values are in tests/cases/published, without comments; index.json says where each comes from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "cases" / "published"
ETC = "/etc/containerd"
# what containerd looks for at its start (1.x: else its CRI plugin does not load); `ctr oci spec` prints more
BASE_SPEC = '{"ociVersion": "1.0.2", "process": {"cwd": "/"}, "root": {"path": "rootfs"}, "linux": {}}\n'
_BASE_SPECS = re.compile(r"""base_runtime_spec\s*=\s*["'](/[^"']+)["']""")
_PATH = re.compile(r"""(?<=["':])/(?=[a-z]+/)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A root file, and what lies beside it, by its path on the node.

    `default` stands for the daemon's own default configuration, with runc's systemd cgroup driver switched
    on. `refused` is a piece of the sentence with which a change must be refused, '' where it must work.
    """

    id: str
    source: str  # the project, the file in it, and its version
    root: str
    files: Mapping[str, str]
    daemons: tuple[str, ...]
    default: bool = False
    refused: str = ""

    @property
    def kind(self) -> str:
        return "docker" if self.root.startswith("{") else "containerd"

    @property
    def base_specs(self) -> tuple[str, ...]:
        """The files that it names as base_runtime_spec."""
        return tuple(sorted(set(_BASE_SPECS.findall(self.root))))


def _text(name: str) -> str:
    toml, own = FOLDER / f"{name}.toml", FOLDER / f"{name}.json"
    return toml.read_text() if toml.exists() else own.read_text()


def published() -> tuple[Published, ...]:
    return tuple(
        Published(
            id=row["id"],
            source=f"{row['project']}: {row['path']}, {row['version']}",
            root="" if row.get("default") else _text(row["id"]),
            files={path: (FOLDER / name).read_text() for path, name in row.get("files", {}).items()},
            daemons=tuple(row["daemons"]),
            default=row.get("default", False),
            refused=row.get("refused", ""),
        )
        for row in json.loads((FOLDER / "index.json").read_text())
    )


def systemd_cgroup(default: str) -> str:
    """A daemon's own default configuration, with the line that kubeadm's users are told to change."""
    return default.replace("SystemdCgroup = false", "SystemdCgroup = true")


def placed(text: str, etc: str, elsewhere: str) -> str:
    """A file with its paths under other folders: /etc/containerd is `etc`, all else below `elsewhere`."""
    return _PATH.sub(f"{elsewhere}/", text).replace(f"{elsewhere}{ETC}", etc)
