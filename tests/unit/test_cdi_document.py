"""CDI specs as text: what is written reads back the same, by every reader.

What runtimes refuse is refused with every problem.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from driverforge_core.errors import InputError
from driverforge_toolkit.cdi import specfiles
from driverforge_toolkit.cdi.conformance import (
    broken_rules,
    file_name,
    fitting_version,
    minimum_version,
    split_kind,
)
from driverforge_toolkit.cdi.spec import (
    ContainerEdits,
    DeviceNode,
    IntelRdt,
    NetDevice,
    Spec,
    SpecDevice,
    SpecHook,
    SpecMount,
)

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12) | st.sampled_from(
    [
        "0",
        "08",
        "1e3",
        "0x1f",
        "0o7",
        "1:30",
        "yes",
        "null",
        "~",
        "- a",
        "#x",
        "a: b",
        "a\nb",
        " x ",
        "",
        "2026-01-01",
        "-.5",
        "%",
        "\t",
        "é",
    ]
)
MANY = st.lists(TEXT, max_size=2).map(tuple)
NUMBER = st.integers(min_value=0, max_value=2**32)
MAYBE = st.none() | NUMBER
NODES = st.builds(
    DeviceNode,
    path=TEXT,
    host_path=TEXT,
    type=TEXT,
    major=NUMBER,
    minor=NUMBER,
    file_mode=MAYBE,
    permissions=TEXT,
    gid=MAYBE,
)
RDT = st.builds(IntelRdt, clos_id=TEXT, schemata=MANY, enable_monitoring=st.booleans())
EDITS = st.builds(
    ContainerEdits,
    env=MANY,
    device_nodes=st.lists(NODES, max_size=2).map(tuple),
    net_devices=st.lists(st.builds(NetDevice, host_interface=TEXT, name=TEXT), max_size=1).map(tuple),
    hooks=st.lists(
        st.builds(SpecHook, name=TEXT, path=TEXT, args=MANY, env=MANY, timeout=MAYBE), max_size=2
    ).map(tuple),
    mounts=st.lists(
        st.builds(SpecMount, host_path=TEXT, container_path=TEXT, options=MANY, type=TEXT), max_size=2
    ).map(tuple),
    intel_rdt=st.none() | RDT,
    additional_gids=st.lists(NUMBER, max_size=2).map(tuple),
)
PAIRS = st.dictionaries(TEXT, TEXT, max_size=2).map(lambda found: tuple(found.items()))
DEVICE = st.builds(SpecDevice, name=TEXT, annotations=PAIRS, edits=EDITS)
SPECS = st.builds(
    Spec,
    version=st.just("1.1.0"),
    kind=TEXT,
    annotations=PAIRS,
    devices=st.lists(DEVICE, max_size=2).map(tuple),
    edits=EDITS,
)
ONE = Spec(
    version="", kind="nvidia.com/gpu", devices=(SpecDevice(name="gpu0", edits=ContainerEdits(env=("A=b",))),)
)


@given(SPECS, st.sampled_from(specfiles.SpecFormat))
def test_what_is_written_reads_back_the_same(spec: Spec, form: specfiles.SpecFormat) -> None:
    text = specfiles.write(spec, form)
    assert specfiles.read(text, f"file.{form.value}") == spec


@given(SPECS)
def test_both_formats_hold_the_same_document(spec: Spec) -> None:
    assert yaml.safe_load(specfiles.write(spec)) == json.loads(
        specfiles.write(spec, specfiles.SpecFormat.JSON)
    )


@given(TEXT)
@example("1e3")
@example("0o17")
def test_text_that_a_reader_might_take_for_a_number_is_quoted(text: str) -> None:
    """Go's YAML reader resolves '1e3' and '08' to floats, PyYAML does not."""
    spec = replace(
        ONE,
        devices=(
            SpecDevice(name="x", edits=ContainerEdits(hooks=(SpecHook(name="", path="", args=(text,)),))),
        ),
    )
    line = specfiles.write(spec).splitlines()[-1].strip()
    assert re.fullmatch(r"[-+.]*[0-9].*", text, re.DOTALL) is None or line.startswith('- "')


def test_lists_are_indented_for_people() -> None:
    expected = """# a comment
---
cdiVersion: "0.3.0"
kind: nvidia.com/gpu
devices:
  - name: gpu0
    containerEdits:
      env:
        - A=b
"""
    assert specfiles.write(ONE, comments=("a comment",)) == expected


def test_every_problem_of_a_file_is_named_at_once() -> None:
    text = (
        "kind: nvidia.com/gpu\nversion: 1\ndevices:\n- name: 0\n  containerEdits: {deviceNodes: [{hostPath: "
        "/x, minor: a}], env: x}\n- 7\n"
    )
    with pytest.raises(InputError) as caught:
        specfiles.read(text, "/etc/cdi/x.yaml")
    details = "\n".join(caught.value.details)
    assert "version: unknown key" in details
    assert "cdiVersion: missing" in details
    assert "devices[0].name: 0 is not text; put it in quotes" in details
    assert "devices[0].containerEdits.deviceNodes[0].path: missing" in details
    assert "devices[0].containerEdits.deviceNodes[0].minor: 'a' is not a whole number" in details
    assert "devices[0].containerEdits.env: must be a list" in details
    assert "devices[1]: must be a mapping" in details
    assert all(line.startswith("/etc/cdi/x.yaml: ") for line in caught.value.details)


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("a.yaml", "kind: a\ndevices: [", "a.yaml:2"),
        ("a.yaml", "a: \x01", "a.yaml"),
        ("a.json", "{", "a.json"),
        ("a.yaml", "a: *b", "a.yaml:1"),
    ],
)
def test_a_file_that_is_no_yaml_or_json_says_where(name: str, text: str, where: str) -> None:
    with pytest.raises(InputError) as caught:
        specfiles.read(text, name)
    assert caught.value.details[0].startswith(f"{where}: ")


@pytest.mark.parametrize("text", ["", "null", "[]", "7", "just words"])
def test_a_file_without_a_mapping_is_no_spec(text: str) -> None:
    with pytest.raises(InputError, match="is not a CDI spec"):
        specfiles.read(text, "x.yaml")


def with_edits(edits: ContainerEdits, name: str = "gpu0") -> Spec:
    return replace(ONE, devices=(SpecDevice(name=name, edits=edits),))


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        (ONE, "0.3.0"),
        (
            with_edits(
                ContainerEdits(mounts=(SpecMount(host_path="/a", container_path="/a", type="tmpfs"),))
            ),
            "0.4.0",
        ),
        (with_edits(ContainerEdits(env=("A=b",)), name="0"), "0.5.0"),
        (with_edits(ContainerEdits(device_nodes=(DeviceNode(path="/dev/a", host_path="/dev/b"),))), "0.5.0"),
        (replace(ONE, kind="nvidia.com/gpu.shared"), "0.6.0"),
        (replace(ONE, annotations=(("a", "b"),)), "0.6.0"),
        (with_edits(ContainerEdits(additional_gids=(44,))), "0.7.0"),
        (with_edits(ContainerEdits(intel_rdt=IntelRdt(clos_id="x"))), "0.7.0"),
        (with_edits(ContainerEdits(intel_rdt=IntelRdt(schemata=("L3:0=f",)))), "1.1.0"),
        (with_edits(ContainerEdits(net_devices=(NetDevice(host_interface="a", name="b"),))), "1.1.0"),
    ],
)
def test_the_version_is_the_smallest_that_the_content_needs(spec: Spec, version: str) -> None:
    """The versions table of the CDI specification."""
    assert minimum_version(spec) == version
    assert f'cdiVersion: "{version}"\n' in specfiles.write(spec)


@pytest.mark.parametrize(
    ("stated", "written"), [("", "0.5.0"), ("0.3.0", "0.5.0"), ("0.8.0", "0.8.0"), ("7.0.0", "7.0.0")]
)
def test_a_stated_version_grows_but_never_shrinks(stated: str, written: str) -> None:
    spec = replace(ONE, version=stated, devices=(SpecDevice(name="0", edits=ContainerEdits(env=("A=b",))),))
    assert fitting_version(spec) == written


def test_rules_of_the_specification_are_checked() -> None:
    bad = ContainerEdits(
        env=("A",),
        device_nodes=(DeviceNode(path="/dev/x", type="z", permissions="rx"),),
        mounts=(SpecMount(host_path="", container_path="/y"),),
        hooks=(SpecHook(name="createcontainer", path="/h"),),
    )
    devices = (
        SpecDevice(name="a", edits=ContainerEdits()),
        SpecDevice(name="a", edits=bad),
        SpecDevice(name="_", edits=ContainerEdits(env=("A=b",))),
    )
    found = "\n".join(broken_rules(Spec(version="0.2.9", kind="nvidia/gpu!", devices=devices)))
    texts = [
        "'nvidia/gpu!' is not a CDI kind",
        "'0.2.9' is not one of",
        "'a' occurs 2 times",
        "'_' is not a device name",
        "adds nothing",
    ]
    texts += [
        "'A' is not NAME=VALUE",
        "the type 'z'",
        "the permissions 'rx'",
        "a mount without",
        "a hook 'createcontainer'",
    ]
    assert [text for text in texts if text not in found] == []
    assert broken_rules(replace(ONE, version="0.3.0")) == ()
    assert broken_rules(replace(ONE, version="0.3.0", devices=())) == ("devices: there is none",)


def test_kinds() -> None:
    assert split_kind("management.nvidia.com/gpu") == ("management.nvidia.com", "gpu")
    assert file_name("nvidia.com/gpu", ".json") == "nvidia.com-gpu.json"
    for wrong in ("gpu", "/gpu", "nvidia.com/", "1a/gpu", "nvidia.com/gpu-", "a b/c", "a/b/c"):
        with pytest.raises(InputError, match="is not a CDI kind"):
            split_kind(wrong)
