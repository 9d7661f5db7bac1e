"""Generated files of any shape: what comes out parses, differs only in our keys, and undo gives the same
bytes.

With hack/test --full each of the six tests takes 400 documents and more, 2,400 in all.
"""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from driverforge_toolkit.runtime.backends import containerd, containerd_config, crio, docker
from driverforge_toolkit.runtime.formats import jsonedit
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.formats.values import leaves, same
from driverforge_toolkit.runtime.model import RuntimeDaemon, WantedHandlers
from driverforge_toolkit.runtime.nvidia_handlers import nvidia_handlers
from support.fakes.runtimemodel import (
    CONTAINERD,
    CRIO,
    DOCKER,
    Files,
    configs,
    crio_configs,
    daemon,
    effective,
    json_with,
    toml,
    toml_with,
)

HANDLERS = nvidia_handlers("/t")
PROGRAMS = {handler.name: handler.binary for handler in HANDLERS}
wanteds = st.builds(
    WantedHandlers,
    handlers=st.just(HANDLERS),
    default=st.sampled_from(["", "nvidia", "nvidia-cdi"]),
    release_default=st.booleans(),
    cdi=st.booleans(),
    annotations=st.sampled_from([(), ("cdi.k8s.io/*",)]),
    options=st.sampled_from([{}, {"SystemdCgroup": True}]),
)
versions = st.sampled_from([(1, 6, 20), (1, 7, 24), (2, 1, 9)])
LATER = b"# written by somebody else\n"


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Files, RuntimeDaemon]:
    """A root file, perhaps one that it imports, perhaps one at our path; and the daemon."""
    version = draw(versions)
    schema = draw(st.sampled_from([2, 3])) if version >= (2,) else 2
    where = daemon(version=version)
    files: Files = {
        where.drop_in: None,
        where.config: draw(st.one_of(st.just(None), st.just(b"# nothing\n"), configs(schema).flatmap(toml))),
    }
    root = parse(files[where.config] or b"", where.config)
    imported = list(map(str, root.get("imports", [])))  # type: ignore[call-overload]
    if "other.toml" in imported:
        # its own imports would be read after ours, and are refused before 2.1 (test_runtime_places_taken.py)
        plain = configs(schema).map(lambda config: {**config, "imports": []})
        files["/etc/containerd/other.toml"] = draw(plain.flatmap(toml))
    if draw(st.booleans()):
        files[where.drop_in] = draw(configs(schema).flatmap(toml))
    where = CONTAINERD.placed(where, files)
    return {where.drop_in: None, **files}, where


@given(nodes(), wanteds)
def test_containerd_sees_our_keys_change_and_nothing_else(
    node: tuple[Files, RuntimeDaemon], wanted: WantedHandlers
) -> None:
    files, where = node
    before = effective(where, files)
    after_files = {**files, **CONTAINERD.patched(where, files, before, wanted)}
    after = effective(where, after_files)
    assert {name: containerd.handlers(after).get(name) for name in PROGRAMS} == PROGRAMS
    assert "runc" in containerd.handlers(after) or "runc" not in containerd.handlers(before)
    assert containerd.foreign(before, after, wanted) == {}
    assert not wanted.default or containerd_config.default_of(after) == wanted.default
    root, now = (parse(each.get(where.config) or b"", where.config) for each in (files, after_files))
    assert same(
        {"version": now.get("version"), **root, "imports": now.get("imports")}, {"imports": None, **now}
    )
    lines = set((files[where.config] or b"").splitlines()) - set(
        (after_files[where.config] or b"").splitlines()
    )
    assert all(b"imports" in line for line in lines)


@given(nodes(), wanteds)
def test_containerds_files_come_back_to_the_byte(
    node: tuple[Files, RuntimeDaemon], wanted: WantedHandlers
) -> None:
    files, where = node
    written = CONTAINERD.patched(where, files, effective(where, files), wanted)
    for path, data in written.items():
        undone = CONTAINERD.undone(path, original=files[path], written=data, current=data)
        assert (undone.data, undone.kept) == (files[path], ())


@given(nodes(), wanteds, st.integers(-99, -10))
def test_containerds_files_keep_what_others_changed_since(
    node: tuple[Files, RuntimeDaemon], wanted: WantedHandlers, score: int
) -> None:
    files, where = node
    written = CONTAINERD.patched(where, files, effective(where, files), wanted)
    data = written[where.config] or b""
    theirs = toml_with(data, ("oom_score",), score) + b"\n" + LATER
    undone = CONTAINERD.undone(where.config, original=files[where.config], written=data, current=theirs)
    rest = parse(undone.data or b"", where.config)
    root = parse(files[where.config] or b"", where.config)
    version = containerd_config.newest_version(where.version)
    assert same(dict(leaves({"version": version, **root, "oom_score": score})), dict(leaves(rest)))
    assert (undone.data or b"").endswith(LATER)


@given(
    st.one_of(st.just(None), crio_configs.flatmap(toml)),
    st.one_of(st.just(None), crio_configs.flatmap(toml)),
    wanteds,
)
def test_crio_sees_our_keys_change_and_its_drop_in_comes_back(
    root: bytes | None, drop_in: bytes | None, wanted: WantedHandlers
) -> None:
    where = daemon("crio")
    files: Files = {where.config: root, where.drop_in: drop_in}
    before = effective(where, files)
    written = CRIO.patched(where, files, before, wanted)
    assert set(written) == {where.drop_in}
    after = effective(where, {**files, **written})
    assert {name: crio.handlers(after).get(name) for name in PROGRAMS} == PROGRAMS
    assert crio.foreign(before, after, wanted) == {}
    assert (
        CRIO.undone(
            where.drop_in, original=drop_in, written=written[where.drop_in], current=written[where.drop_in]
        ).data
        == drop_in
    )
    stripped = CRIO.stripped(where, {**files, **written}, tuple(PROGRAMS))[where.drop_in]
    assert not set(PROGRAMS) & set(crio.handlers(parse(stripped or b"", where.drop_in)))


# -- JSON

texts = st.text('ab "\\{}[],:é\n\U0001f600', max_size=6)
json_scalars = st.one_of(
    st.booleans(),
    st.none(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
json_values = st.recursive(
    json_scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
daemons = st.fixed_dictionaries(
    {},
    optional={
        "runtimes": st.dictionaries(
            st.sampled_from(["nvidia", "kata", "x y"]),
            st.dictionaries(texts, json_scalars, max_size=2),
            max_size=2,
        ),
        "default-runtime": st.sampled_from(["runc", "nvidia", "kata"]),
        "features": st.dictionaries(st.sampled_from(["buildkit", "cdi"]), st.booleans(), max_size=2),
        "log-opts": st.dictionaries(texts, texts, max_size=2),
        "x": json_values,
    },
)


@st.composite
def daemon_json(draw: st.DrawFn) -> bytes:
    indent = draw(st.sampled_from([None, 0, 1, 2, 4, "\t"]))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", " : ")]))
    config = draw(daemons)
    names = draw(st.permutations(list(config)))
    shown = {name: config[name] for name in names}
    text = json.dumps(shown, indent=indent, separators=separators, ensure_ascii=draw(st.booleans()))
    text = draw(st.sampled_from(["", "\n", "\ufeff"])) + text + draw(st.sampled_from(["", "\n", "  \n\n"]))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))).encode()


@given(st.one_of(st.just(None), st.just(b""), daemon_json()), wanteds)
def test_dockers_file_changes_in_our_keys_only_and_comes_back(
    data: bytes | None, wanted: WantedHandlers
) -> None:
    where = daemon("docker")
    before = effective(where, {where.config: data})
    written = DOCKER.patched(where, {where.config: data}, before, wanted)[where.config]
    after = effective(where, {where.config: written})
    assert {name: docker.handlers(after).get(name) for name in PROGRAMS} == PROGRAMS
    assert docker.foreign(before, after, wanted) == {}
    assert DOCKER.undone(where.config, original=data, written=written, current=written).data == data
    assert DOCKER.patched(where, {where.config: written}, after, wanted)[where.config] == written


@given(daemon_json(), wanteds, texts, json_values)
def test_dockers_file_keeps_what_others_changed_since(
    data: bytes, wanted: WantedHandlers, key: str, value: object
) -> None:
    where = daemon("docker")
    written = DOCKER.patched(where, {where.config: data}, {}, wanted)[where.config] or b""
    theirs = json_with(written, ("theirs", key), value)
    undone = DOCKER.undone(where.config, original=data, written=written, current=theirs)
    wanted_now = json_with(data, ("theirs", key), value)
    assert same(jsonedit.parse(undone.data or b"", ""), jsonedit.parse(wanted_now, ""))
