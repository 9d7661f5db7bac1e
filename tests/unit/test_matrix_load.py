"""Reading matrix files: every problem at once with its place, and nothing but a matrix or an InputError for
any bytes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from driverforge_build import resources
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.load import Matrix, parse_matrix
from driverforge_build.matrix.yamltree import MAX_BYTES, MAX_DEPTH
from driverforge_core.errors import InputError

BUILTIN = resources.builtin_matrix().read_bytes()
EXTENDS = "extends: builtin\n"


def problems(text: str | bytes) -> list[str]:
    """The problems of a file named my.yaml, each without the file's name: 'LINE: what'."""
    with pytest.raises(InputError) as caught:
        parse_matrix(text.encode() if isinstance(text, str) else text, name="my.yaml")
    assert all(line.startswith(("my.yaml:", "matrix.yaml:")) for line in caught.value.details)
    return [line.removeprefix("my.yaml:") for line in caught.value.details]


def site(text: str) -> Matrix:
    return parse_matrix((EXTENDS + text).encode(), name="my.yaml")


VENDORS = "systems: [{id: debian12, drivers: [{id: '580', variants: [precompiled], vendor_modules: true"
ONE_PROBLEM = [
    # what stands in line 3, the key's section, the start of what is said
    ("sytems: []", "3: unknown key 'sytems'; did you mean systems?"),
    ("systems: [{id: debian12, bsae: x}]", "3: unknown key 'bsae'; did you mean base?"),
    (
        "systems: [{id: debian12, archs: amd64}]",
        "3: `archs` is the text 'amd64'; write a list: `archs: [ONE, TWO]`",
    ),
    ("systems: [{id: debian12, archs: [amd46]}]", "3: archs: 'amd46' is not allowed; did you mean amd64?"),
    ("systems: [{id: debian12, archs: []}]", "3: `archs` has no entries; write at least one"),
    (
        "systems: [{id: debian12, kernels: [{id: '6.1', headers: []}]}]",
        "3: `headers` has no entries; write at least one",
    ),
    (
        "systems: [{id: debian12, kernels: [{id: '6.1', image: []}]}]",
        "3: `image` has no entries; write at least one",
    ),
    ("systems: [{id: debian12, archs: [amd64, amd64]}]", "3: archs: 'amd64' is listed twice; keep one"),
    ("systems: [{id: debian12, name: [a]}]", "3: `name` is a list; write one value: `name: TEXT`"),
    ("systems: [{id: debian12, name: }]", "3: name: the value is empty; it must be one line of text"),
    ("systems: [{id: debian12, python: 3.11}]", "3: `python` is the text '3.11'; write KEY: VALUE lines"),
    (
        "systems: [{id: debian12, mirror: mirror.site}]",
        "3: mirror: 'mirror.site' is not a URL; write https://HOST/PATH",
    ),
    ("systems: [{id: debian, name: x}]", "3: id: 'debian' is not an OS id; write ID and VERSION_ID of its"),
    ("systems: [{id: d12, name: x}]", "3: id: 'd12' is not an OS id; write ID and VERSION_ID of its"),
    (
        "systems: [{id: my-linux9, name: x}]",
        "3: id: 'my-linux9' cannot end the tag of an image: it would be read as part of a kernel's release",
    ),
    ("systems: [{id: debian12, base: Debian}]", "3: base: 'Debian' is not an image reference"),
    ("systems: [{id: debian12}, {id: debian12}]", "3: a second row with id 'debian12' (first in line 3)"),
    (
        "systems: [{id: debian12, name: a, name: b}]",
        "3: 'name' a second time (first in line 3); keep one of them",
    ),
    (
        "systems: [{id: debain12, remove: true}]",
        "3: `remove: true`, but there is no row 'debain12' to remove; did you mean debian12",
    ),
    ("systems: [{id: debian12, remove: yes}]", "3: `remove` knows only `true`"),
    ("systems: [{id: debian12, remove: true, base: x}]", "3: 'base' in a row that is removed"),
    (
        "systems: [{id: alma9, like: rocky99}]",
        "3: `like: rocky99` names no row of this list; did you mean rocky9",
    ),
    (
        "systems: [{id: debian12, drivers: [{id: '535', branch: '553'}]}]",
        "3: systems debian12 drivers 535: 535.261.03 is not of branch 553",
    ),
    (
        "systems: [{id: debian12, drivers: [{id: '535', kernels: ['6.2']}]}]",
        "3: systems debian12 drivers 535: '6.2' matches none of the OS's",
    ),
    (
        "systems: [{id: debian12, drivers: [{id: '535', version: 535}]}]",
        "3: version: '535' is not a driver version",
    ),
    (
        "systems: [{id: debian12, drivers: [{id: '470', module_types: [open]}]}]",
        "3: systems debian12 drivers 470: branch 470 has no open",
    ),
    (
        "systems: [{id: debian12, drivers: [{id: '580', url: 'file:///srv/a.run'}]}]",
        "3: url: 'file:///srv/a.run' is not an address to",
    ),
    (
        "systems: [{id: debian12, drivers: [{id: '580', url: 'http://a/$HOME'}]}]",
        "3: url: 'http://a/$HOME' is not an address to",
    ),
    (
        "systems: [{id: debian12, drivers: [{id: '580', payload: image}]}]",
        "3: systems debian12 drivers 580: payload image needs `image:`",
    ),
    (
        "systems: [{id: debian12, drivers: [{id: '580', payload: image, image: 'a/b:{verison}'}]}]",
        "3: systems debian12 drivers 580: {verison} in 'a/b:{verison}' is no placeholder here; did you mean",
    ),
    (
        "systems: [{id: debian12, drivers: [{id: '580', payload: image, image: 'a/{os}:1'}]}]",
        "3: image: 'a/{os}:1' is not an image reference",
    ),
    (
        f"{VENDORS}}}]}}]",
        "3: systems debian12 drivers 580: `vendor_modules: true` needs a row `- id: open` in `modules`",
    ),
    (
        f"{VENDORS}, module_types: [open], modules: [{{id: open, packages: ['a-{{kernelversion}}']}}]}}]}}]",
        "3: systems debian12 drivers 580: {kernelversion} in 'a-{kernelversion}' is no placeholder here;",
    ),
    (
        f"{VENDORS}, payload: image, image: a/b}}]}}]",
        "3: systems debian12 drivers 580: a driver image brings its own modules; write payload packages or",
    ),
    (
        "systems: [{id: debian12, drivers: [{id: '535', modules: [{id: open, tree: a b}]}]}]",
        "3: tree: 'a b' is not a path",
    ),
    (
        "systems: [{id: debian12, kernels: [{id: '6.1', repositories: [sid]}]}]",
        "3: systems debian12 kernels 6.1: no repository 'sid'",
    ),
    (
        "systems: [{id: debian12, kernels: [{id: '6.1', headers: ['a-{relase}']}]}]",
        "3: systems debian12 kernels 6.1: {relase} in",
    ),
    (
        "systems: [{id: debian12, kernels: [{id: '6.1', headers: ['a-{release']}]}]",
        "3: systems debian12 kernels 6.1: a brace without its partner",
    ),
    (
        "systems: [{id: debian12, kernels: [{id: '6.1', compilers: ['gcc-{release}']}]}]",
        "3: systems debian12 kernels 6.1: {release} in 'gcc-{release}' is no placeholder here",
    ),
    (
        "systems: [{id: debian12, tools: {runtime: ['kmod-{version} [amd64]']}}]",
        "3: systems debian12: {version} in 'kmod-{version} [amd64]' is no placeholder here",
    ),
    (
        "systems: [{id: rocky9, repositories: [{id: 'rhel-{mahcine}'}]}]",
        "3: systems rocky9: {mahcine} in 'rhel-{mahcine}' is no placeholder here; did you mean machine?",
    ),
    (
        "systems: [{id: debian12, drivers: [{id: '470', module_types: [open]}]}]",
        "3: systems debian12 drivers 470: open modules drive no GPU without firmware; write `firmware:`",
    ),
    (
        "systems: [{id: rocky9, repositories: [{id: baseos, urls: ['https://a/{relaesever}']}]}]",
        "3: systems rocky9: {relaesever} in 'https://a/{relaesever}' is no placeholder here; did you mean",
    ),
    (
        "systems: [{id: rocky9, repositories: [{id: baseos, urls: ['https://a/', 'https://b/ [arm64]']}]}]",
        "3: systems rocky9: baseos: two addresses for arm64; keep one",
    ),
    (
        "systems: [{id: rocky9, repositories: [{id: baseos, older: 'https://a/'}]}]",
        "3: systems rocky9: baseos: `older:` needs {releasever}, which the minor release replaces",
    ),
    (
        "systems: [{id: debian12, repositories: [{id: bookworm, urls: ['https://a/{releasever}']}]}]",
        "3: systems debian12: bookworm: an address with {releasever} needs `releasever:` of the OS",
    ),
    (
        "systems: [{id: rocky9, repositories: [{id: baseos, key: a.pub}]}]",
        "3: systems rocky9: baseos: `key:` needs `key_sha256:` or `key_fingerprint:`, and they need it",
    ),
    (
        "systems: [{id: debian12, repositories: [{id: bookworm, key: a, key_sha256: " + "0" * 64 + "}]}]",
        "3: systems debian12: bookworm: `key:` is for a repository without suites; write `keyring:`",
    ),
    (
        'systems: [{id: debian12, fabric: [{id: "580", packages: ["x-{release}"]}]}]',
        "3: systems debian12: {release} in 'x-{release}' is no placeholder here; known: branch, version",
    ),
    (
        "systems: [{id: rocky9, repositories: [{id: baseos, urls: ['ftp://a/']}]}]",
        "3: urls: 'ftp://a/' is not an address; write https://HOST/PATH",
    ),
    (
        "systems: [{id: debian12, drivers: [{id: '535', userspace: ['a [arm64]']}]}]",
        "3: systems debian12 drivers 535: no package is left for amd64; name one",
    ),
    (
        "branches: [{id: '550', gpus: [amper]}]",
        "3: branches 550: no row 'amper' in `gpus`; did you mean ampere?",
    ),
    (
        "branches: [{id: '550', eol: {date: 2026-13, source: x}}]",
        "3: date: '2026-13' has no month 13; write YYYY-MM",
    ),
    ("gpus: [{id: ada, devices: [2681-2680]}]", "3: devices: '2681-2680' runs backwards; write 2680-2681"),
    (
        "probes: [{id: no-in-irq, arguments: 3}]",
        "3: probes no-in-irq: `arguments: NUMBER` belongs to `kind: arguments`",
    ),
    ("probes: [{id: no-in-irq, arguments: x}]", "3: arguments: 'x': input should be a valid integer"),
    (
        "exclusions: [{id: a, systems: [debain12], reason: r, source: s}]",
        "3: exclusions a: 'debain12' matches none of the systems",
    ),
    (
        "exclusions: [{id: a, source: s}]",
        "3: 'reason' is missing; write `reason:` (one sentence for the plan)",
    ),
    ("keep: {systems: ['debain*']}", "3: 'debain*' matches none of the systems"),
    ("keep: {branches: ['551']}", "3: '551' matches none of the branches"),
    ("keep: []", "3: this is a list; write KEY: VALUE lines"),
    ("branches: hello", "3: `branches` is the text 'hello'; write a list of `- id:` rows"),
    ("branches: [hello]", "3: this is the text 'hello'; write KEY: VALUE lines (`- id: ...` for a row)"),
    ("a: b: c", "3: YAML syntax: a second ': ' in one line"),
    ("systems: [{id: x", "3: YAML syntax: a '[' or '{' that is not closed"),
    ("systems: 'x", "3: YAML syntax: a quote that is not closed"),
    ("gpus: !!python/object:os.system []", "3: the tag tag:yaml.org,2002:python/object:os.system; remove it"),
    ("gpus: *nothing", "3: *nothing names no anchor"),
    ("gpus: {<<: {}}", "3: '<<' (a merge key); write `like: ID`"),
    ("{a: b}: c", "3: a list or mapping as a key"),
    ("gpus: []\t", "3: a tab; indent and separate with spaces"),
    ("gpus: []\x07", "3: the character U+0007 may not stand in YAML; remove it"),
]


@pytest.mark.parametrize(("line", "said"), ONE_PROBLEM, ids=[said for _, said in ONE_PROBLEM])
def test_a_problem_is_told_with_its_line_and_what_to_write(line: str, said: str) -> None:
    found = problems(f"{EXTENDS}# a comment\n{line}\n")
    assert any(problem.startswith(said) for problem in found), found


EVERYTHING = """\
extends: builtn
sytems: []
keep: {systems: [debain12]}
systems:
  - id: debian12
    base: Debian:Book worm
    archs: [amd64]
    archs: [amd46]
\tmirror: http://x
    drivers:
      - id: "535"
        module_types: [opne]
        versoin: "535.1"
  - id: foo: bar
  - id: x
    a: [1, 2
branches: hello
"""


def test_one_run_tells_everything_that_is_wrong() -> None:
    lines = [int(problem.partition(":")[0]) for problem in problems(EVERYTHING)]
    assert lines == sorted(lines)
    assert set(lines) == {1, 2, 3, 6, 8, 9, 12, 13, 14, 15, 16, 17}


def test_a_dropped_line_is_not_also_told_as_missing() -> None:
    text = BUILTIN.decode().replace(
        "    designation: New Feature Branch\n", "    designation: New: Feature: Branch\n"
    )
    assert [problem.partition(": ")[2].partition(";")[0] for problem in problems(text)] == [
        "YAML syntax: a second ': ' in one line"
    ]


def test_problems_of_rows_and_between_rows_come_together() -> None:
    text = "branches:\n  - {id: '550', gpus: [amper]}\n  - {id: '535', cuda: [12]}\n"
    assert [problem.partition(";")[0] for problem in problems(EXTENDS + text)] == [
        "3: branches 550: no row 'amper' in `gpus`",
        "4: `cuda` is a list",
    ]


MANY = """\
extends: builtin
{keep}
sistems: []
systems:
  - id: debian12
    drivers:
      - id: '535'
        module_type: [open]
      - id: '580'
        module_types: [opn]
        branch: '999'
        branch: '999'
      - version: 580.1.1
  - name: the first without an id
  - name: the second
  - id: debian13
\tmirror: site
    drivers:
      - id: '535'
        branch: '998'
"""


@pytest.mark.parametrize(
    "keep", ["#", "keep: {systems: [debian12], branches: ['535']}", "keep: {branches: ['5*']}"]
)
def test_no_mistake_hides_another_or_makes_one_up(keep: str) -> None:
    found = problems(MANY.format(keep=keep))
    assert [problem.partition(";")[0] for problem in found if "`keep`" not in problem] == [
        "3: unknown key 'sistems'",
        "8: unknown key 'module_type'",
        "10: module_types: 'opn' is not allowed",
        "11: systems debian12 drivers 580: no row '999' in `branches`",
        "12: 'branch' a second time (first in line 11)",
        "13: 'id' is missing",
        "14: 'id' is missing",
        "15: 'id' is missing",
        "17: a tab",
        "17: mirror: 'site' is not a URL",
        "20: systems debian13 drivers 535: no row '998' in `branches`",
    ]


def test_keep_that_leaves_a_row_of_the_file_no_driver_says_so() -> None:
    text = "keep: {branches: ['470']}\nsystems: [{id: debian13, mirror: 'http://mirror.site'}]\n"
    assert [problem.partition(";")[0] for problem in problems(EXTENDS + text)] == [
        "2: `keep` leaves systems debian13 no driver"
    ]


@pytest.mark.parametrize("keep", ["#", "keep: {branches: ['535']}"])
def test_an_os_whose_last_driver_is_removed_has_to_go_too(keep: str) -> None:
    shipped = [driver.id for row in load_matrix().rows if row.id == "debian13" for driver in row.drivers]
    gone = shipped if keep == "#" else ["535"]
    removals = "".join(f"      - {{id: '{name}', remove: true}}\n" for name in gone)
    (told,) = problems(f"{EXTENDS}{keep}\nsystems:\n  - id: debian13\n    drivers:\n{removals}")
    assert "take the OS away too" in told
    assert "remove: true" in told


def test_an_empty_file_says_how_to_begin() -> None:
    assert problems("") == [
        "1: the file is empty; write `extends: builtin` to start from the shipped catalogue"
    ]
    assert problems("[]")[0].startswith("1: a list at the top; write KEY: lines (extends, keep")


def test_a_file_that_is_not_there_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no/such/file cannot be read: No such file or directory") as caught:
        load_matrix(Path("no/such/file"))
    assert caught.value.exit_code == os.EX_DATAERR


def test_a_package_that_is_named_with_and_without_an_architecture_is_taken_once() -> None:
    matrix = site("systems: [{id: debian12, tools: {runtime: [kmod, 'kmod [amd64]']}}]\n")
    (row,) = [row for row in matrix.rows if row.id == "debian12"]
    assert row.on("amd64").tools.runtime == ("kmod",)


def test_every_scalar_stays_text() -> None:
    matrix = site("branches:\n  - {id: '550', designation: 0777, cuda: no, note: 12:30, newest: 550.90}\n")
    branch = matrix.branch(550)
    assert (branch.designation, branch.cuda, branch.note, branch.newest) == ("0777", "no", "12:30", "550.90")


def test_windows_line_ends_and_a_byte_order_mark_are_read() -> None:
    text = "\ufeffextends: builtin\r\nsystems:\r\n  - {id: debian12, name: Ours}\r\n"
    row = parse_matrix(text.encode(), name="my.yaml").row("debian12")
    assert row is not None
    assert row.name == "Ours"


def test_bytes_that_are_no_text_are_named_with_their_line() -> None:
    assert (
        problems(b"extends: builtin\ngpus: []\n# \xff\n")[0]
        == "3: byte 0xff is not UTF-8; save the file as UTF-8"
    )


def test_aliases_are_counted_before_they_are_expanded() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert problems(bomb)[-1].endswith(
        "more than 50000 values, aliases counted as often as they are used; write a smaller matrix"
    )


@pytest.mark.parametrize(
    "text",
    [
        "gpus: " + "[" * 400_000,
        "".join("- " * depth + "x\n" for depth in (1000,)),
        "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [[[[[*a{n}]]]]]\n" for n in range(400)),
    ],
    ids=["brackets", "dashes", "aliases"],
)
def test_deep_nesting_is_refused_before_anything_recurses(text: str) -> None:
    assert any(f"nested deeper than {MAX_DEPTH} levels" in problem for problem in problems(text))


def test_a_huge_file_is_refused_unread() -> None:
    assert problems(b"#" * (MAX_BYTES + 1)) == [
        f"1: the file has {MAX_BYTES + 1} bytes; a matrix has at most {MAX_BYTES}"
    ]


def test_a_second_document_is_refused() -> None:
    assert problems(EXTENDS + "---\nextends: builtin\n") == [
        "2: a second document; keep one, without '---' between"
    ]


# Merging


def test_a_site_changes_one_key_and_keeps_the_rest() -> None:
    shipped, ours = (
        load_matrix().row("debian12"),
        site("systems:\n  - {id: debian12, base: 'r.site/debian:12'}\n").row("debian12"),
    )
    assert shipped is not None
    assert ours is not None
    assert ours.base == "r.site/debian:12"
    assert ours == shipped.model_copy(update={"base": "r.site/debian:12"})


def test_lists_of_rows_merge_by_id_and_other_lists_replace() -> None:
    ours = site(
        "systems:\n  - id: debian12\n    drivers:\n      - {id: '535', module_types: [open], userspace: "
        "[nvidia-smi]}\n"
    ).row("debian12")
    assert ours is not None
    driver = ours.driver("535")
    assert driver is not None
    assert (driver.module_types, driver.userspace, driver.version) == (
        ("open",),
        ("nvidia-smi",),
        "535.261.03",
    )
    assert [row.id for row in ours.drivers] == ["470", "535", "580", "595", "610", "615"]


def test_remove_takes_a_row_away_at_every_depth() -> None:
    matrix = site(
        "systems:\n  - {id: debian13, remove: true}\n  - id: debian12\n    drivers: [{id: '470', remove: "
        "true}]\n"
    )
    row = matrix.row("debian12")
    assert matrix.row("debian13") is None
    assert row is not None
    assert row.driver("470") is None


def test_a_new_distribution_like_another_needs_three_lines() -> None:
    text = (
        "systems:\n  - {id: alma9, like: rocky9, name: AlmaLinux 9, base: 'almalinux:9', drivers: [{id: "
        "'535', remove: true}]}\n"
    )
    matrix = site(text)
    ours, rocky = matrix.row("alma9"), matrix.row("rocky9")
    assert ours is not None
    assert rocky is not None
    assert ours.kernels == rocky.kernels
    assert [row.id for row in ours.drivers] == [row.id for row in rocky.drivers if row.id != "535"]


def test_a_change_to_a_shipped_row_does_not_reach_the_rows_like_it() -> None:
    matrix = site("systems:\n  - {id: rhel9, base: 'mine:9'}\n")
    rocky = matrix.row("rocky9")
    assert rocky is not None
    assert rocky.base == "rockylinux/rockylinux:9.8-ubi"


def test_like_in_a_circle_names_the_circle() -> None:
    found = problems(EXTENDS + "systems:\n  - {id: alma8, like: alma9}\n  - {id: alma9, like: alma8}\n")
    assert any("`like` runs in a circle (alma8 -> alma9 -> alma8)" in problem for problem in found)


def test_a_branch_is_offered_by_the_distributions_own_range_first() -> None:
    text = (
        "systems:\n  - id: ubuntu26.04\n    drivers:\n      - {id: '550', branch: '550', version: "
        "'550.163.01', payload: runfile,\n"
    )
    found = problems(EXTENDS + text + "         module_types: [open], url: 'https://h/{version}'}\n")
    assert found == [
        (
            "5: systems ubuntu26.04 drivers 550: branch 550 is not offered for ubuntu26.04; see `systems` of "
            "its row in `branches`"
        )
    ]


def test_keep_leaves_the_rest_of_the_catalogue_out() -> None:
    matrix = site("keep: {systems: ['debian1[23]'], branches: ['550']}\n")
    assert [(row.id, [driver.id for driver in row.drivers]) for row in matrix.rows] == [("debian13", ["550"])]


def test_keep_never_leaves_out_what_the_file_itself_has() -> None:
    matrix = site("keep: {systems: [debian13]}\nsystems:\n  - {id: alma9, like: rocky9, name: Alma}\n")
    assert [row.id for row in matrix.rows] == ["debian13", "alma9"]


def test_rows_know_the_place_they_come_from() -> None:
    matrix = site("systems:\n  - id: debian12\n    drivers:\n      - {id: '535', module_types: [open]}\n")
    assert matrix.origin("systems", "debian12") == "my.yaml:3"
    assert matrix.origin("systems", "debian12/535") == "my.yaml:5"
    file, _, line = matrix.origin("systems", "debian12/470").partition(":")
    assert file == "matrix.yaml"
    assert BUILTIN.decode().splitlines()[int(line) - 1].strip() == '- id: "470"'


# Anything at all


def outcome(data: bytes) -> Matrix | InputError:
    try:
        return parse_matrix(data, name="fuzz.yaml")
    except InputError as error:
        return error


def accepted(data: bytes) -> None:
    found = outcome(data)
    assert isinstance(found, Matrix) or (found.details and found.exit_code == os.EX_DATAERR)


@given(st.binary(max_size=300))
@example(b"\xfe\xff\x00a")
@example(b"? [\n")
@example(b"%YAML 9.9\n--- x")
def test_any_bytes_give_a_matrix_or_an_input_error(data: bytes) -> None:
    accepted(data)


WORDS = [
    *re.findall(
        r"\w+",
        "extends builtin keep systems branches gpus probes id like remove true debian12 535 drivers kernels "
        "version archs",
    ),
    *"[]{},:-?&*!|>%#'",
    *(
        "\n",
        "\n  ",
        "\n  - ",
        "\n    ",
        ": ",
        "&a ",
        "*a ",
        '"',
        "\t",
        "---\n",
        "<<: ",
        "\x00",
        "é",
        "\u2028",
    ),
]
heaps = st.lists(st.sampled_from(WORDS), max_size=60).map("".join)


@given(heaps)
def test_any_heap_of_yaml_gives_a_matrix_or_an_input_error(text: str) -> None:
    accepted(text.encode())


@given(heaps)
def test_any_heap_of_yaml_over_the_catalogue_gives_a_matrix_or_an_input_error(text: str) -> None:
    accepted((EXTENDS + text).encode())


LINES = BUILTIN.decode().splitlines()


@given(
    st.integers(0, len(LINES) - 1),
    st.sampled_from(["drop", "double", "indent", "quote", "cut"]),
    st.integers(0, 60),
)
def test_any_damaged_line_of_the_shipped_file_gives_a_matrix_or_an_input_error(
    number: int, damage: str, column: int
) -> None:
    lines = list(LINES)
    line = lines[number]
    lines[number : number + 1] = {
        "drop": [],
        "double": [line, line],
        "indent": [" " + line],
        "quote": [line[:column] + '"' + line[column:]],
        "cut": [line[:column]],
    }[damage]
    accepted("\n".join(lines).encode())


def test_a_row_like_a_shipped_one_wants_the_shipped_rows() -> None:
    """Without `extends` nothing of them is there, and what the row lacks says nothing of that."""
    text = "systems:\n  - {id: alma9, like: rocky9, name: AlmaLinux 9, base: alma, releasver: '9'}\n"
    told = problems(text)
    assert len(told) == 2
    missing = "2: `like: rocky9` is a row of the shipped catalogue; write `extends: builtin` at the top"
    assert told[0] == missing
    # it would be wrong all the same
    assert "releasver" in told[1]
    told = problems("systems:\n  - {id: alma9, like: rocky9000}\n")
    assert any(line.startswith("2: `like: rocky9000` names no row") for line in told)
