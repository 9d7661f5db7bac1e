"""Models of what containerd, CRI-O and docker make of their files, for the pure tests.

With them come strategies for configuration files of any shape.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import tomllib
from hypothesis import strategies as st

from driverforge_toolkit.runtime.backends import containerd, crio, docker, imports
from driverforge_toolkit.runtime.backends.containerd_config import (
    CRI_V1,
    CRI_V2,
    CRI_V3,
    MERGES_KEYS,
    cri_section,
)
from driverforge_toolkit.runtime.formats import jsonedit
from driverforge_toolkit.runtime.formats.configfile import ConfigFile, Contents, json_file, toml_file
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.formats.values import (
    REMOVED,
    Change,
    KeyPath,
    lookup,
    merged,
    put,
    same,
    take,
)
from driverforge_toolkit.runtime.model import (
    RUNC,
    Backend,
    DaemonPath,
    NodePath,
    RuntimeDaemon,
    RuntimeKind,
    Supervisor,
    WantedHandlers,
)

Files = dict[str, bytes | None]
ROOTS: dict[str, tuple[str, str]] = {
    "containerd": ("/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"),
    "crio": ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/99-nvidia.toml"),
    "docker": ("/etc/docker/daemon.json", ""),
}
BUILT_IN = {"runtime_type": RUNC, "runtime_engine": "", "options": {"BinaryName": "", "SystemdCgroup": False}}


def daemon(
    kind: RuntimeKind = "containerd", version: tuple[int, ...] = (1, 7, 24), drop_in: str = ""
) -> RuntimeDaemon:
    config, usual = ROOTS[kind]
    return RuntimeDaemon(
        kind=kind,
        pid=7,
        binary=DaemonPath("/usr/bin/x"),
        version=version,
        socket=NodePath(""),
        config=NodePath(config),
        drop_in=NodePath(drop_in or usual),
        supervisor=Supervisor(kind="systemd", unit="x.service"),
    )


def as_files(files: Mapping[str, bytes | None]) -> dict[str, ConfigFile]:
    """Files that a test wrote down as bytes."""
    kinds = {path: json_file if path.endswith(".json") else toml_file for path in files}
    return {path: kinds[path](path, data) for path, data in files.items()}


def json_with(data: bytes, path: KeyPath, value: object) -> bytes:
    """A JSON document with another value for a key."""
    return json_file("", data).edited([Change(path=path, value=value)]).data or b""


def toml_with(data: bytes, path: KeyPath, value: object) -> bytes:
    """A TOML document with another value for a key."""
    return toml_file("", data).edited([Change(path=path, value=value)]).data or b""


def as_bytes(files: Contents) -> Files:
    return {path: file.data for path, file in files.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoneBytes:
    """An `Undone` whose file is its bytes."""

    data: bytes | None
    kept: tuple[KeyPath, ...] = ()


@dataclass(frozen=True, slots=True)
class OnBytes:
    """A backend for tests that write files down as bytes: it takes these, and gives them."""

    edit: Backend

    def placed(self, where: RuntimeDaemon, files: Mapping[str, bytes | None]) -> RuntimeDaemon:
        return self.edit.placed(where, as_files(files))

    def patched(
        self,
        where: RuntimeDaemon,
        files: Mapping[str, bytes | None],
        effective: Mapping[str, object],
        wanted: WantedHandlers,
    ) -> Files:
        given = as_files(files)
        made = self.edit.patched(where, given, effective, wanted)
        for file in (*given.values(), *made.values()):
            _check_values(file)
        return as_bytes(made)

    def stripped(
        self, where: RuntimeDaemon, files: Mapping[str, bytes | None], names: tuple[str, ...]
    ) -> Files:
        return as_bytes(self.edit.stripped(where, as_files(files), names))

    def undone(
        self, path: str, *, original: bytes | None, written: bytes | None, current: bytes | None
    ) -> UndoneBytes:
        [file] = as_files({path: current}).values()
        undone = self.edit.undone(file, original=original, written=written)
        return UndoneBytes(data=undone.file.data, kept=undone.kept)


def _check_values(file: ConfigFile) -> None:
    """What is handed on with a file is what its bytes say: nobody has changed it."""
    if "values" in vars(file):
        assert same(file.values, file.format.parse(file.data or b"", file.path)), file.path


CONTAINERD, CRIO, DOCKER = OnBytes(containerd), OnBytes(crio), OnBytes(docker)


def effective(where: RuntimeDaemon, files: Mapping[str, bytes | None]) -> dict[str, object]:
    """What the daemon makes of the files."""
    if where.kind == "docker":
        return jsonedit.parse(files.get(where.config) or b"", where.config)
    if where.kind == "crio":
        whole: dict[str, object] = {
            "crio": {"runtime": {"runtimes": {"runc": {"runtime_path": "/usr/bin/runc"}}}}
        }
        for path in (where.config, where.drop_in):
            document = parse(files.get(path) or b"", path)
            runtimes = lookup(document, ("crio", "runtime", "runtimes"))
            # a runtime is one key
            for name in runtimes if isinstance(runtimes, dict) else ():
                take(whole, ("crio", "runtime", "runtimes", name))
            whole = merged(whole, document)
        return whole
    return _containerd(where, files)


def _containerd(where: RuntimeDaemon, files: Mapping[str, bytes | None]) -> dict[str, object]:
    """The CRI section by containerd's version.

    1.x takes the last section whole, with its table of runtimes in place of the built-in one. 2.1 merges key
    by key.
    """
    key = CRI_V3 if where.version >= (2,) else CRI_V2
    built_in = {
        "enable_cdi": False,
        "containerd": {"default_runtime_name": "runc", "runtimes": {"runc": copy.deepcopy(BUILT_IN)}},
    }
    whole: dict[str, object] = {}
    sections: list[Mapping[str, object]] = []
    there = {path: data for path, data in files.items() if data is not None}
    documents = imports.read_documents(where.config, as_files(there))
    for each in documents.values():
        document = copy.deepcopy(dict(each))
        found = [lookup(document, name) for name in _sections(where, document)]
        tables = [each for each in found if isinstance(each, dict)]
        if tables:
            sections.append(functools.reduce(_migrated, tables))
        for name in _sections(where, document):
            take(document, name)
        whole = merged(whole, document)
    section = dict(built_in)
    for each in sections if where.version >= MERGES_KEYS else sections[-1:]:
        if (
            where.version < MERGES_KEYS
            and isinstance(each.get("containerd"), dict)
            and lookup(each, ("containerd", "runtimes")) is not REMOVED
        ):
            take(section, ("containerd", "runtimes"))
        section = merged(copy.deepcopy(section), each)
    put(whole, key, section)
    version = 4 if where.version >= (2, 3) else 3 if where.version >= (2,) else 2
    return {**whole, "version": version, "imports": list(documents)}


def _sections(where: RuntimeDaemon, document: Mapping[str, object]) -> tuple[tuple[str, ...], ...]:
    """The places of the CRI section in a document, as this daemon knows them.

    1.x has another one for a file of version 1. 2.x takes the section of version 3 in a file of version 2 too
    (AKS has such files), and 2.3 and later that of version 2 in a file of version 3.
    """
    if where.version < (2,):
        first = document.get("version", 1) == 1 and lookup(document, CRI_V1) is not REMOVED
        return (CRI_V1,) if first else (CRI_V2,)
    migrated = document.get("version") == 3 and where.version >= (2, 3)
    return (CRI_V3,) if cri_section(document) == CRI_V3 and not migrated else (CRI_V2, CRI_V3)


def _migrated(old: Mapping[str, object], new: Mapping[str, object]) -> dict[str, object]:
    """Two sections of one document. A key that the newer one has, as `containerd.runtimes`, is its alone."""
    inner = [table.get("containerd", {}) for table in (old, new)]
    both = {key: value for table in inner if isinstance(table, dict) for key, value in table.items()}
    return {**old, **new, **({"containerd": both} if both else {})}


# -- documents of any shape ----------------------------------------------------------------------

words = st.text("abcdefgh_-", min_size=1, max_size=6)
scalars = st.one_of(
    st.booleans(),
    st.integers(-5, 2**60),
    st.floats(width=32),
    st.text("xyz \"'#=[]{}é\\\n\t", max_size=6),
    st.datetimes(),
)
values = st.one_of(
    scalars,
    st.lists(st.integers(0, 3), max_size=3),
    st.lists(st.fixed_dictionaries({"k": scalars}), min_size=1, max_size=2),
)
tables = st.dictionaries(words, values, max_size=3)
runtimes = st.fixed_dictionaries(
    {},
    optional={
        "runc": st.fixed_dictionaries(
            {"runtime_type": st.just(RUNC)}, optional={"options": tables, "pod_annotations": st.just(["a/*"])}
        ),
        "kata": st.fixed_dictionaries({"runtime_type": st.just("io.containerd.kata.v2")}),
        "nvidia": st.fixed_dictionaries({"runtime_type": st.just(RUNC), "options": tables}),
    },
)
containerds = st.fixed_dictionaries(
    {},
    optional={
        "snapshotter": st.just("overlayfs"),
        "default_runtime_name": st.sampled_from(["runc", "kata", "nvidia"]),
        "runtimes": runtimes,
    },
)
sections = st.fixed_dictionaries(
    {}, optional={"sandbox_image": st.text("ab/:", max_size=8), "cni": tables, "containerd": containerds}
)


def configs(version: int) -> st.SearchStrategy[dict[str, object]]:
    """Values of a root file of containerd."""
    plugins = {cri_section({"version": version})[1]: sections, "io.containerd.internal.v1.opt": tables}
    return st.fixed_dictionaries(
        {"version": st.just(version)},
        optional={
            "oom_score": st.integers(-9, 9),
            "grpc": tables,
            "proxy_plugins": st.dictionaries(words, tables, max_size=2),
            "imports": st.lists(
                st.sampled_from(["/etc/containerd/conf.d/*.toml", "other.toml", "/x/*.toml"]),
                max_size=2,
                unique=True,
            ),
            "plugins": st.fixed_dictionaries({}, optional=plugins),
        },
    )


crio_configs = st.fixed_dictionaries(
    {},
    optional={
        "crio": st.fixed_dictionaries(
            {},
            optional={
                "image": tables,
                "runtime": st.fixed_dictionaries(
                    {},
                    optional={
                        "default_runtime": st.sampled_from(["runc", "crun", "nvidia"]),
                        "selinux": st.booleans(),
                        "runtimes": st.dictionaries(
                            st.sampled_from(["runc", "crun", "kata", "nvidia"]), tables, max_size=3
                        ),
                    },
                ),
            },
        ),
    },
)


@st.composite
def toml(draw: st.DrawFn, config: Mapping[str, object]) -> bytes:
    """The values as a file, in any of the shapes that TOML allows.

    It has headers, dotted keys, inline tables, comments, blank lines, indentation, either line end, and its
    sections in any order.
    """
    head: list[str] = []
    bodies: list[list[str]] = []
    _table(draw, config, "", head, bodies)
    lines = [*head, *(line for body in draw(st.permutations(bodies)) for line in body)]
    shown: list[str] = []
    for line in lines:
        if draw(st.integers(0, 5)) == 0:
            shown.append(draw(st.sampled_from(["", "# a comment", "   # [not.a.table]", "#x = 1"])))
        shown.append(
            draw(st.sampled_from(["", "  ", "\t"])) + line + draw(st.sampled_from(["", "", "", " # why"]))
        )
    end = draw(st.sampled_from(["\n", "\r\n"]))
    text = end.join(shown) + draw(st.sampled_from(["", end, end + end]))
    assert tomllib.loads(text).keys() == config.keys()
    return text.encode()


def _table(
    draw: st.DrawFn, table: Mapping[str, object], name: str, here: list[str], bodies: list[list[str]]
) -> None:
    """Write a table: its own lines to `here`, tables with headers to `bodies`."""
    for key, value in table.items():
        quoted = _key(key)
        if not isinstance(value, Mapping):
            here.append(f"{quoted} = {_value(value)}")
            continue
        style = draw(st.sampled_from(["header", "header", "header", "inline", "dotted"]))
        whole = f"{name}.{quoted}" if name else quoted
        if style == "inline" or not value:
            here.append(f"{quoted} = {_value(value)}")
        elif style == "dotted":
            here.extend(f"{line}" for line in _dotted(value, quoted))
        else:
            body: list[str] = []
            inner: list[list[str]] = []
            _table(draw, value, whole, body, inner)
            if body or not inner or draw(st.booleans()):
                bodies.append([f"[{whole}]", *body])
            bodies.extend(inner)


def _dotted(table: Mapping[str, object], above: str) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _dotted(value, f"{above}.{_key(key)}")
        else:
            yield f"{above}.{_key(key)} = {_value(value)}"


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() else f'"{key}"'


def _value(value: object) -> str:
    import tomlrt

    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return tomlrt.dumps({"k": value}).removeprefix("k = ").rstrip("\n")
