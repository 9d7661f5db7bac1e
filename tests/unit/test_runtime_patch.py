"""What is written into containerd's file, what is refused, and what comes out again."""

from __future__ import annotations

import pytest
import tomllib
import tomlrt
from hypothesis import given, settings
from hypothesis import strategies as st

from driverforge_core.errors import InputError, Unsupported
from driverforge_node.runtime.inplace import CRI, RUNTIMES, Handler, check_effective, effective_changes, patched, undo
from driverforge_node.runtime.document import Change, dotted, edit, leaves, lookup, table_at

HANDLERS = (
    Handler(name="nvidia", binary="/t/nvidia-container-runtime"),
    Handler(name="nvidia-cdi", binary="/t/nvidia-container-runtime.cdi"),
)
RUNC = {"runtime_type": "io.containerd.runc.v2", "runtime_engine": "", "options": {"BinaryName": "", "SystemdCgroup": False}}
NAME = "/etc/containerd/config.toml"
PREFIX = 'plugins."io.containerd.grpc.v1.cri"'


def seen(data: bytes) -> dict[str, object]:
    """A model of what containerd 1.6 makes of a file: its own table of runtimes is replaced by the file's as a whole."""
    config = tomllib.loads(data.decode())
    if not table_at(config, RUNTIMES, NAME):
        inner = config
        for key in RUNTIMES[:-1]:
            inner = inner.setdefault(key, {})
        inner[RUNTIMES[-1]] = {"runc": dict(RUNC)}
    return config


def apply(data: bytes) -> bytes:
    return patched(data, seen(data), HANDLERS, NAME)


def test_debians_file_keeps_its_bytes_and_gets_runc_written_down() -> None:
    before = f'version = 2\n\n[plugins]\n  [{PREFIX}]\n    [{PREFIX}.cni]\n      bin_dir = "/usr/lib/cni" # Debian\n'
    after = apply(before.encode()).decode()
    assert after.startswith(before)
    runtimes = table_at(tomllib.loads(after), RUNTIMES, NAME)
    assert runtimes == {
        "runc": {"runtime_type": "io.containerd.runc.v2"},
        "nvidia": {"runtime_type": "io.containerd.runc.v2", "options": {"BinaryName": "/t/nvidia-container-runtime"}},
        "nvidia-cdi": {"runtime_type": "io.containerd.runc.v2", "options": {"BinaryName": "/t/nvidia-container-runtime.cdi"}},
    }


def test_handlers_inherit_the_settings_of_the_nodes_runc() -> None:
    table = f"{PREFIX}.containerd.runtimes.runc"
    text = f'version = 2\n[{table}]\nruntime_type = "io.containerd.runc.v2"\nprivileged_without_host_devices = false\n'
    text += f'[{table}.options]\nSystemdCgroup = true\nBinaryName = "/usr/sbin/runc"\n'
    config = tomllib.loads(apply(text.encode()).decode())
    assert lookup(config, (*RUNTIMES, "nvidia", "options")) == {"SystemdCgroup": True, "BinaryName": "/t/nvidia-container-runtime"}
    assert lookup(config, (*RUNTIMES, "runc", "options", "BinaryName")) == "/usr/sbin/runc"


def test_a_default_runtime_that_is_no_runc_is_no_model() -> None:
    text = f'version = 2\n[{PREFIX}.containerd]\ndefault_runtime_name = "kata"\n'
    text += f'[{PREFIX}.containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\npod_annotations = ["x"]\n'
    config = tomllib.loads(apply(text.encode()).decode())
    assert "pod_annotations" not in table_at(config, (*RUNTIMES, "nvidia"), NAME)
    assert set(table_at(config, RUNTIMES, NAME)) == {"kata", "nvidia", "nvidia-cdi"}


def test_no_file_at_all_becomes_a_whole_one() -> None:
    config = tomllib.loads(apply(b"").decode())
    assert config["version"] == 2
    assert set(table_at(config, RUNTIMES, NAME)) == {"runc", "nvidia", "nvidia-cdi"}


def test_a_file_that_has_the_handlers_is_not_touched() -> None:
    once = apply(b"version = 2\n")
    assert apply(once) == once


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ('[plugins.cri]\nsandbox_image = "x"\n', Unsupported, "version 1"),
        ("version = 1\n", Unsupported, "version 1"),
        ("version = 3\n", Unsupported, "version 3"),
        ('version = "2"\n', Unsupported, "version 2"),
        ('version = 2\ndisabled_plugins = ["cri"]\n', Unsupported, "disables the CRI plugin"),
        ('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n', Unsupported, "disables the CRI plugin"),
        ("version = 2\nplugins = 1\n", InputError, "plugins is no table"),
        (f'version = 2\n[{PREFIX}.containerd]\nruntimes = "x"\n', InputError, "runtimes is no table"),
        ("version = 2\n[plugins\n", InputError, "not valid TOML"),
        ("version = 2\nversion = 2\n", InputError, "not valid TOML"),
    ],
)
def test_refused_with_what_to_do(text: str, error: type[InputError | Unsupported], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        patched(text.encode(), {}, HANDLERS, NAME)
    assert caught.value.resolution


def test_bytes_that_are_no_text_are_refused_with_their_line() -> None:
    with pytest.raises(InputError, match="not UTF-8") as caught:
        patched(b"version = 2\n# \xff\n", {}, HANDLERS, NAME)
    assert caught.value.details == (f"{NAME}:2: invalid start byte",)


def test_a_change_of_anything_else_in_the_effective_configuration_refuses() -> None:
    before, data = seen(b"version = 2\n"), apply(b"version = 2\n")
    after = seen(data)
    check_effective(before, after, HANDLERS, NAME)
    with pytest.raises(Unsupported, match="other settings change") as caught:
        check_effective({**before, "oom_score": -999}, after, HANDLERS, NAME)
    assert caught.value.details == ("oom_score: -999 -> (not set)",)


def test_handlers_that_the_daemon_would_not_see_refuse() -> None:
    before = seen(b"version = 2\n")
    with pytest.raises(Unsupported, match="does not see the handler nvidia"):
        check_effective(before, before, HANDLERS, NAME)


def test_empty_fields_and_the_list_of_imports_are_no_effective_change() -> None:
    assert effective_changes({"imports": ["/dev/stdin"], "a": {"b": ""}}, {"imports": ["/etc/x"], "a": {}}) == {}
    assert set(effective_changes({"a": {"b": 1}}, {"a": {}})) == {("a", "b")}


def test_revert_of_an_untouched_file_is_exact() -> None:
    original = b"# mine\r\nversion = 2\r\n\r\n\r\n[plugins]\r\n"
    assert undo(original, apply(original), apply(original), NAME).data == original


def test_revert_keeps_what_others_wrote_since() -> None:
    original = b"version = 2\n[plugins]\n"
    written = apply(original)
    theirs = b"# kubespray\noom_score = -999\n" + written
    undone = undo(original, written, theirs, NAME)
    assert tomllib.loads(undone.data.decode()) == {"version": 2, "oom_score": -999, "plugins": {}}
    assert undone.data.startswith(b"# kubespray\n")
    assert undone.kept == ()


def test_a_handler_that_somebody_changed_stays_whole_and_is_named() -> None:
    original = b"version = 2\n"
    written = apply(original)
    theirs = written.replace(b"/t/nvidia-container-runtime.cdi", b"/opt/their-own")
    undone = undo(original, written, theirs, NAME)
    assert undone.kept == ((*RUNTIMES, "nvidia-cdi", "options", "BinaryName"),)
    # with a table of runtimes in the file, runc has to be in it
    assert set(table_at(tomllib.loads(undone.data.decode()), RUNTIMES, NAME)) == {"nvidia-cdi", "runc"}


def test_runc_stays_beside_a_runtime_that_was_added_since() -> None:
    original = b"version = 2\n"
    written = apply(original)
    theirs = written + f'[{PREFIX}.containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n'.encode()
    assert set(table_at(tomllib.loads(undo(original, written, theirs, NAME).data.decode()), RUNTIMES, NAME)) == {"kata", "runc"}


def test_a_file_that_was_not_there_keeps_only_what_others_added() -> None:
    written = apply(b"")
    assert undo(b"", written, written + b"# note\n", NAME).data.strip() == b"# note"
    added = b"oom_score = 1\n" + written
    assert tomllib.loads(undo(b"", written, added, NAME).data.decode()) == {"version": 2, "oom_score": 1}


def test_a_handler_that_was_there_before_gets_its_own_program_back() -> None:
    original = f'version = 2\n[{PREFIX}.containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
    original += f'[{PREFIX}.containerd.runtimes.nvidia.options]\nBinaryName = "/usr/bin/theirs"\n'
    written = apply(original.encode())
    undone = undo(original.encode(), written, written + b"# later\n", NAME)
    assert tomllib.loads(undone.data.decode()) == tomllib.loads(original)


# -- documents of any shape ------------------------------------------------------------------------------------------------------------

words = st.text("abcdefgh_-", min_size=1, max_size=6)
values = st.one_of(st.booleans(), st.integers(-5, 5), st.text("xyz \"'#=[]{}é", max_size=6), st.lists(st.integers(0, 3), max_size=2))
tables = st.dictionaries(words, values, max_size=3)
runtimes = st.fixed_dictionaries({}, optional={
    "runc": st.fixed_dictionaries({"runtime_type": st.just("io.containerd.runc.v2")}, optional={"options": tables}),
    "kata": st.fixed_dictionaries({"runtime_type": st.just("io.containerd.kata.v2")}),
    "nvidia": st.fixed_dictionaries({"runtime_type": st.just("io.containerd.runc.v2"), "options": tables}),
})  # fmt: skip
containerds = st.fixed_dictionaries({}, optional={
    "snapshotter": st.just("overlayfs"), "default_runtime_name": st.sampled_from(["runc", "kata"]), "runtimes": runtimes,
})  # fmt: skip
configs = st.fixed_dictionaries({"version": st.just(2)}, optional={
    "oom_score": st.integers(-9, 9), "grpc": tables, "proxy_plugins": st.dictionaries(words, tables, max_size=2),
    "plugins": st.fixed_dictionaries({}, optional={
        CRI[1]: st.fixed_dictionaries(
                {}, optional={"sandbox_image": st.text("ab/:", max_size=8), "cni": tables, "containerd": containerds}
            ),
        "io.containerd.internal.v1.opt": tables,
    }),
})  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """A TOML file of a valid configuration: comments, blank lines, indentation and line ends of any kind, sections in any order."""
    lines: list[str] = []
    sections = tomlrt.dumps(draw(configs)).split("\n[")
    head, rest = sections[0], draw(st.permutations(sections[1:]))
    for line in "\n[".join([head, *rest]).splitlines():
        if draw(st.integers(0, 5)) == 0:
            lines.append(draw(st.sampled_from(["", "# a comment", "   # [not.a.table]", "#x = 1"])))
        comment = draw(st.sampled_from(["", "", "", " # why"])) if line else ""
        lines.append(draw(st.sampled_from(["", "  "])) + line + comment)
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return (end.join(lines) + draw(st.sampled_from(["", end]))).encode()


def ours(path: tuple[str, ...]) -> bool:
    return path[: len(RUNTIMES)] == RUNTIMES and path[len(RUNTIMES) : len(RUNTIMES) + 1] in {("nvidia",), ("nvidia-cdi",)}


@settings(deadline=None)
@given(documents())
def test_only_our_keys_change_and_revert_gives_the_same_bytes(data: bytes) -> None:
    result = apply(data)
    before, after = seen(data), seen(result)
    check_effective(before, after, HANDLERS, NAME)
    assert all(ours(path) for path in effective_changes(before, after))
    kept = {line.strip() for line in data.splitlines() if line.strip()} - {line.strip() for line in result.splitlines()}
    # a line may go only where its own value changed: a handler of ours that was there before, or an inline table that got longer
    assert all(b"BinaryName" in line or b"= {" in line or b"options" in line for line in kept)
    assert apply(result) == result
    assert undo(data, result, result, NAME).data == data


@settings(deadline=None)
@given(documents(), st.integers(-9, 9))
def test_revert_after_a_foreign_edit_undoes_ours_alone(data: bytes, score: int) -> None:
    result = apply(data)
    theirs = edit(result, [Change(path=("oom_score",), value=score)], NAME)
    undone = tomllib.loads(undo(data, result, theirs, NAME).data.decode())
    wanted = {**tomllib.loads(data.decode()), "oom_score": score}
    assert dict(leaves(undone)) == dict(leaves(wanted))


def test_keys_are_shown_as_they_are_written() -> None:
    assert dotted((*CRI, "containerd")) == 'plugins."io.containerd.grpc.v1.cri".containerd'
