"""Charts as archives and folders, all of them hostile input; the merge is helm's."""

from __future__ import annotations

import gzip
import io
import tarfile
from itertools import pairwise
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_core.errors import InputError
from driverforge_mirror.charts.chart import find_chart
from driverforge_mirror.charts.values import Values, merged, tables, text_at
from driverforge_mirror.needs.needed import ClusterSettings, needs_of, slots_of
from driverforge_mirror.needs.nodes import read_nodes
from driverforge_mirror.needs.slots import SLOTS
from driverforge_mirror.yamltext import parse_documents
from support.samples.clusternodes import node, write_nodes

REAL = Path(__file__).resolve().parents[1] / "cases/charts/gpu-operator-v1.11.1"
NFD = "node-feature-discovery"
OURS = Path(__file__).resolve().parents[2] / "charts/driverforge"


def archive(path: Path, files: dict[str, bytes], *extra: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as made:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
        for info in extra:
            made.addfile(info)
    return path


def real_files(top: str) -> dict[str, bytes]:
    return {f"{top}/{file.relative_to(REAL)}": file.read_bytes() for file in REAL.rglob("*.yaml")}


def test_a_folder_and_its_archive_say_the_same(tmp_path: Path) -> None:
    folder = find_chart(str(REAL), resources.charts())
    packed = find_chart(str(archive(tmp_path / "c.tgz", real_files("gpu-operator"))), resources.charts())
    assert (folder.version, folder.app_version, folder.prefix) == ("v1.11.1", "v1.11.1", "")
    assert folder.values == packed.values
    assert len(packed.sha256) == 64
    assert text_at(folder.values, f"{NFD}.image.repository") == "k8s.gcr.io/nfd/node-feature-discovery"
    # its own chart has no tag: it is that chart's appVersion
    assert text_at(folder.values, f"{NFD}.image.tag") == "v0.10.1"


def test_the_slots_of_a_real_chart() -> None:
    chart = find_chart(str(REAL), resources.charts())
    later = {"gdrcopy", "kataManager", "ccManager", "kataSandboxDevicePlugin", "draDriver"}
    absent = {slot.path for slot in SLOTS} - {slot.path for slot in slots_of(ClusterSettings(chart=chart))}
    assert absent == {*later, "driverforge"}


def test_a_chart_inside_an_archive_inside_a_chart(tmp_path: Path) -> None:
    inner = archive(tmp_path / "inner.tgz", real_files("gpu-operator")).read_bytes()
    files = {
        "site/Chart.yaml": b"name: site\nversion: 1.2.3\n",
        "site/values.yaml": b"gpu-operator: {dcgm: {enabled: true}}\nother: {enabled: true}\n",
        "site/charts/gpu-operator-v1.11.1.tgz": inner,
    }
    chart = find_chart(str(archive(tmp_path / "site.tgz", files)), resources.charts())
    assert (chart.prefix, chart.version) == ("gpu-operator", "v1.11.1")
    assert text_at(chart.values, "dcgm.enabled") == "true"
    given = {"gpu-operator": {"gfd": {"enabled": "false"}}, "dcgm": {"enabled": "false"}}
    values = chart.effective(given)
    assert (text_at(values, "gfd.enabled"), text_at(values, "dcgm.enabled")) == ("false", "true")


def test_charts_within_charts_without_end_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "c.tgz", {"a/Chart.yaml": b"name: a"})
    for _ in range(5):
        inner = path.read_bytes()
        files = {f"a/charts/{number}.tgz": inner for number in range(20)}
        path = archive(tmp_path / "c.tgz", {"a/Chart.yaml": b"name: a", **files})
    with pytest.raises(InputError, match="more than 200 charts"):
        find_chart(str(path), resources.charts())


def test_a_chart_without_the_chart_inside_it_is_refused(tmp_path: Path) -> None:
    files = {name: data for name, data in real_files("gpu-operator").items() if "/charts/" not in name}
    with pytest.raises(InputError, match="lacks the chart node-feature-discovery"):
        find_chart(str(archive(tmp_path / "c.tgz", files)), resources.charts())


def test_an_unknown_version_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="no chart") as caught:
        find_chart("v99.1.0", resources.charts())
    assert "v26.7.0" in caught.value.details[0]
    assert "helm pull nvidia/gpu-operator --version v99.1.0" in caught.value.resolution


def test_every_known_version_is_read() -> None:
    for name in resources.charts().keys() - {"driverforge"}:
        version = name.removeprefix("gpu-operator-")
        assert find_chart(version.removeprefix("v"), resources.charts()).version == version


def test_the_page_names_the_known_versions() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/mirror.md").read_text(encoding="utf-8")
    known = [name.removeprefix("gpu-operator-") for name in resources.charts() if name != "driverforge"]
    assert f"Known without the chart: {', '.join(known)}." in page


def images_of(values: Values) -> dict[str, tuple[str, ...]]:
    keys = ("repository", "image", "version")
    return {
        path: tuple(text_at(table, key) for key in keys)
        for path, table in tables(values)
        if "repository" in table and NFD not in path
    }


def switches_of(values: Values) -> dict[str, str]:
    paths = {slot.path.partition(".")[0] for slot in SLOTS} | {"nfd", "sandboxWorkloads"}
    return {path: text_at(values, f"{path}.enabled") for path in paths - {"operator", "validator", NFD}}


def test_what_is_known_of_a_version_is_what_its_chart_says() -> None:
    known = find_chart("v24.6.1", resources.charts()).values
    (chart,) = parse_documents((REAL.parent / "values-v24.6.1.yaml").read_bytes(), "x")
    assert images_of(known) == images_of(chart)
    assert switches_of(known) == switches_of(chart)


def test_our_chart_is_read_where_it_is() -> None:
    chart = find_chart("driverforge", resources.charts())
    assert (chart.name, chart.version, chart.source) == ("driverforge", "0.1.0", "built in")
    # the chart that both depend on
    theirs = find_chart("v26.7.0", resources.charts())
    image = f"{NFD}.image.repository"
    assert text_at(chart.values, image) == text_at(theirs.values, image)
    assert text_at(chart.values, f"{NFD}.image.tag") == text_at(theirs.values, f"{NFD}.image.tag")


def test_our_chart_inside_another_one(tmp_path: Path) -> None:
    files = {
        "site/Chart.yaml": b"name: site\nversion: 1\n",
        "site/charts/driverforge/Chart.yaml": (OURS / "Chart.yaml").read_bytes(),
        "site/charts/driverforge/values.yaml": (OURS / "values.yaml").read_bytes(),
    }
    chart = find_chart(str(archive(tmp_path / "c.tgz", files)), resources.charts())
    assert (chart.prefix, chart.ours) == ("driverforge", True)
    given = {"driverforge": {"driverforge": {"image": "r.site/op:1"}}}
    assert text_at(chart.effective(given), "driverforge.image") == "r.site/op:1"


def test_our_chart_without_what_it_depends_on_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "c.tgz", {"driverforge/Chart.yaml": b"name: driverforge\ndependencies: [a]\n"})
    with pytest.raises(InputError, match="lacks the chart node-feature-discovery"):
        find_chart(str(path), resources.charts())


def link(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


def test_links_and_paths_out_of_an_archive_count_as_nothing(tmp_path: Path) -> None:
    files = real_files("gpu-operator") | {"../Chart.yaml": b"name: evil\n", "/values.yaml": b"a: 1\n"}
    path = archive(tmp_path / "c.tgz", files, link("gpu-operator/charts/x/Chart.yaml", "/etc/passwd"))
    assert find_chart(str(path), resources.charts()).version == "v1.11.1"


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.tgz"
    path.write_bytes(gzip.compress(bytes(65 << 20)))
    with pytest.raises(InputError, match="unpacks to more than 64 MiB"):
        find_chart(str(path), resources.charts())


def test_a_file_that_is_too_large_and_files_that_are_too_many_are_refused(tmp_path: Path) -> None:
    large = real_files("gpu-operator") | {"gpu-operator/values.yaml": b"a" * (9 << 20)}
    with pytest.raises(InputError, match=r"values\.yaml has more than 8 MiB"):
        find_chart(str(archive(tmp_path / "large.tgz", large)), resources.charts())
    many = real_files("gpu-operator") | {f"gpu-operator/{number}": b"" for number in range(10_000)}
    with pytest.raises(InputError, match="more than 10000 files"):
        find_chart(str(archive(tmp_path / "many.tgz", many)), resources.charts())
    (tmp_path / "noise.tgz").write_bytes(bytes(9 << 20))
    with pytest.raises(InputError, match="more than 8 MiB; it is no chart"):
        find_chart(str(tmp_path / "noise.tgz"), resources.charts())


@pytest.mark.parametrize(
    "data",
    [b"", b"no gzip", gzip.compress(b"no tar" * 200), gzip.compress(b"")[:9]],
    ids=["empty", "text", "no tar", "cut off"],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "c.tgz"
    path.write_bytes(data)
    with pytest.raises(InputError, match="no chart's archive"):
        find_chart(str(path), resources.charts())


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "a: " + "{b: " * 100 + "1" + "}" * 100,
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{new}: &{new} [{','.join(['*' + old] * 10)}]\n" for old, new in pairwise("abcdefgh")),
        "a: &a {b: *a}",
        "a: 1\n  b: 2",
        "a: \xff",
        '{"a": ',
    ],
)
def test_text_that_is_no_settings_is_refused_at_once(text: str) -> None:
    with pytest.raises(InputError):
        parse_documents(text.encode("latin-1"), "x.yaml")


def test_scalars_are_texts_and_nothing_is_none() -> None:
    (found,) = parse_documents(b"a: 550.90\nb: no\nc:\nd: ~\ne: null\nf: 0777\ng: {<<: {h: 1}}", "x")
    assert found == {"a": "550.90", "b": "no", "c": "", "d": "", "e": "", "f": "0777", "g": {"h": "1"}}
    assert parse_documents(b'{"a": true, "b": 1.50}', "x") == [{"a": True, "b": "1.50"}]


@pytest.mark.parametrize("tag", ["bool", "int", "float", "timestamp"])
def test_a_tag_makes_no_other_thing_of_a_text(tag: str) -> None:
    (found,) = parse_documents(f"a: !!{tag} 2026-11\nb: !!{tag} ''\nc: !!{tag} yes".encode(), "x")
    assert found == {"a": "2026-11", "b": "", "c": "yes"}


def test_a_brace_may_begin_yaml_as_well() -> None:
    assert parse_documents(b"{driver: {enabled: no}} # none", "x") == [{"driver": {"enabled": "no"}}]


def test_the_merge_is_helms() -> None:
    below = {"a": {"b": "1", "c": "2"}, "l": ["1", "2"], "t": "x"}
    above = {"a": {"c": "3"}, "l": ["4"], "t": {"u": "y"}}
    assert merged(below, above) == {"a": {"b": "1", "c": "3"}, "l": ["4"], "t": {"u": "y"}}


def named_images(values: Values) -> set[str]:
    """Every mapping of a chart's own values that names repository and image, as NAME:VERSION of its end."""
    found = set()
    for _, table in tables(values):
        if table.get("repository") and table.get("image"):
            found.add(f"{table['image']}:{table.get('version') or 'v0'}")
    return found


@pytest.mark.parametrize(
    "file", ["values-v24.6.1.yaml", "values-v25.10-main.yaml", f"{REAL.name}/values.yaml"]
)
@pytest.mark.parametrize("text", ["{}", "sandboxWorkloads: {enabled: true}", "platform: {openshift: true}"])
def test_no_image_of_a_real_chart_is_passed_over(tmp_path: Path, file: str, text: str) -> None:
    files = real_files("gpu-operator")
    files["gpu-operator/Chart.yaml"] = b"name: gpu-operator\nversion: v0\n"
    files["gpu-operator/values.yaml"] = (REAL.parent / file).read_bytes()
    chart = find_chart(str(archive(tmp_path / "c.tgz", files)), resources.charts())
    given = parse_documents(text.encode(), "x")
    nodes = read_nodes(write_nodes(tmp_path, node("gpu-0")))
    needs = needs_of(ClusterSettings(chart=chart, values=given, nodes=nodes))
    told = {*needs.images, *(one.image for one in needs.left_out)}
    ends = {image.rpartition("/")[2].removesuffix("-ubuntu22.04") for image in told}
    wanted = {image.removesuffix("-ubuntu22.04") for image in named_images(chart.values)}
    assert wanted <= ends
    assert len(wanted) > 12
