"""CRI-O's rules for its configuration, written anew after its source: no line of it is here.

A stand-in, for no package registry that tests can reach has CRI-O. What it follows, in cri-o/cri-o:

* files: `pkg/config/config.go`, UpdateFromFile, UpdateFromPath; `internal/criocli`, mergeConfig
* checks: the same, RuntimeConfig.Validate, ValidateDefaultRuntime, ValidateRuntimes, RuntimeHandler.Validate
* what it prints: `pkg/config/template.go`, crioTemplateString
* what a SIGHUP changes: `pkg/config/reload.go`, ReloadRuntimes

Only the keys that a toolkit may touch have a meaning here, and a few others to be left alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tomllib

Version = tuple[int, ...]
Runtime = dict[str, object]

ROOT = Path("/etc/crio/crio.conf")
FOLDER = Path("/etc/crio/crio.conf.d")
TYPES = ("", "oci", "vm", "pod")
SPEAKS_V1 = (1, 21)  # of the runtime interface (cloudnativelabs/kube-router#1470)
IGNORES_BROKEN = (1, 21)  # runtimes but the default one (cri-o/cri-o#4631)
PRINTS_DIFFERENCES = (1, 21)  # cri-o/cri-o#4506
PRINTS_COMMENTS = (1, 24)  # cri-o/cri-o#5007
RELOADS_RUNTIMES = (1, 26)  # cri-o/cri-o#6056; 1.25.1 (#6270)
LISTS_HANDLERS = (1, 30)  # cri-o/cri-o#7765
CRUN_FIRST = (1, 31)  # release notes of 1.31: crun is the default


class Refusal(Exception):
    """CRI-O ends with this message."""


@dataclass
class CrioConfig:
    """The configuration as CRI-O has it in memory. `tables` are those that mean nothing here."""

    version: Version
    default: str
    runtimes: dict[str, Runtime]
    root: str = "/var/lib/containers/storage"
    listen: str = "/var/run/crio/crio.sock"
    tables: dict[str, dict[str, object]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def built_in(cls, version: Version) -> CrioConfig:
        name = "crun" if version >= CRUN_FIRST else "runc"
        runtime: Runtime = {"runtime_path": "", "runtime_type": "oci", "runtime_root": f"/run/{name}"}
        if version >= (1, 25):
            runtime |= {"monitor_path": "", "monitor_cgroup": "system.slice"}
        return cls(version=version, default=name, runtimes={name: runtime})

    @classmethod
    def loaded(cls, version: Version, root: Path | None, folder: Path) -> CrioConfig:
        """The built-in one with the root file (None: that of its own) and the files below `folder`."""
        config = cls.built_in(version)
        if root is not None or ROOT.exists():
            config.update(root or ROOT)
        for path in _walk(folder):
            config.update(path)
        return config

    def update(self, path: Path) -> None:
        """One more file. Its keys replace those from before, a runtime's table being one key."""
        try:
            document = tomllib.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise Refusal(f"unable to decode configuration {path}: {error}") from error
        crio = _table(document, "crio", path)
        runtime = _table(crio, "runtime", path)
        self.default = _text(runtime, "default_runtime", self.default, path)
        for name, table in _table(runtime, "runtimes", path).items():
            if not isinstance(table, dict):
                raise Refusal(f"unable to decode configuration {path}: runtimes.{name} is no table")
            for key in ("runtime_path", "runtime_type", "runtime_root", "monitor_path", "monitor_cgroup"):
                _text(table, key, "", path)
            self.runtimes[name] = dict(table)
        self.root = _text(crio, "root", self.root, path)
        self.listen = _text(_table(crio, "api", path), "listen", self.listen, path)
        for name, table in {"crio": crio, **{f"crio.{key}": table for key, table in crio.items()}}.items():
            if isinstance(table, dict):
                known = ("default_runtime", "runtimes", "root", "listen")
                plain = {k: v for k, v in table.items() if k not in known and not isinstance(v, dict)}
                self.tables.setdefault(name, {}).update(plain)

    def override(self, options: Mapping[str, Sequence[str]]) -> None:
        """What the command line says, which wins over files."""
        self.default = (options.get("default-runtime") or [self.default])[-1]
        self.listen = (options.get("listen") or [self.listen])[-1]
        for text in options.get("runtimes", ()):
            name, path, root, *_ = text.split(":")
            self.runtimes[name] = {"runtime_path": path, "runtime_root": root, "runtime_type": "oci"}

    def validate(self, *, on_execution: bool) -> None:
        """Refuse what CRI-O refuses. `crio config` does not look at the runtimes, a start does."""
        if self.default and self.default not in self.runtimes:
            raise Refusal(
                f'validating runtime config: default_runtime set to "{self.default}", but no runtime entry '
                f"table [crio.runtime.runtimes.{self.default}] was found"
            )
        if not self.default:
            self.default = CrioConfig.built_in(self.version).default
            self.runtimes.setdefault(self.default, CrioConfig.built_in(self.version).runtimes[self.default])
        if on_execution:
            self._validate_runtimes()

    def _validate_runtimes(self) -> None:
        for name, runtime in list(self.runtimes.items()):
            wrong = _wrong_runtime(name, runtime)
            if wrong and (name == self.default or self.version < IGNORES_BROKEN):
                raise Refusal(f"validating runtime config: runtime validation: {wrong}")
            if wrong:
                self.warnings.append(f'Runtime handler "{name}" is being ignored due to: {wrong}')
                del self.runtimes[name]
            elif not runtime.get("runtime_path"):
                runtime["runtime_path"] = shutil.which(name) or ""

    def reloaded(self, newer: CrioConfig) -> None:
        """What a SIGHUP takes over; nothing where it refuses."""
        if self.version < RELOADS_RUNTIMES and self.version[:3] < (1, 25, 1):
            return
        newer.validate(on_execution=True)
        self.default, self.runtimes = newer.default, newer.runtimes

    def printed(self, *, everything: bool = False) -> str:
        """What `crio config` prints: what is as built in is a comment, or left out, or there, by version."""
        known = CrioConfig.built_in(self.version)
        lines = [*_section("crio", [("root", self.root)], self._style(everything, self.root == known.root))]
        lines += [f"{key} = {_value(value)}" for key, value in self.tables.get("crio", {}).items()]
        lines += ["", "[crio.api]", *_section("", [("listen", self.listen)], self._style(everything, False))]
        lines += ["", "[crio.runtime]"]
        lines += [f"{key} = {_value(value)}" for key, value in self.tables.get("crio.runtime", {}).items()]
        same = self._style(everything, self.default == known.default)
        lines += _section("", [("default_runtime", self.default)], same)
        same = self._style(everything, self.runtimes == known.runtimes)
        for name, runtime in sorted(self.runtimes.items()):
            lines += _section(f"crio.runtime.runtimes.{name}", list(runtime.items()), same)
        for name, table in self.tables.items():
            if table and name not in ("crio", "crio.runtime", "crio.api"):
                lines += ["", *_section(name, list(table.items()), "")]
        return "\n".join(lines) + "\n"

    def _style(self, everything: bool, as_built_in: bool) -> str | None:
        """What stands before a line: '# ' for a comment, '' for nothing; None where the line is left out."""
        if everything or not as_built_in or self.version < PRINTS_DIFFERENCES:
            return ""
        return "# " if self.version >= PRINTS_COMMENTS else None


def _section(name: str, pairs: Sequence[tuple[str, object]], before: str | None) -> Iterator[str]:
    if before is None:
        return
    if name:
        # the table itself is no comment where only its values are
        yield f"{before if '.' in name else ''}[{name}]"
    for key, value in pairs:
        yield f"{before}{key} = {_value(value)}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return str(value) if isinstance(value, int | float) else f'"{value}"'


def _walk(folder: Path) -> Iterator[Path]:
    """All files below a folder, whatever they are called, sorted in each folder."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        else:
            yield path


def _table(document: Mapping[str, object], name: str, path: Path) -> dict[str, object]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise Refusal(f"unable to decode configuration {path}: {name} is no table")
    return found


def _text(table: Mapping[str, object], name: str, otherwise: str, path: Path) -> str:
    found = table.get(name, otherwise)
    if not isinstance(found, str):
        raise Refusal(f"unable to decode configuration {path}: {name} is no text")
    return found


def _wrong_runtime(name: str, runtime: Runtime) -> str:
    """Why CRI-O does not take a runtime; '' where it does."""
    kind, path = str(runtime.get("runtime_type", "")), str(runtime.get("runtime_path", ""))
    if kind not in TYPES:
        return f'invalid `runtime_type` "{kind}" for runtime "{name}"'
    if not path and shutil.which(name) is None:
        return f'"{name}" not found in $PATH'
    if path and not Path(path).exists():
        return f"invalid runtime_path for runtime '{name}': stat {path}: no such file or directory"
    if runtime.get("runtime_config_path") and kind != "vm":
        return "runtime_config_path can only be used with the 'vm' runtime type"
    monitor = str(runtime.get("monitor_path", ""))
    if kind in ("", "oci") and monitor and not Path(monitor).exists():
        return f"invalid conmon path: stat {monitor}: no such file or directory"
    return ""
