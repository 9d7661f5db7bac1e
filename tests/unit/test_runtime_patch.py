"""What is written for containerd, what is refused, and what comes out again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tomllib

from driverforge_core.errors import InputError, Unsupported
from driverforge_toolkit.runtime.backends import containerd, containerd_config
from driverforge_toolkit.runtime.backends.containerd import foreign
from driverforge_toolkit.runtime.backends.containerd_config import CRI_V2, CRI_V3
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.formats.values import KeyPath, dotted, lookup
from driverforge_toolkit.runtime.model import RUNC, Handler, RuntimeDaemon, WantedHandlers
from driverforge_toolkit.runtime.nvidia_handlers import nvidia_handlers
from support.fakes.runtimemodel import CONTAINERD, Files, daemon, effective, toml_with

patched, stripped, undone = CONTAINERD.patched, CONTAINERD.stripped, CONTAINERD.undone
HANDLERS = nvidia_handlers("/t")[:2]
OLD, NEW = daemon(version=(1, 6, 20)), daemon(version=(2, 1, 9))
ROOT, DROP_IN = OLD.config, OLD.drop_in
CRI2, CRI3 = 'plugins."io.containerd.grpc.v1.cri"', 'plugins."io.containerd.cri.v1.runtime"'
RUNTIMES = (*CRI_V2, "containerd", "runtimes")
IMPORT = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'


def apply(
    where: RuntimeDaemon, root: str | None, drop_in: str | None = None, **wanted: object
) -> dict[str, str]:
    """The files after a change, our drop-in as `DROP_IN`."""
    files: Files = {
        DROP_IN: drop_in.encode() if drop_in is not None else None,
        ROOT: root.encode() if root is not None else None,
    }
    asked = WantedHandlers(**{"handlers": HANDLERS, **wanted})  # type: ignore[arg-type]
    return {
        path: (data or b"").decode()
        for path, data in patched(where, files, effective(where, files), asked).items()
    }


def values(text: str) -> dict[str, object]:
    return tomllib.loads(text)


def test_the_root_file_gets_an_import_and_nothing_else() -> None:
    root = f'# mine\nversion = 2\n\n[{CRI2}.cni]\n  bin_dir = "/usr/lib/cni" # Debian\n'
    after = apply(OLD, root)
    assert after[ROOT] == root.replace("version = 2\n", f"version = 2\n{IMPORT}")


def test_an_old_containerd_gets_the_whole_section_in_the_drop_in_and_runc_with_it() -> None:
    """It replaces the section by the drop-in's, and its own table of runtimes by that one."""
    drop_in = values(
        apply(OLD, f'version = 2\noom_score = 1\n[{CRI2}.cni]\nbin_dir = "/usr/lib/cni"\n')[DROP_IN]
    )
    assert drop_in == {
        "version": 2,
        "plugins": {
            CRI_V2[1]: {
                "cni": {"bin_dir": "/usr/lib/cni"},
                "containerd": {
                    "runtimes": {
                        "runc": {"runtime_type": RUNC},
                        "nvidia": {
                            "runtime_type": RUNC,
                            "options": {"BinaryName": "/t/nvidia-container-runtime"},
                        },
                        "nvidia-cdi": {
                            "runtime_type": RUNC,
                            "options": {"BinaryName": "/t/nvidia-container-runtime.cdi"},
                        },
                    }
                },
            }
        },
    }


def test_a_new_containerd_gets_our_keys_alone() -> None:
    drop_in = values(apply(NEW, f'version = 2\n[{CRI2}]\nsandbox_image = "x"\n')[DROP_IN])
    section = lookup(drop_in, CRI_V2)
    assert isinstance(section, dict)
    assert set(section) == {"containerd"}
    handlers = lookup(section, ("containerd", "runtimes"))
    assert set(handlers) == {"nvidia", "nvidia-cdi"}  # type: ignore[call-overload]


@pytest.mark.parametrize(("version", "section"), [(2, CRI_V2), (3, CRI_V3), (4, CRI_V3)])
def test_the_drop_in_has_the_root_files_version_and_its_name_of_the_section(
    version: int, section: tuple[str, ...]
) -> None:
    """A higher one than the root's keeps a containerd of 2.2 and later from starting (containerd#12891)."""
    drop_in = values(apply(NEW, f"version = {version}\n")[DROP_IN])
    assert drop_in["version"] == version
    assert lookup(drop_in, (*section, "containerd", "runtimes", "nvidia", "runtime_type")) == RUNC


def test_version_3_keeps_the_streaming_servers_section_beside_ours() -> None:
    for where in (NEW, daemon(version=(2, 0, 4))):
        after = values(apply(where, f'version = 3\n[{CRI2}]\nstream_server_port = "1"\n')[DROP_IN])
        assert lookup(after, (*CRI_V3, "containerd", "runtimes", "nvidia", "runtime_type")) == RUNC
        assert lookup(after, CRI_V2) is containerd.REMOVED


def test_a_drop_in_without_version_keeps_its_name_of_the_section() -> None:
    root = f"version = 3\n{IMPORT}"
    after = values(apply(NEW, root, f"[{CRI3}.cni]\nbin_dir = '/x'\n")[DROP_IN])
    assert set(after) == {"plugins"}
    assert lookup(after, (*CRI_V3, "containerd", "runtimes", "nvidia", "runtime_type")) == RUNC


@pytest.mark.parametrize("root", [None, "", "# nothing\n"])
@pytest.mark.parametrize(
    ("daemon_version", "version", "section"),
    [((1, 6, 20), 2, CRI_V2), ((2, 1, 9), 3, CRI_V3), ((2, 3, 7), 4, CRI_V3), ((2, 4, 2), 4, CRI_V3)],
)
def test_a_root_file_that_says_nothing_gets_the_daemons_own_version(
    root: str | None, daemon_version: tuple[int, ...], version: int, section: KeyPath
) -> None:
    """With a lower one, a drop-in that another tool adds may keep containerd from starting."""
    after = apply(daemon(version=daemon_version), root)
    assert values(after[ROOT]) == {"version": version, "imports": ["/etc/containerd/conf.d/*.toml"]}
    assert after[ROOT].startswith(root or "version")
    drop_in = values(after[DROP_IN])
    assert drop_in["version"] == version
    assert lookup(drop_in, (*section, "containerd", "runtimes", "nvidia", "runtime_type")) == RUNC


def test_a_file_with_keys_that_a_later_version_moves_gets_version_2() -> None:
    assert values(apply(daemon(version=(2, 4, 2)), "[grpc]\ngid = 3\n")[ROOT])["version"] == 2


@pytest.mark.parametrize(("version", "written"), [((2, 3, 7), True), ((2, 4, 2), False)])
def test_cdi_is_not_switched_on_where_it_is_always_on(version: tuple[int, ...], written: bool) -> None:
    """containerd 2.4 warns at each start of a key that it does not know."""
    after = apply(daemon(version=version), "version = 3\n", cdi=True)
    assert ("enable_cdi" in after[DROP_IN]) is written


@pytest.mark.parametrize(("version", "default"), [((2, 1, 9), ""), ((2, 3, 7), "runc"), ((2, 4, 2), "runc")])
def test_a_default_in_the_old_section_of_a_version_3_file_is_given_up_where_it_counts(
    version: tuple[int, ...], default: str
) -> None:
    """From 2.3 on such a file is brought to version 4, and the old section with it."""
    root = f'version = 3\n[{CRI2}.containerd]\ndefault_runtime_name = "nvidia"\n'
    root += f'[{CRI2}.containerd.runtimes.nvidia]\nruntime_type = "{RUNC}"\n'
    where = daemon(version=version)
    before = effective(where, {DROP_IN: None, ROOT: root.encode()})
    assert containerd_config.default_of(before) == ("nvidia" if default else "runc")
    after = apply(where, root, release_default=True)
    named = lookup(values(after[DROP_IN]), (*CRI_V3, "containerd", "default_runtime_name"))
    assert named == (default or containerd.REMOVED)
    view = effective(where, {path: text.encode() for path, text in after.items()})
    assert containerd_config.default_of(view) == "runc"


def test_a_file_without_version_gets_one_where_no_key_depends_on_it() -> None:
    assert values(apply(OLD, "oom_score = -999\n[debug]\nlevel = 'info'\n")[ROOT])["version"] == 2


@pytest.mark.parametrize(
    "imports",
    [
        '["/etc/containerd/conf.d/*.toml"]',
        '["conf.d/*.toml"]',
        '["/etc/containerd/conf.d/99-nvidia.toml"]',
        '["/etc/./containerd/*/9*"]',
    ],
)
def test_an_import_that_covers_the_drop_in_leaves_the_root_file_alone(imports: str) -> None:
    root = f"imports = {imports}\nversion = 2\n"
    assert apply(replace(OLD, version=(1, 7, 24)), root)[ROOT] == root


def test_a_relative_pattern_covers_nothing_beside_the_root_file_of_an_older_one() -> None:
    """containerd 1.6.20 looks for it in its working folder, which is / for a service of systemd."""
    after = values(apply(OLD, 'imports = ["conf.d/*.toml"]\nversion = 2\n')[ROOT])["imports"]
    assert after == ["conf.d/*.toml", "/etc/containerd/conf.d/*.toml"]


@pytest.mark.parametrize(
    "imports", ['["/etc/containerd/*.toml"]', '["/etc/*"]', '["/etc/containerd/conf.d/1*.toml"]', "[]"]
)
def test_one_that_does_not_is_added_to(imports: str) -> None:
    after = values(apply(OLD, f"imports = {imports} # theirs\nversion = 2\n")[ROOT])["imports"]
    assert after == [*values(f"i = {imports}")["i"], "/etc/containerd/conf.d/*.toml"]  # type: ignore[misc]


def test_a_list_of_imports_keeps_its_lines_and_comments() -> None:
    root = 'imports = [\n  "/a", # first\n  "/b"\n]\nversion = 2\n'
    after = apply(OLD, root)[ROOT]
    assert after == root.replace('"/b"\n', '"/b",\n  "/etc/containerd/conf.d/*.toml"\n')
    theirs = after.encode() + b"# later\n"
    assert (
        undone(ROOT, original=root.encode(), written=after.encode(), current=theirs).data
        == root.encode() + b"# later\n"
    )


def test_a_handler_takes_after_the_default_runtime_and_has_all_of_its_keys() -> None:
    table = f"{CRI2}.containerd.runtimes"
    root = (
        f'version = 2\n[{CRI2}.containerd]\ndefault_runtime_name = "mine"\n[{table}.mine]\n'
        f'runtime_type = "x"\npod_annotations = ["a"]\n'
    )
    root += f'[{table}.mine.options]\nSystemdCgroup = true\nBinaryName = "/sbin/mine"\n'
    for where in (OLD, NEW):
        table_of = lookup(values(apply(where, root)[DROP_IN]), (*RUNTIMES, "nvidia"))
        options = {"SystemdCgroup": True, "BinaryName": "/t/nvidia-container-runtime"}
        assert table_of == {"runtime_type": "x", "pod_annotations": ["a"], "options": options}


@pytest.mark.parametrize("name", ["nvidia", "gpu", "nvidia-experimental", "runc"])
def test_a_default_handler_of_nvidias_hands_on_its_settings_and_not_its_program(name: str) -> None:
    table = f"{CRI2}.containerd.runtimes.{name}"
    root = (
        f'version = 2\n[{CRI2}.containerd]\ndefault_runtime_name = "{name}"\n[{table}]\nruntime_type = "x"\n'
    )
    root += f'[{table}.options]\nBinaryName = "/usr/bin/nvidia-container-runtime"\nNoPivotRoot = true\n'
    for where in (OLD, NEW):
        options = lookup(values(apply(where, root)[DROP_IN]), (*RUNTIMES, "nvidia-cdi", "options"))
        assert options == {"NoPivotRoot": True, "BinaryName": "/t/nvidia-container-runtime.cdi"}


def test_a_handler_that_is_there_already_does_not_take_after_itself() -> None:
    table = f"{CRI2}.containerd.runtimes.gpu"
    root = f'version = 2\n[{CRI2}.containerd]\ndefault_runtime_name = "gpu"\n[{table}]\nruntime_type = "x"\n'
    for where in (OLD, NEW):
        after = values(apply(where, root, handlers=(Handler(name="gpu", binary="/opt/wrapper"),))[DROP_IN])
        assert lookup(after, (*RUNTIMES, "gpu", "runtime_type")) == RUNC


def test_what_is_wanted_beyond_the_handlers_is_written() -> None:
    after = values(
        apply(
            OLD,
            "version = 2\n",
            default="nvidia",
            cdi=True,
            annotations=("cdi.k8s.io/*",),
            options={"SystemdCgroup": True},
        )[DROP_IN]
    )
    assert lookup(after, (*CRI_V2, "containerd", "default_runtime_name")) == "nvidia"
    assert lookup(after, (*CRI_V2, "enable_cdi")) is True
    nvidia = lookup(after, (*RUNTIMES, "nvidia"))
    assert nvidia == {
        "runtime_type": RUNC,
        "container_annotations": ["cdi.k8s.io/*"],
        "options": {"SystemdCgroup": True, "BinaryName": "/t/nvidia-container-runtime"},
    }


def test_a_default_of_ours_is_released_where_that_is_wanted() -> None:
    root = f'version = 2\n[{CRI2}.containerd]\ndefault_runtime_name = "nvidia"\n'
    path = (*CRI_V2, "containerd", "default_runtime_name")
    assert lookup(values(apply(OLD, root)[DROP_IN]), path) == "nvidia"
    assert "default_runtime_name" not in apply(OLD, root, release_default=True)[DROP_IN]
    assert lookup(values(apply(NEW, root, release_default=True)[DROP_IN]), path) == "runc"


def test_upstreams_drop_in_at_our_path_is_edited() -> None:
    theirs = (
        f'# theirs\nversion = 2\n[{CRI2}.registry]\nconfig_path = "/x"\n'
        f'[{CRI2}.containerd.runtimes.nvidia]\npod_annotations = ["a"]\n'
    )
    after = apply(NEW, IMPORT + "version = 2\n", theirs)[DROP_IN]
    assert after.startswith("# theirs\n")
    assert lookup(values(after), (*CRI_V2, "registry", "config_path")) == "/x"
    assert (
        lookup(values(after), (*RUNTIMES, "nvidia", "options", "BinaryName")) == "/t/nvidia-container-runtime"
    )
    assert lookup(values(after), (*RUNTIMES, "nvidia", "pod_annotations")) == ["a"]


def test_one_that_is_not_read_today_does_not_come_into_force_with_ours() -> None:
    assert "oom_score" not in apply(OLD, "version = 2\n", "oom_score = 7\n")[DROP_IN]
    assert apply(OLD, "version = 2\n", "broken [") == apply(OLD, "version = 2\n")


def test_a_drop_in_of_inline_tables_is_written_anew_where_it_cannot_be_added_to() -> None:
    theirs = f'version = 2\nplugins = {{ "{CRI_V2[1]}" = {{ sandbox_image = "x" }} }}\n'
    after = values(apply(NEW, IMPORT + "version = 2\n", theirs)[DROP_IN])
    assert lookup(after, (*CRI_V2, "sandbox_image")) == "x"
    assert lookup(after, (*RUNTIMES, "nvidia", "runtime_type")) == RUNC


def test_settings_come_from_the_file_that_counts_on_an_old_containerd() -> None:
    """The last file with any of the section; what the others say of it is not in force."""
    files: Files = {
        ROOT: f'version = 2\nimports = ["other.toml"]\n[{CRI2}]\nsandbox_image = "root"\n'.encode(),
        "/etc/containerd/other.toml": f'version = 2\n[{CRI2}]\nsandbox_image = "other"\n'.encode(),
    }
    after = patched(OLD, files, effective(OLD, files), WantedHandlers(handlers=HANDLERS))
    assert lookup(parse(after[DROP_IN] or b"", ""), (*CRI_V2, "sandbox_image")) == "other"
    assert set(after) == {DROP_IN, ROOT}


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ('[plugins.cri]\nsandbox_image = "x"\n', Unsupported, "version 1"),
        ('imports = ["/a"]\n', Unsupported, "version 1"),
        ("version = 1\n", Unsupported, "version 1"),
        ("version = 5\n", Unsupported, "version 5"),
        ("version = true\n", Unsupported, "version True"),
        ('version = "2"\n', Unsupported, "version '2'"),
        ('version = 2\ndisabled_plugins = ["cri"]\n', Unsupported, "disables the CRI plugin"),
        (
            'version = 3\ndisabled_plugins = ["io.containerd.cri.v1.runtime"]\n',
            Unsupported,
            "disables the CRI plugin",
        ),
        ("version = 2\nplugins = 1\n", InputError, "plugins is not a table"),
        (f'version = 2\n[{CRI2}.containerd]\nruntimes = "x"\n', InputError, "runtimes is not a table"),
        (f"version = 2\n[{CRI2}.containerd.runtimes]\nrunc = 1\n", InputError, "runc is not a table"),
        ('version = 2\nimports = "/a"\n', InputError, "`imports` is not a list"),
        ("version = 2\nimports = [1]\n", InputError, "`imports` is not a list"),
        ("version = 2\n[plugins\n", InputError, "not valid TOML"),
        ("version = 2\nversion = 2\n", InputError, "not valid TOML"),
    ],
)
def test_refused_with_what_to_do(text: str, error: type[InputError | Unsupported], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        patched(OLD, {ROOT: text.encode(), DROP_IN: None}, {}, WantedHandlers(handlers=HANDLERS))
    assert caught.value.resolution
    assert ROOT in caught.value.brief


def test_every_reason_to_refuse_is_told_at_once() -> None:
    files: Files = {ROOT: b'disabled_plugins = ["cri"]\n'}
    with pytest.raises(Unsupported, match="version 1") as caught:
        patched(OLD, files, {}, WantedHandlers(handlers=HANDLERS))
    assert "disables the CRI plugin" in caught.value.details[0]


def test_only_our_keys_are_ours() -> None:
    before, after = (
        effective(OLD, {ROOT: b"version = 2\n"}),
        effective(OLD, {ROOT: b"version = 2\noom_score = 1\n"}),
    )
    wanted = WantedHandlers(handlers=HANDLERS, default="nvidia")
    assert foreign(before, after, wanted) == {("oom_score",): (containerd.REMOVED, 1)}
    runtime = (
        f'version = 2\n[{CRI2}.containerd]\ndefault_runtime_name = "NAME"\n'
        f'[{CRI2}.containerd.runtimes.NAME]\nruntime_type = "{RUNC}"\n'
    )
    ours, theirs = (
        effective(OLD, {ROOT: (IMPORT + runtime.replace("NAME", name)).encode()})
        for name in ("nvidia", "kata")
    )
    runc = {path for path in foreign(before, ours, wanted) if "runc" not in path}
    assert runc == set()
    assert (*RUNTIMES, "kata", "runtime_type") in foreign(before, theirs, wanted)
    assert (*CRI_V2, "enable_cdi") in foreign({}, {"plugins": {CRI_V2[1]: {"enable_cdi": True}}}, wanted)


def test_nan_and_zeros_are_no_difference() -> None:
    """`nan == nan` is false; containerd prints every field of a structure."""
    nan = {"x": float("nan"), "plugins": {CRI_V2[1]: {"y": ""}}, "imports": ["/a"]}
    assert foreign(nan, {"x": float("nan")}, WantedHandlers(handlers=HANDLERS)) == {}
    assert containerd.activation(nan, {"x": float("nan")}) == "none"
    assert containerd.activation(nan, {"x": 1.0}) == "restart"
    assert "x = nan" in apply(OLD, "version = 2\nx = nan\ny = -inf\n")[ROOT]


def test_low_level_runtimes_are_never_nvidias() -> None:
    text = f'version = 3\n[{CRI3}.containerd]\ndefault_runtime_name = "gpu"\n'
    for name, program in (
        ("gpu", "/t/nvidia-container-runtime"),
        ("crun", "/usr/bin/crun"),
        ("runc", ""),
        ("mine", "/opt/wrapped"),
    ):
        text += f'[{CRI3}.containerd.runtimes.{name}.options]\nBinaryName = "{program}"\n'
    assert containerd.low_level_runtimes(values(text)) == ("runc", "/usr/bin/crun")
    mine = values(text.replace('"gpu"', '"mine"'))
    assert containerd.low_level_runtimes(mine) == ("/opt/wrapped", "runc", "/usr/bin/crun")
    assert containerd.low_level_runtimes(mine, ("/opt/wrapped",)) == ("runc", "/usr/bin/crun")


# -- undoing it


def undo(
    path: str, original: str | None, written: str, current: str
) -> tuple[str | None, tuple[tuple[str, ...], ...]]:
    result = undone(
        path,
        original=original.encode() if original is not None else None,
        written=written.encode(),
        current=current.encode(),
    )
    return (result.data.decode() if result.data is not None else None), result.kept


def test_revert_of_untouched_files_is_exact() -> None:
    original = "# mine\r\nversion = 2\r\n\r\n\r\n[plugins]\r\n"
    after = apply(OLD, original)
    assert undo(ROOT, original, after[ROOT], after[ROOT]) == (original, ())
    assert undo(DROP_IN, None, after[DROP_IN], after[DROP_IN]) == (None, ())


def test_a_file_that_somebody_put_back_is_left_alone() -> None:
    original = f'version = 2\n[{CRI2}.containerd.runtimes.nvidia]\nruntime_type = "x"\n'
    written = apply(NEW, IMPORT + "version = 2\n", original)[DROP_IN]
    assert undo(DROP_IN, original, written, original) == (original, ())


def test_a_file_that_is_gone_stays_gone() -> None:
    assert (
        undone(ROOT, original=b"version = 2\n", written=b"version = 2\nimports = []\n", current=None).data
        is None
    )


def test_others_imports_stay() -> None:
    after = apply(OLD, "version = 2\n")[ROOT]
    theirs = after.replace(
        '"/etc/containerd/conf.d/*.toml"', '"/etc/containerd/conf.d/*.toml", "/theirs.toml"'
    )
    assert undo(ROOT, "version = 2\n", after, theirs) == ('version = 2\nimports = ["/theirs.toml"]\n', ())


def test_version_stays_beside_what_others_added() -> None:
    after = apply(OLD, None)[ROOT]
    assert undo(ROOT, None, after, after + "oom_score = 1\n") == ("version = 2\noom_score = 1\n", ())
    assert undo(ROOT, None, after, after + "# note\n") == ("# note\n", ())


def test_a_handler_that_somebody_changed_stays_whole_and_is_named() -> None:
    after = apply(OLD, "version = 2\n")[DROP_IN]
    result, kept = undo(
        DROP_IN, None, after, after.replace("/t/nvidia-container-runtime.cdi", "/opt/their-own")
    )
    assert kept == ((*RUNTIMES, "nvidia-cdi", "options", "BinaryName"),)
    # with a table of runtimes in the file, runc has to be in it
    runtimes = lookup(values(result or ""), RUNTIMES)
    assert set(runtimes) == {"nvidia-cdi", "runc"}  # type: ignore[call-overload]


def test_the_section_stays_beside_a_runtime_that_was_added_since() -> None:
    after = apply(OLD, f'version = 2\n[{CRI2}]\nsandbox_image = "x"\n', default="nvidia")[DROP_IN]
    result, kept = undo(
        DROP_IN,
        None,
        after,
        after + f'[{CRI2}.containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n',
    )
    left = values(result or "")
    assert kept == ()
    assert set(lookup(left, RUNTIMES)) == {"kata", "runc"}  # type: ignore[call-overload]
    assert lookup(left, (*CRI_V2, "sandbox_image")) == "x"
    assert "default_runtime_name" not in (result or "")


def test_a_handler_that_others_made_the_default_stays() -> None:
    after = apply(NEW, "version = 2\n")[DROP_IN]
    theirs = toml_with(after.encode(), (*CRI_V2, "containerd", "default_runtime_name"), "nvidia-cdi")
    result, _ = undo(DROP_IN, None, after, theirs.decode())
    assert set(lookup(values(result or ""), RUNTIMES)) == {"nvidia-cdi"}  # type: ignore[call-overload]


def test_what_was_there_before_comes_back_as_it_was() -> None:
    theirs = (
        f'version = 2\n[{CRI2}.containerd]\ndefault_runtime_name = "kata"\n'
        f'[{CRI2}.containerd.runtimes.nvidia]\nruntime_type = "{RUNC}"\n'
    )
    theirs += f'[{CRI2}.containerd.runtimes.nvidia.options]\nBinaryName = "/usr/bin/theirs"\nRoot = "/r"\n'
    after = apply(NEW, IMPORT + "version = 2\n", theirs, default="nvidia")[DROP_IN]
    result, kept = undo(DROP_IN, theirs, after, after + "# later\n")
    assert (values(result or ""), kept) == (values(theirs), ())


# -- without a journal


def test_a_foreign_installation_is_stripped() -> None:
    root = (
        f'version = 2\n{IMPORT}[{CRI2}.containerd]\ndefault_runtime_name = "nvidia"\n'
        f"[{CRI2}.containerd.runtimes.nvidia]\n"
    )
    drop_in = f"version = 2\n[{CRI2}.containerd.runtimes.nvidia]\n".encode()
    assert stripped(OLD, {ROOT: root.encode(), DROP_IN: drop_in}, ("nvidia",)) == {
        ROOT: None,
        DROP_IN: None,
    }
    noted = stripped(OLD, {ROOT: b"# mine\n" + root.encode(), DROP_IN: drop_in}, ("nvidia",))[ROOT]
    assert (noted or b"").startswith(b"# mine\n")
    assert parse(noted or b"", "") == {"version": 2}


def test_what_has_nothing_of_it_stays_as_it_is() -> None:
    for root in (None, b"version = 2\n", b'version = 2\nimports = ["/x"]\n'):
        assert stripped(OLD, {ROOT: root, DROP_IN: None}, ("nvidia",)) == {
            ROOT: root,
            DROP_IN: None,
        }


def test_an_import_that_brings_another_file_stays_and_so_does_what_else_is_in_the_drop_in() -> None:
    files: Files = {
        ROOT: f"version = 2\n{IMPORT}".encode(),
        DROP_IN: f"version = 2\n[{CRI2}.containerd.runtimes.nvidia]\n".encode(),
        "/etc/containerd/conf.d/a.toml": b"version = 2\n",
    }
    assert stripped(OLD, files, ("nvidia",)) == {**files, DROP_IN: None}
    more = {**files, DROP_IN: (files[DROP_IN] or b"") + b"[grpc]\nuid = 1\n"}
    assert parse(stripped(OLD, more, ("nvidia",))[DROP_IN] or b"", "") == {
        "version": 2,
        "grpc": {"uid": 1},
    }


def test_keys_are_shown_as_they_are_written() -> None:
    assert dotted((*CRI_V2, "containerd")) == f"{CRI2}.containerd"


def test_names_of_the_handlers() -> None:
    assert [handler.name for handler in nvidia_handlers("/t/", "gpu")] == [
        "gpu",
        "nvidia-cdi",
        "nvidia-legacy",
    ]
    assert nvidia_handlers("/t", "nvidia-cdi") == nvidia_handlers("/t")
    assert nvidia_handlers("/t/")[0] == Handler(name="nvidia", binary="/t/nvidia-container-runtime")
