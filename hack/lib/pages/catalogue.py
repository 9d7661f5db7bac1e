"""Write what is generated from matrix.yaml, from models, and from the shapes of our JSON.

With --check, write nothing and exit 1 where a file differs.

* builder/driverforge_build/data/matrix.schema.json, for editors
* builder/driverforge_build/data/reports/*.schema.json, of what `driverforge` writes for other programs
* entrypoints/driverforge_operator/data/*.schema.json, of what `driverforge-operator` does
* entrypoints/driverforge_host/catalogue.py, what a node needs to know of the matrix
* charts/driverforge/crds/*.yaml, the operator's custom resources, from their models
* charts/driverforge/files/rights.yaml and values.schema.json, from the kinds that it handles and those models
* docs/matrix.md, the parts between `<!-- generated: NAME -->` and `<!-- end -->`
"""

from __future__ import annotations

import json
import pprint
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, get_args

import own_python
from pages.files import ROOT, write_or_check

if __name__ == "__main__":
    # before the imports that need the checkout's packages
    own_python.use()
sys.path[:0] = [str(ROOT / "builder"), str(ROOT / "entrypoints")]

import yaml  # noqa: E402

from driverforge_build.matrix import Matrix, jit_cells, load_matrix  # noqa: E402
from driverforge_build.matrix.branches import Branch, Probe  # noqa: E402
from driverforge_build.matrix.fields import Row  # noqa: E402
from driverforge_build.matrix.model import MODELS, Keep  # noqa: E402
from driverforge_build.matrix.probes import probe_rule  # noqa: E402
from driverforge_build.matrix.validate import row_model  # noqa: E402
from driverforge_core.osid import OsId  # noqa: E402
from driverforge_operator.crd import schema as operator_schema  # noqa: E402
from driverforge_operator.explain.documents import DOCUMENTS as OPERATOR_DOCUMENTS  # noqa: E402
from pages.rights import rights  # noqa: E402
from pages.schemas import DOCUMENTS, document_schema, matrix_schema  # noqa: E402
from pages.valuesschema import values_schema  # noqa: E402

RIGHTS_HEAD = "# Generated from entrypoints/driverforge_operator by hack/generate; change it there.\n"
RESOURCE_HEAD = "# Generated from entrypoints/driverforge_operator/crd by hack/generate; change it there.\n"

CATALOGUE_HEAD = '''\
"""What a node knows of the matrix: OS families, GPUs, and kernels that drivers do not compile for.

Generated from matrix.yaml by hack/generate; change it there.
"""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_core.headerprobe import HeaderProbe, ProbeRule


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuArchitecture:
    """A GPU architecture: which devices have it, and what drives them."""

    name: str
    # PCI device ids of vendor 10de, as (first, last)
    devices: tuple[tuple[int, int], ...]
    module_types: tuple[str, ...]
    branches: tuple[int, ...]


'''


def main() -> int:
    matrix = load_matrix()
    page = (ROOT / "docs/matrix.md").read_text(encoding="utf-8")
    data = "builder/driverforge_build/data"
    files = {
        f"{data}/matrix.schema.json": json.dumps(matrix_schema(), indent=2) + "\n",
        **{
            f"{data}/reports/{name}.schema.json": json.dumps(document_schema(one), indent=2) + "\n"
            for name, one in DOCUMENTS.items()
        },
        **{
            f"entrypoints/driverforge_operator/data/{name}.schema.json": json.dumps(
                document_schema(one), indent=2
            )
            + "\n"
            for name, one in OPERATOR_DOCUMENTS.items()
        },
        "entrypoints/driverforge_host/catalogue.py": formatted(catalogue(matrix)),
        "docs/matrix.md": with_blocks(page, matrix),
        "charts/driverforge/crds/clusterpolicies.yaml": resource(operator_schema.cluster_policy()),
        "charts/driverforge/crds/nvidiadrivers.yaml": resource(operator_schema.nvidia_driver()),
        "charts/driverforge/files/rights.yaml": rights_page(),
        "charts/driverforge/values.schema.json": json.dumps(values_schema(), indent=1) + "\n",
    }
    return write_or_check(files, __doc__)


def resource(definition: dict[str, Any]) -> str:
    # by way of JSON, which has no references: YAML would write the second of two equal lists as an alias
    return RESOURCE_HEAD + yaml.safe_dump(json.loads(json.dumps(definition)), sort_keys=False, width=110)


def rights_page() -> str:
    return RIGHTS_HEAD + yaml.safe_dump(rights(), sort_keys=False, width=110)


def catalogue(matrix: Matrix) -> str:
    gpus = [
        f"GpuArchitecture(name={gpu.id!r}, devices={tuple(map(bounds, gpu.devices))!r}, "
        f"module_types={gpu.module_types!r}, "
        f"branches={tuple(int(branch.id) for branch in matrix.branches if gpu.id in branch.gpus)!r})"
        for gpu in matrix.gpus
    ]
    switches = tuple(bounds(devices) for row in matrix.nvswitches for devices in row.devices)
    probes = [repr(probe_rule(row)) for row in matrix.probes]
    families = {OsId.parse(row.id).id: row.family for row in matrix.rows}
    return (
        CATALOGUE_HEAD
        + "\n\n".join(
            (
                f"# ID of os-release(5) -> family\nFAMILIES: dict[str, str] = {families!r}",
                f"GPUS: tuple[GpuArchitecture, ...] = ({','.join(gpus)},)",
                f"NVSWITCHES: tuple[tuple[int, int], ...] = {pprint.pformat(switches)}",
                f"PROBES: tuple[ProbeRule, ...] = ({','.join(probes)},)",
            )
        )
        + "\n"
    )


def bounds(devices: str) -> tuple[int, int]:
    first, _, last = devices.partition("-")
    return int(first, 16), int(last or first, 16)


def formatted(text: str) -> str:
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--config",
        str(ROOT / "pyproject.toml"),
        "--stdin-filename",
        "catalogue.py",
        "-",
    ]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def with_blocks(page: str, matrix: Matrix) -> str:
    blocks: dict[str, Callable[[Matrix], Iterable[str]]] = {
        "support": support,
        "branches": branches,
        "gpus": gpus,
        "exclusions": exclusions,
        "probes": probes,
        "keys": keys,
    }
    for name, lines in blocks.items():
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = "\n".join(lines(matrix))
        # a function, for the text may hold what re takes for a reference to a group
        page, count = pattern.subn(partial(_filled_block, text), page)
        if count != 1:
            raise SystemExit(f"docs/matrix.md has {count} parts named {name}")
    return page


def _filled_block(text: str, found: re.Match[str]) -> str:
    return f"{found[1]}\n{text}\n\n{found[2]}"


def table(*rows: Iterable[str]) -> list[str]:
    head, *body = [tuple(row) for row in rows]
    lines = [head, tuple("---" for _ in head), *body]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def support(matrix: Matrix) -> Iterable[str]:
    names = [branch.id for branch in matrix.branches]
    cells = {(cell.os.id, cell.driver.branch) for cell in jit_cells(matrix)}
    rows = []
    for row in matrix.rows:
        found = []
        for name in names:
            drivers = [driver for driver in row.drivers if driver.branch == name]
            found.append(
                "<br>".join(
                    dict.fromkeys(
                        describe(driver.version, driver.payload, driver.module_types) for driver in drivers
                    )
                )
            )
        rows.append(
            (
                f"{row.name} (`{row.id}`)",
                ", ".join(row.archs),
                ", ".join(line.id for line in row.kernels),
                *found,
            )
        )
    yield from table(("OS", "architectures", "kernels", *names), *rows)
    yield ""
    yield (
        f"{len(matrix.rows)} operating systems, {len(cells)} pairs of OS and branch as JIT image; *o* "
        f"open, *p* proprietary modules."
    )


def describe(version: str, payload: str, module_types: Iterable[str]) -> str:
    return f"{version} {payload} *{''.join(kind[0] for kind in module_types)}*"


def branches(matrix: Matrix) -> Iterable[str]:
    def eol(branch: Branch) -> str:
        return "" if branch.eol is None else f"{branch.eol.date or 'ended'} ({branch.eol.source})"

    yield from table(
        ("branch", "kind", "newest known", "CUDA", "GPUs", "end of life"),
        *(
            (b.id, b.designation, b.newest or "none", b.cuda, ", ".join(b.gpus), eol(b))
            for b in matrix.branches
        ),
    )


def gpus(matrix: Matrix) -> Iterable[str]:
    rows = ((gpu.id, ", ".join(gpu.module_types), ", ".join(gpu.devices)) for gpu in matrix.gpus)
    yield from table(("architecture", "module types", "PCI devices"), *rows)


def exclusions(matrix: Matrix) -> Iterable[str]:
    yield from table(
        ("id", "reason", "source"), *((row.id, row.reason, row.source) for row in matrix.exclusions)
    )


def probes(matrix: Matrix) -> Iterable[str]:
    def drivers(row: Probe) -> str:
        return ", ".join(
            target.branch
            + (f" before {target.before}" if target.before else "")
            + (f" (Debian's before {target.patched})" if target.patched else "")
            for target in row.drivers
        )

    yield from table(
        ("id", "what is seen", "drivers", "module types"),
        *((row.id, row.reason, drivers(row), ", ".join(row.module_types)) for row in matrix.probes),
    )


def keys(_: Matrix) -> Iterable[str]:
    yield from key_tables("keep", Keep, set())
    done: set[type[Row]] = set()
    for section, model in MODELS.items():
        yield ""
        yield from key_tables(f"a row of `{section.value}`", model, done)


def key_tables(title: str, model: type[Row], done: set[type[Row]]) -> Iterable[str]:
    done.add(model)
    yield f"**{title}**: {' '.join((model.__doc__ or '').split())}"
    yield ""
    rows = []
    nested: list[tuple[str, type[Row]]] = []
    for name, field in model.model_fields.items():
        inner = row_model(field.annotation)
        if inner is not None and inner not in done:
            nested.append((name, inner))
        rows.append(
            (
                f"`{name}`",
                "yes" if field.is_required() else "",
                shape(field.annotation),
                field.description or "",
            )
        )
    yield from table(("key", "required", "value", "meaning"), *rows)
    for name, inner in nested:
        yield ""
        yield from key_tables(f"`{name}` of {title.removeprefix('a row of ')}", inner, done)


def shape(annotation: object) -> str:
    text = str(annotation)
    if row_model(annotation) is not None:
        return "rows" if "tuple" in text else "keys"
    if "dict[" in text:
        return "a list for each architecture" if "tuple" in text else "text for each architecture"
    words = literals(annotation)
    if words:
        return ("list of " if "tuple" in text else "") + ", ".join(f"`{word}`" for word in words)
    if "tuple[" in text:
        return "list"
    return {"bool": "`true`, `false`", "int": "number"}.get(
        next((kind for kind in ("bool", "int") if kind in text), ""), "text"
    )


def literals(annotation: object) -> list[str]:
    if "Literal" in str(type(annotation)):
        return [str(word) for word in get_args(annotation)]
    return [word for argument in get_args(annotation) for word in literals(argument)]


if __name__ == "__main__":
    sys.exit(main())
