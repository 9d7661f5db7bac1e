"""What k3s and rke2 will make of a template, and the way back from one that takes the node down."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tomllib

from driverforge_core.errors import InputError, Unsupported
from driverforge_host.adapters.files import RootedFiles
from driverforge_toolkit.runtime.backends.distributions import next_root
from driverforge_toolkit.runtime.backends.template import BEGIN, END, TemplateBackend
from driverforge_toolkit.runtime.backends.template_cure import command, is_bare, left_out
from driverforge_toolkit.runtime.backends.template_render import base_of, rendered, tables_in
from driverforge_toolkit.runtime.formats.configfile import toml_file
from driverforge_toolkit.runtime.model import Supervisor
from support.fakes.runtimemodel import daemon
from support.samples.templates import BASE, CALL, CRI, TOOLKITS

NAME = "/var/lib/rancher/rke2/agent/etc/containerd/config.toml.tmpl"
NOWHERE = RootedFiles("/nowhere")  # no template lies beside the files of a change
RKE2 = replace(daemon(), supervisor=Supervisor(kind="rke2", unit="rke2-server.service"))


def foreseen(template: str, *, before: str | None = None, root: str = BASE) -> str | None:
    """The next root file of a node whose root file was made of the template `before`."""
    files = [
        {RKE2.config: toml_file(RKE2.config, root.encode()), NAME: toml_file(NAME, text and text.encode())}
        for text in (before, template)
    ]
    edit = TemplateBackend(template=NAME, version=2)
    data = next_root(edit, RKE2, disk=files[0], planned=files[1], node=NOWHERE)
    return None if data is None else data.decode()


def test_the_base_comes_where_it_is_called_and_spaces_go_where_that_is_said() -> None:
    template = '# a\n{{- /* why */ -}}\n\n{{template "base" .}}\n[x]\ny = {{ .SystemdCgroup }}\n'
    assert rendered(template, NAME, base=BASE) == f"# a{BASE}\n[x]\ny = true\n"
    assert rendered(template, NAME, base="version = 2\n") == "# aversion = 2\n\n[x]\ny = false\n"


@pytest.mark.parametrize("expression", ["{{ .NodeConfig.SELinux }}", "{{ range .ExtraRuntimes }}{{ end }}"])
def test_what_only_the_distribution_can_execute_is_not_foreseen(expression: str) -> None:
    assert rendered(f"{CALL}\n# {expression}\n", NAME, base=BASE) is None
    assert foreseen(f"version = 2\n# {expression}\n") is None


def test_a_mistake_is_told_with_the_templates_line() -> None:
    """What comes out of `sed -i '1i {{ template "base" . }}'`, which people are told to do."""
    with pytest.raises(InputError, match="is not valid TOML: containerd does not start") as caught:
        foreseen(f"{CALL}\n{TOOLKITS}")
    assert caught.value.details[0] == f'{NAME}:6: [plugins."io.containerd.grpc.v1.cri"]'
    assert caught.value.resolution.startswith(f"mv {NAME} /root/ && driverctl runtime apply; ")
    with pytest.raises(InputError) as caught:
        foreseen(f"{CALL}\n{TOOLKITS}", before=f"{CALL}\n{TOOLKITS}", root=TOOLKITS)
    assert caught.value.resolution.startswith(f"mv {NAME} /root/ && systemctl restart rke2-server && ")


def test_a_mistake_in_the_base_is_told_at_its_call() -> None:
    with pytest.raises(InputError) as caught:
        rendered(f"# x\n{CALL}\n[a]\n", NAME, base="version = \n")
    assert caught.value.details[0] == f"{NAME}:2: {CALL}"


@pytest.mark.parametrize(
    ("template", "place"),
    [
        ("a = 1\nb = \n", "2: b ="),
        ("a = {{ .SystemdCgroup }}\nb = 1\na = 2\n", "3: a = 2"),
        ("{{/* one\ntwo */}}\na = 1\nb = {{ .SystemdCgroup }} c\n", "4: b = {{ .SystemdCgroup }} c"),
        (f"# x\n{CALL}\n[debug]\n[debug]\n", "4: [debug]"),
        (f"{CALL}\n[debug", "2: [debug"),  # at the end of the document, as the parser says
        ("[debug", "1: [debug"),
    ],
)
def test_every_mistake_is_told_with_its_line(template: str, place: str) -> None:
    with pytest.raises(InputError) as caught:
        rendered(template, NAME, base=BASE)
    assert caught.value.details[0] == f"{NAME}:{place}"


def test_what_was_made_of_a_template_without_the_base_has_nothing_of_it() -> None:
    assert base_of(TOOLKITS, TOOLKITS) is None
    assert base_of(TOOLKITS, "{{ .NodeConfig }}") is None
    assert base_of(BASE, TOOLKITS) == BASE
    assert base_of(BASE, None) == BASE


def test_a_template_that_leaves_out_the_base_is_refused_with_what_is_lost() -> None:
    with pytest.raises(Unsupported, match="leaves out rke2's own configuration") as caught:
        foreseen(TOOLKITS)
    assert caught.value.details[0] == f"{NAME} has no {CALL}"
    assert "sandbox_image" in caught.value.details[1]
    assert "nvidia" not in caught.value.details[1]


@pytest.mark.parametrize(
    "template",
    [
        f"{CALL}\n[debug]\nlevel = 'info'\n",
        BASE,  # a copy of what was made of the base
        BASE.replace("true", "false"),
        f"{CALL}\n{BEGIN}\n[{CRI}.containerd.runtimes.nvidia]\n{END}\n",
    ],
)
def test_what_harms_nothing_goes_through(template: str) -> None:
    assert foreseen(template) == template.replace(CALL, BASE)


def test_a_node_that_lives_without_the_base_already_loses_nothing() -> None:
    assert foreseen(TOOLKITS, before=TOOLKITS, root=TOOLKITS) == TOOLKITS


@pytest.mark.parametrize("changed", ["level = 'debug'", "level = 'info'\n[metrics]\naddress = ''"])
def test_the_base_is_found_in_what_was_made_of_another_template(changed: str) -> None:
    before = f"{CALL}\n[debug]\nlevel = 'info'\n"
    root = before.replace(CALL, BASE)
    assert base_of(root, before) == BASE
    found = foreseen(f"{CALL}\n[debug]\n{changed}\n", before=f"{CALL}\n[debug]\n{changed}\n", root=root)
    assert found is not None
    assert tomllib.loads(found) == tomllib.loads(f"{BASE}\n[debug]\n{changed}\n")


def test_a_template_that_goes_away_leaves_the_base() -> None:
    template = f"# ours\n{CALL}\n[debug]\nlevel = 'info'\n"
    files = {
        RKE2.config: toml_file(RKE2.config, template.replace(CALL, BASE).encode()),
        NAME: toml_file(NAME, template.encode()),
    }
    edit = TemplateBackend(template=NAME, version=2)
    gone = {**files, NAME: toml_file(NAME)}
    assert next_root(edit, RKE2, disk=files, planned=gone, node=NOWHERE) == BASE.encode()


THEIRS = f"""# of the site
version = 2
[debug]
level = "info"
[{CRI}]
sandbox_image = "site/pause"
[{CRI}.containerd.runtimes.kata]
runtime_type = "io.containerd.kata.v2"
[{CRI}.containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
"""


@pytest.mark.parametrize(
    ("start", "edits"),
    [
        ("", f"-e '1i {CALL}' -e '2d' -e '5,6d' -e '9,10d'"),
        (f"{CALL}\n", "-e '3d' -e '6,7d' -e '10,11d'"),
        ("\n\n", f"-e '1i {CALL}' -e '4d' -e '7,8d' -e '11,12d'"),
    ],
)
def test_the_way_back_keeps_what_can_stand_beside_the_base(start: str, edits: str) -> None:
    cure = command(NAME, start + THEIRS, "rke2-agent.service")
    assert cure == f"sed -i.before {edits} {NAME} && systemctl restart rke2-agent && driverctl runtime apply"
    assert left_out(start + THEIRS) == (("plugins", "io.containerd.grpc.v1.cri", "sandbox_image"),)


def test_a_header_alone_is_one_line_and_a_file_of_headers_goes() -> None:
    assert " -e '3d' -e " in command(NAME, f"[debug]\na = 1\n[plugins]\n[{CRI}]\na = 1\n", "")
    assert command(NAME, "[debug]\n# x\n[plugins]\n", "") == f"mv {NAME} /root/ && driverctl runtime apply"


@pytest.mark.parametrize("broken", ["version = \n", f"[{CRI}]\ncontainerd = 1\n"])
def test_what_cannot_be_read_has_a_way_back_too(broken: str) -> None:
    assert command(NAME, broken, "").endswith(" && driverctl runtime apply")
    assert is_bare(broken)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_what_is_lost_is_listed_up_to_a_number(number: int) -> None:
    """Four keys of the base, and others; not what no pod needs."""
    more = "".join(f"[x{each}]\na = 1\n" for each in range(2 + number))
    with pytest.raises(Unsupported) as caught:
        foreseen(TOOLKITS, root=f"{BASE}{more}[debug]\nlevel = 'x'\n")
    listed, _, rest = caught.value.details[1].partition(" and ")
    assert listed.count(", ") == 5
    assert "debug" not in listed
    assert rest == (f"{number} more" if number else "")


def test_a_whole_configuration_may_leave_out_what_it_likes() -> None:
    registry = BASE.index(f"[{CRI}.registry]")
    assert foreseen(BASE[:registry]) == BASE[:registry]


def test_handlers_of_nvidias_are_not_told_as_lost() -> None:
    binary = "binaryName = '/usr/local/nvidia/toolkit/nvidia-container-runtime'"
    gpu = f"[{CRI}.containerd.runtimes.gpu.options]\n{binary}\n"
    with pytest.raises(Unsupported) as caught:
        foreseen(TOOLKITS, root=f"{BASE}{gpu}")
    assert "gpu" not in caught.value.details[1]


def test_what_is_bare_is_told_by_what_every_base_has() -> None:
    assert is_bare(TOOLKITS)
    assert is_bare("version = \n")
    assert not is_bare(BASE)
    assert not is_bare(f"{CALL}\n")
    assert not is_bare("{{ .NodeConfig }}\n")
    assert not is_bare(BASE.replace("true", "{{ .SystemdCgroup }}"))


def test_tables_are_found_with_their_lines() -> None:
    found = [
        (table.path, table.start, table.end) for table in tables_in("a = 1\n[b]\nc = 2\n[[d.'e.f']]\ng = 3")
    ]
    assert found == [((), 1, 2), (("b",), 2, 4), (("d", "e.f"), 4, 6)]
    assert tables_in("")[0].text == ""
    assert [(table.start, table.end) for table in tables_in("[a]\n\n[b]")] == [(1, 1), (1, 3), (3, 4)]
    # what is no header belongs to the table above it
    assert [table.path for table in tables_in("[a]\nx = [\n[1]\n]\n[b c]\n")] == [(), ("a",), ("1",)]
