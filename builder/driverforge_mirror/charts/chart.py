"""A Helm chart as far as its images go: from an archive, a folder, or by name where it is known here.

Nothing is unpacked: an archive is hostile input, and only its Chart.yaml and values.yaml are read.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from driverforge_core.errors import InputError
from driverforge_mirror.charts.values import Values, at, merged, table_at, text_at
from driverforge_mirror.yamltext import mapping, parse_documents, read_mapping

OPERATOR = "gpu-operator"
OURS = "driverforge"
NFD = "node-feature-discovery"

_MAX_FILE = 8 << 20
_MAX_MEMBERS = 10_000
_MAX_UNPACKED = 64 << 20
_MAX_CHARTS = 200
_READ = ("Chart.yaml", "values.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """NVIDIA's chart, or ours: `values` are its defaults, with those of the charts that it depends on.

    `prefix` is the key under which a chart around it (an umbrella) has its values, '' where there is none.
    `sha256` is that of the archive, '' for a folder and for a version that is known here.
    """

    name: str
    version: str
    app_version: str
    values: Values
    source: str
    prefix: str = ""
    sha256: str = ""

    @property
    def ours(self) -> bool:
        """Ours hands whatever a ClusterPolicy knows on to it, also what its own values do not have."""
        return self.name == OURS

    @property
    def operand_version(self) -> str:
        """The version of operands that have none of their own. Ours brings an operator alone."""
        return "" if self.ours else self.app_version

    def effective(self, *given: Values) -> dict[str, Any]:
        """The values that count, with those that a user gives, the last one strongest."""
        values = dict(self.values)
        for one in given:
            values = merged(values, self.own(one))
        return values

    def own(self, values: Values) -> Values:
        """The part of a user's values that is for this chart: an umbrella has it below the chart's name."""
        if self.ours and not self.prefix:
            return values
        inner = values.get(self.prefix or OPERATOR)
        return inner if isinstance(inner, Mapping) else {} if self.prefix else values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What a chart's files say: `charts` are those inside it."""

    chart: Values
    values: Values
    charts: Mapping[str, _Parts] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return text_at(self.chart, "name")

    @property
    def app_version(self) -> str:
        return text_at(self.chart, "appVersion") or text_at(self.chart, "version")


def find_chart(text: str, known: Mapping[str, Path]) -> Chart:
    """The chart in an archive or folder, or the one of that name, or of that version of NVIDIA's."""
    path = Path(text)
    if path.is_dir():
        return _chart(_from_folder(path, _charts()), text)
    if path.is_file():
        data = _read(path)
        return _chart(_from_archive(data, text, _charts()), text, hashlib.sha256(data).hexdigest())
    version = text.removeprefix(f"{OPERATOR}-")
    names = (text, f"{OPERATOR}-{version}", f"{OPERATOR}-v{version}")
    file = next((known[name] for name in names if name in known), None)
    if file is None:
        told = ", ".join(name.removeprefix(f"{OPERATOR}-") for name in known)
        raise InputError(
            f"{text} is no chart: neither a file nor one that is known here",
            details=[f"known without the chart itself: {told}"],
            resolution=f"give the chart, which the closed cluster needs anyhow: helm pull nvidia/{OPERATOR} "
            f"--version {version}, then --chart {OPERATOR}-{version}.tgz",
        )
    if file.is_dir():
        return _chart(_from_folder(file, _charts()), "built in")
    document = read_mapping(file)
    return Chart(
        name=text_at(document, "name"),
        version=text_at(document, "version"),
        app_version=text_at(document, "appVersion"),
        values=table_at(document, "values"),
        source="built in",
    )


def read_chart(data: bytes, source: str) -> Chart:
    """The chart in the bytes of an archive."""
    return _chart(_from_archive(data, source, _charts()), source, hashlib.sha256(data).hexdigest())


def about_chart(data: bytes, source: str) -> Values:
    """What Chart.yaml says in the bytes of an archive."""
    return _from_archive(data, source, _charts()).chart


def _chart(parts: _Parts, source: str, sha256: str = "") -> Chart:
    prefix = ""
    if parts.name not in (OPERATOR, OURS):
        prefix = next((name for name in (OPERATOR, OURS) if name in parts.charts), "")
        if not prefix:
            raise InputError(
                f"{source} is the chart {parts.name or '(no name)'}, which is neither {OPERATOR} nor {OURS} "
                f"and has none of them in its charts/",
                resolution=f"give the chart {OPERATOR} or {OURS}, or one around it, its charts/ filled",
            )
        inner = parts.charts[prefix]
        above = table_at(parts.values, prefix)
        parts = _Parts(chart=inner.chart, values=merged(inner.values, above), charts=inner.charts)
    return Chart(
        name=parts.name,
        version=text_at(parts.chart, "version"),
        app_version=parts.app_version,
        values=_with_nfd(parts, source),
        source=source,
        prefix=prefix,
        sha256=sha256,
    )


def _with_nfd(parts: _Parts, source: str) -> Values:
    """The values, with the image of Node Feature Discovery that its own chart inside names."""
    inner = parts.charts.get(NFD)
    if inner is None:
        if text_at(parts.values, f"{NFD}.image.repository") and text_at(parts.values, f"{NFD}.image.tag"):
            return parts.values
        if parts.name == OURS and (version := _nfd_version(parts.chart)):
            image = {"repository": "registry.k8s.io/nfd/node-feature-discovery", "tag": f"v{version}"}
            return merged({NFD: {"image": image}}, parts.values)
        raise InputError(
            f"{source} lacks the chart {NFD} in its charts/, so its image is not known",
            resolution="run `helm dependency build` in it, or give the chart's archive (helm pull)",
        )
    image = dict(table_at(inner.values, "image"))
    image["tag"] = text_at(image, "tag") or inner.app_version
    return merged({NFD: {"image": image}}, parts.values)


def _nfd_version(chart: Values) -> str:
    """The version of the chart of NFD that ours depends on; its image has it as its tag."""
    dependencies = at(chart, "dependencies")
    for one in dependencies if isinstance(dependencies, list) else ():
        if isinstance(one, dict) and text_at(one, "name") == NFD:
            return text_at(one, "version")
    return ""


def _charts() -> Iterator[int]:
    """A number for each chart that is read: a small archive may hold itself, and that a thousand times."""
    yield from range(_MAX_CHARTS)
    raise InputError(f"there are more than {_MAX_CHARTS} charts within one another")


def _from_folder(path: Path, numbers: Iterator[int]) -> _Parts:
    next(numbers)
    folder = path / "charts"
    charts = []
    for inner in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (inner / "Chart.yaml").is_file():
            charts.append(_from_folder(inner, numbers))
        elif inner.suffix == ".tgz" and inner.is_file():
            charts.append(_from_archive(_read(inner), str(inner), numbers))
    if not (path / "Chart.yaml").is_file():
        raise InputError(f"{path} is no chart: it has no Chart.yaml")
    values = path / "values.yaml"
    return _Parts(
        chart=read_mapping(path / "Chart.yaml"),
        values=read_mapping(values) if values.is_file() else {},
        charts={one.name: one for one in charts},
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _MAX_FILE:
        raise InputError(f"{path} has more than {_MAX_FILE >> 20} MiB; it is no chart")
    return data


def _from_archive(data: bytes, name: str, numbers: Iterator[int]) -> _Parts:
    files: dict[PurePosixPath, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(_unpacked(data, name)), mode="r:") as archive:
            files.update(_members(archive, name))
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        raise InputError(
            f"{name} is no chart's archive", details=[str(error)], resolution="get it anew: helm pull"
        ) from None
    tops = {path.parts[0] for path in files}
    if len(tops) != 1:
        raise InputError(f"{name} is no chart's archive: it holds {len(tops)} folders, not one")
    return _parts(files, PurePosixPath(tops.pop()), name, numbers)


def _unpacked(data: bytes, name: str) -> bytes:
    """The tar in a .tgz. It is bounded here: tarfile reads a header's long name whole, however long."""
    content = zlib.decompressobj(wbits=31).decompress(data, _MAX_UNPACKED + 1)
    if len(content) > _MAX_UNPACKED:
        raise InputError(f"{name} is no chart: it unpacks to more than {_MAX_UNPACKED >> 20} MiB")
    return content


def _members(archive: tarfile.TarFile, name: str) -> Iterator[tuple[PurePosixPath, bytes]]:
    """The plain files that are read. Links count as nothing."""
    for count, member in enumerate(archive):
        if count >= _MAX_MEMBERS:
            raise InputError(f"{name} is no chart: it has more than {_MAX_MEMBERS} files")
        path = PurePosixPath(member.name)
        wanted = path.name in _READ or path.suffix == ".tgz"
        if not member.isreg() or not wanted or path.is_absolute() or ".." in path.parts:
            continue
        if member.size > _MAX_FILE:
            raise InputError(f"{name}: {path} has more than {_MAX_FILE >> 20} MiB")
        file = archive.extractfile(member)
        if file is not None:
            yield path, file.read()


def _parts(
    files: Mapping[PurePosixPath, bytes], top: PurePosixPath, name: str, numbers: Iterator[int]
) -> _Parts:
    next(numbers)

    def table(path: PurePosixPath) -> dict[str, Any]:
        documents = parse_documents(files.get(path, b""), f"{name}: {path}")
        return mapping(documents[0] if documents else None, f"{name}: {path}")

    if top / "Chart.yaml" not in files:
        raise InputError(f"{name} is no chart's archive: it has no {top}/Chart.yaml")
    charts = []
    for path in sorted(files):
        if path.parent == top / "charts" and path.suffix == ".tgz":
            charts.append(_from_archive(files[path], f"{name}: {path}", numbers))
        elif path.parent.parent == top / "charts" and path.name == "Chart.yaml":
            charts.append(_parts(files, path.parent, name, numbers))
    return _Parts(
        chart=table(top / "Chart.yaml"),
        values=table(top / "values.yaml"),
        charts={one.name: one for one in charts},
    )
