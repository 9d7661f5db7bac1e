"""What goes into an image: pins for everything, one hash over it all, and nothing that names a kernel below
the last layer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock, LockedArchive, Origin, TargetLock
from driverforge_build.matrix import Cell, load_matrix
from driverforge_build.matrix.branches import Exclusion
from driverforge_build.render.bake import LayerCache, bake_document, immutable_tag_of, target_name
from driverforge_build.render.context import BuildContext, context_of, pin_list
from driverforge_build.render.requirements import Archive, archive_of, missing_pins
from driverforge_build.render.spec import EARLIEST_EPOCH, image_specs
from driverforge_core.errors import InputError
from driverforge_core.image import ImageFacts
from driverforge_core.kernel import KernelRelease
from driverforge_core.tags import ImageTag
from support.samples.synthetic import all_cells, synthetic_lock, synthetic_package

MATRIX = load_matrix()
LOCK = synthetic_lock(MATRIX)
CELLS = {cell.key: cell for cell in all_cells(MATRIX)}
JIT = CELLS["debian12-amd64-535.261.03-jit"]
PRECOMPILED = CELLS["debian12-amd64-535.261.03-6.1.0-50-cloud-amd64"]
OTHER_KERNEL = CELLS["debian12-amd64-535.261.03-6.12.95+deb12-cloud-amd64"]
RUNFILE = CELLS["debian12-amd64-580.178.04-jit"]
VENDOR = CELLS["ubuntu24.04-amd64-580.173.02-6.8.0-106-generic"]


def context(cell: Cell, lock: Lock = LOCK, base: str = "") -> BuildContext:
    (image,) = image_specs([cell], lock, given=Given(bases={cell.os.id: base} if base else {}))
    return context_of(image, resources.templates())


def dockerfile(cell: Cell) -> str:
    return context(cell).entries["Dockerfile"].content.decode()


def without(lock: Lock, cell: Cell, **changes: object) -> Lock:
    target = lock.target(cell.os.id, cell.arch)
    assert isinstance(target, TargetLock)
    return lock.with_targets([replace(target, **changes)])  # type: ignore[arg-type]


@pytest.mark.parametrize("cell", CELLS.values(), ids=str)
def test_every_cell_of_the_matrix_renders_from_a_complete_lock(cell: Cell) -> None:
    text = dockerfile(cell)
    used = set(re.findall(r"pins/([a-z-]+)", text))
    made = context(cell).entries
    assert {f"pins/{name}" for name in used} == {path for path in made if path.startswith("pins/")}
    scripts = set(re.findall(r"/run/driverforge/scripts/([a-z-]+)", text))
    texts = [made[f"scripts/{name}"].content.decode() for name in scripts]
    scripts |= {name for one in texts for name in re.findall(r"\$\{0%/\*\}/([a-z-]+)", one)}
    if not any(content.content.endswith(b" signed\n") for content in made.values()):
        scripts.discard("check-signatures")
    assert {f"scripts/{name}" for name in scripts} == {path for path in made if path.startswith("scripts/")}
    for source in re.findall(r"^COPY --link ([^-\s]\S*) ", text, re.MULTILINE):
        assert any(path == source or path.startswith(source) for path in made), source
    assert "# syntax=" not in text, "a frontend image would have to be pulled"
    assert "{{" not in text


@pytest.mark.parametrize(
    ("lock", "said"),
    [
        (Lock(), "the lock does not know 535.261.03 for debian12-amd64"),
        (without(LOCK, PRECOMPILED, kernels={}), "the headers of 6.1.0-50-cloud-amd64 are not pinned"),
        (
            without(LOCK, PRECOMPILED, drivers={"535.261.03": {}}),
            "no package is pinned for the role 'userspace'",
        ),
        (
            without(
                LOCK,
                PRECOMPILED,
                drivers={
                    "535.261.03": {**LOCK.targets["debian12-amd64"].drivers["535.261.03"], "source": ()}
                },
            ),
            "the package nvidia-open-kernel-dkms (modules) is not pinned",
        ),
    ],
)
def test_a_download_without_a_pin_refuses_with_the_command_that_pins_it(lock: Lock, said: str) -> None:
    with pytest.raises(InputError) as caught:
        image_specs(
            [PRECOMPILED], lock, given=Given(matrix=Path("my site.yaml"), lock=Path("site.lock.json"))
        )
    assert f"{PRECOMPILED.key}: {said}" in caught.value.details
    assert (
        caught.value.resolution
        == f"driverforge lock --matrix 'my site.yaml' --lock site.lock.json --select {PRECOMPILED.key}"
    )
    assert caught.value.exit_code == 65


def test_a_systems_name_is_text_in_a_label() -> None:
    named = replace(JIT, os=JIT.os.model_copy(update={"name": 'Debian "bookworm" $HOME \\o/'}))
    assert (
        r'summary="NVIDIA driver 535.261.03 for Debian \"bookworm\" \$HOME \\o/ (amd64), compiles'
        in dockerfile(named)
    )


def test_all_unpinned_cells_are_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        image_specs([JIT, PRECOMPILED], Lock())
    assert len(caught.value.details) == 2


def test_an_archive_without_a_pin_refuses_and_names_the_command() -> None:
    bare = replace(RUNFILE, driver=RUNFILE.driver.model_copy(update={"sha256": {}}))
    assert missing_pins(bare, LOCK) == ["NVIDIA's archive 580.178.04 for amd64 is not pinned"]
    with pytest.raises(InputError) as caught:
        image_specs([bare], LOCK)
    assert caught.value.resolution == f"driverforge lock --select {bare.key}"


PIN = LockedArchive(
    version="580.178.04",
    arch="amd64",
    url="https://download.nvidia.com/XFree86/Linux-x86_64/580.178.04/NVIDIA-Linux-x86_64-580.178.04.run",
    sha256="cd" * 32,
    size=0,
    origin=Origin.CHECKSUM_FILE,
    source="beside it",
)


@pytest.mark.parametrize(
    ("own", "pinned", "address"),
    [
        # NVIDIA's place for data centres has no sum: the file is taken from where its sum is
        (
            "https://us.download.nvidia.com/tesla/{version}/NVIDIA-Linux-{machine}-{version}.run",
            PIN.url,
            PIN.url,
        ),
        # a site's own copy of that file
        (
            "https://files.site/NVIDIA-Linux-{machine}-{version}.run",
            PIN.url,
            "https://files.site/" + PIN.name,
        ),
        ("https://files.site/{version}.run", PIN.url, PIN.url),
    ],
)
def test_an_archive_comes_from_where_its_sum_is_or_from_the_sites_copy(
    own: str, pinned: str, address: str
) -> None:
    bare = replace(RUNFILE, driver=RUNFILE.driver.model_copy(update={"sha256": {}, "url": own}))
    found = archive_of(bare, LOCK.with_archives([replace(PIN, url=pinned)]))
    assert found == Archive(url=address, sha256=PIN.sha256)


def test_a_mirror_of_nvidias_serves_the_download_and_leaves_the_image_as_it_is() -> None:
    made = context(RUNFILE)
    plain = bake_document([made])["target"]
    mirrored = bake_document([made], mirrors={"nvidia": "http://m/nv", "debian12": "http://m/d"})["target"]
    at = "http://m/nv/tesla/580.178.04/NVIDIA-Linux-x86_64-580.178.04.run"
    assert {target["args"]["ARCHIVE_URL"] for target in mirrored.values()} == {at}
    assert all("ARCHIVE_URL" not in target["args"] for target in plain.values())
    name = target_name(RUNFILE.key)
    assert mirrored[name]["tags"] == plain[name]["tags"]
    assert (
        "ARCHIVE_URL"
        not in bake_document([context(JIT)], mirrors={"nvidia": "http://m"})["target"][target_name(JIT.key)][
            "args"
        ]
    )


def test_the_rows_own_sum_goes_before_the_locks() -> None:
    found = archive_of(RUNFILE, LOCK.with_archives([PIN]))
    assert found is not None
    assert found.sha256 == RUNFILE.driver.sha256["amd64"] != PIN.sha256


def test_two_kernels_differ_in_the_last_stage_only() -> None:
    """Every instruction above `FROM jit AS modules` is the same text, over the same files.

    So BuildKit gives them the same layers.
    """
    first, second = (
        dockerfile(cell).split("\n", 1)[1].partition("FROM jit AS modules")
        for cell in (PRECOMPILED, OTHER_KERNEL)
    )
    assert first[0] == second[0]
    for cell, (above, _, below) in ((PRECOMPILED, first), (OTHER_KERNEL, second)):
        assert str(cell.kernel) not in above
        stages = below.split("\nFROM ")
        instructions = [line.split()[0] for line in stages[-1].splitlines()[1:] if line[:1].strip()]
        assert instructions == ["COPY", "LABEL"], "one layer, then metadata"
    own = {"Dockerfile", "pins/headers", "precompiled/opt/driverforge/image.json"}
    files = [
        {path: entry for path, entry in context(cell).entries.items() if path not in own}
        for cell in (PRECOMPILED, OTHER_KERNEL)
    ]
    assert files[0] == files[1]


def test_jit_image_has_the_stages_that_the_precompiled_one_starts_from() -> None:
    assert (
        dockerfile(PRECOMPILED)
        .split("\n", 1)[1]
        .startswith(dockerfile(JIT).split("\n", 1)[1].partition("\nLABEL")[0])
    )


def test_image_facts_say_what_is_inside() -> None:
    jit = ImageFacts.from_json(context(JIT).entries["jit/opt/driverforge/image.json"].content.decode())
    assert (jit.variant, jit.kernels, jit.module_types) == ("jit", (), ("open", "proprietary"))
    assert jit.sources == {
        "open": "/usr/src/nvidia-535.261.03/kernel-open",
        "proprietary": "/usr/src/nvidia-535.261.03/kernel",
    }
    precompiled = ImageFacts.from_json(
        context(PRECOMPILED).entries["precompiled/opt/driverforge/image.json"].content.decode()
    )
    assert (precompiled.variant, precompiled.sources) == ("precompiled", {})
    assert precompiled.kernels == (KernelRelease.parse("6.1.0-50-cloud-amd64"),)


def source_digests(cell: Cell, lock: Lock = LOCK) -> Mapping[str, str]:
    name = "precompiled/opt/driverforge/image.json" if cell.kernel else "jit/opt/driverforge/image.json"
    return ImageFacts.from_json(context(cell, lock).entries[name].content.decode()).source_digests


def test_image_facts_tell_apart_what_the_sources_were_made_of() -> None:
    """A node keeps what it compiled: modules of other sources must not be taken for an image's own."""
    found = source_digests(JIT)
    assert set(found) == {"open", "proprietary"}
    assert found["open"] != found["proprietary"]
    assert source_digests(PRECOMPILED) == found
    roles = LOCK.targets["debian12-amd64"].drivers["535.261.03"]
    patched = tuple(replace(package, sha256="0" * 64) for package in roles["source"])
    other = without(LOCK, JIT, drivers={"535.261.03": {**roles, "source": patched}})
    assert source_digests(JIT, other)["open"] != found["open"]
    assert source_digests(VENDOR) == {}


def test_image_facts_name_the_packages_that_the_sources_are_from() -> None:
    """A node tells by them what a distribution has patched."""
    facts = ImageFacts.from_json(context(JIT).entries["jit/opt/driverforge/image.json"].content.decode())
    packages = {
        one.name: one.version for one in LOCK.targets["debian12-amd64"].drivers["535.261.03"]["source"]
    }
    assert facts.source_versions == {
        "open": packages["nvidia-open-kernel-dkms"],
        "proprietary": packages["nvidia-kernel-dkms"],
    }


def test_the_sources_of_a_runfile_are_its_archive() -> None:
    other = replace(RUNFILE, driver=RUNFILE.driver.model_copy(update={"sha256": {"amd64": "1" * 64}}))
    first, second = source_digests(RUNFILE), source_digests(other)
    assert set(first) == set(second)
    assert all(first[kind] != second[kind] for kind in first)


def test_a_module_type_that_one_kernel_excludes_stays_in_the_shared_stage() -> None:
    exclusion = Exclusion.model_validate(
        {"id": "x", "kernels": ["6.1.0-50-*"], "module_types": ["open"], "reason": "r", "source": "s"}
    )
    cell = replace(PRECOMPILED, module_types=("proprietary",), dropped=(exclusion,))
    text = dockerfile(cell)
    assert "driverctl build --kernel 6.1.0-50-cloud-amd64 --module-type proprietary --headers" in text
    assert (
        text.partition("FROM jit AS modules")[0].split("\n", 1)[1]
        == dockerfile(PRECOMPILED).partition("FROM jit AS modules")[0].split("\n", 1)[1]
    )
    facts = ImageFacts.from_json(
        context(cell).entries["precompiled/opt/driverforge/image.json"].content.decode()
    )
    assert facts.module_types == ("proprietary",)


def test_an_exclusion_for_all_kernels_leaves_the_sources_out() -> None:
    exclusion = Exclusion.model_validate({"id": "x", "module_types": ["open"], "reason": "r", "source": "s"})
    text = dockerfile(replace(JIT, module_types=("proprietary",), dropped=(exclusion,)))
    assert "source-open" not in text
    assert "source-proprietary" in text


def test_vendor_modules_are_unpacked_and_nothing_is_compiled() -> None:
    text = dockerfile(VENDOR)
    assert "driverctl build" not in text
    assert text.count("place-modules /tmp/modules /out 580.173.02 6.8.0-106-generic") == 2
    pins = context(VENDOR).entries["pins/modules-open"].content.decode()
    assert " linux-objects-nvidia-580-server-open-6.8.0-106-generic " in pins


def test_red_hats_modules_go_with_the_user_space_of_nvidias_archive() -> None:
    cell = CELLS["rhel10-arm64-595.71.05-6.12.0-211.7.1.el10_2.aarch64+64k"]
    text = dockerfile(cell)
    assert "unpack-archive userspace /run/driverforge/driver 595.71.05 " in text
    assert "place-modules /tmp/modules /out 595.71.05 6.12.0-211.7.1.el10_2.aarch64+64k open arm64" in text
    compiled = ("unpack-archive sources", "driverctl build", "pins/firmware")
    assert [word for word in compiled if word in text] == []
    pins = context(cell).entries["pins/modules-open"].content.decode()
    assert [line.split()[4] for line in pins.splitlines()[1:]] == [
        "kmod-64k-nvidia-open-595.71.05-6.12.0-211.7.1"
    ]


def test_red_hats_modules_without_a_pin_are_told() -> None:
    cell = CELLS["rhel10-amd64-595.71.05-6.12.0-211.7.1.el10_2.x86_64"]
    kernel = LOCK.targets["rhel10-amd64"].kernels[str(cell.kernel)]
    bare = without(LOCK, cell, kernels={kernel.release: replace(kernel, vendor={})})
    assert missing_pins(cell, bare) == [
        "the package kmod-nvidia-open-595.71.05-6.12.0-211.7.1 (modules) is not pinned"
    ]


def test_inputs_change_with_everything_that_goes_in_and_with_nothing_else() -> None:
    plain = context(JIT)
    assert context(JIT).inputs == plain.inputs
    assert context(JIT, base="registry.site/debian:bookworm").inputs != plain.inputs
    target = LOCK.targets["debian12-amd64"]
    newer = synthetic_package("nvidia-smi", "535.261.03-2", "amd64", "bookworm")
    drivers = {**target.drivers, "535.261.03": {**target.drivers["535.261.03"], "userspace": (newer,)}}
    assert context(JIT, lock=without(LOCK, JIT, drivers=drivers)).inputs != plain.inputs
    unrelated = LOCK.with_targets([replace(LOCK.targets["debian13-amd64"], kernels={})])
    assert context(JIT, lock=unrelated).inputs == plain.inputs


def test_immutable_tag_names_the_inputs() -> None:
    made = context(PRECOMPILED)
    tag = ImageTag.parse(immutable_tag_of(made))
    assert tag.revision == made.inputs[:12]
    assert (str(tag.version), str(tag.kernel), tag.os) == ("535.261.03", "6.1.0-50-cloud-amd64", "debian12")


def test_time_of_an_image_is_that_of_its_newest_repository() -> None:
    (image,) = image_specs([JIT], LOCK)
    assert image.epoch == 1767225600  # 2026-01-01T00:00:00Z, the date in the lock
    (undated,) = image_specs([JIT], without(LOCK, JIT, repositories=()))
    assert undated.epoch == EARLIEST_EPOCH


def test_pin_list_has_a_line_of_six_fields_a_package_in_a_fixed_order() -> None:
    packages = [synthetic_package(name, "1", "amd64", "bookworm") for name in ("zlib", "kmod")]
    lines = [line for line in pin_list(packages).splitlines() if not line.startswith("#")]
    assert [line.split()[4] for line in lines] == ["kmod", "zlib"]
    assert {len(line.split()) for line in lines} == {6}
    assert pin_list(packages) == pin_list(reversed(packages))


def test_where_only_packages_are_signed_the_list_and_the_context_say_so() -> None:
    """An index by TLS alone, as Rocky's: whoever serves it could have made the packages, too."""
    for cell, fields in ((JIT, 6), (CELLS["rocky10-amd64-580.178.04-jit"], 7)):
        made = context(cell).entries
        lines = [line.split() for line in made["pins/userspace"].content.decode().splitlines()[1:]]
        # NVIDIA signs its index
        assert {len(line) for line in lines if not line[2].startswith("cuda-")} == {fields}
        assert ("scripts/check-signatures" in made) == (fields == 7)


def test_launchers_start_isolated_from_the_environment() -> None:
    for name in ("driverctl", "nvidia-driver"):
        entry = context(JIT).entries[f"root/usr/local/bin/{name}"]
        assert entry.executable
        assert b"exec /usr/bin/python3 -I -S -c" in entry.content
        assert f'sys.argv[0] = "{name}"'.encode() in entry.content


def test_bake_links_kernels_to_shared_stages_and_names_are_legal() -> None:
    document = bake_document([context(cell) for cell in (PRECOMPILED, OTHER_KERNEL)], vcs_ref="abc")
    names = document["group"]["default"]["targets"]
    assert names == [target_name(cell.key) for cell in (PRECOMPILED, OTHER_KERNEL)]
    links = {
        "userspace": "target:debian12-amd64-535_261_03-userspace",
        "jit": "target:debian12-amd64-535_261_03-jit",
    }
    for name in names:
        target = document["target"][name]
        assert target["contexts"] == links
        assert target["labels"]["vcs-ref"] == "abc"
        assert re.fullmatch("[0-9a-f]{64}", target["labels"]["io.driverforge.inputs"])
    userspace, jit = (document["target"][name.removeprefix("target:")] for name in links.values())
    assert (userspace["target"], jit["target"]) == ("userspace", "jit")
    assert jit["contexts"] == {"userspace": links["userspace"]}, "one user space below all"
    assert "network" not in userspace
    assert all(re.fullmatch("[A-Za-z0-9_-]+", name) for name in document["target"])


def test_a_selected_jit_cell_is_itself_the_stage_that_kernels_start_from() -> None:
    document = bake_document([context(cell) for cell in (PRECOMPILED, JIT)])
    jit = document["target"]["debian12-amd64-535_261_03-jit"]
    assert jit["context"] == JIT.key
    assert "tags" in jit
    assert "target" not in jit


def test_shared_stages_have_a_cache_and_images_have_none() -> None:
    cache = LayerCache(read=("registry.site/cache", "registry.site/main"), written="registry.site/cache")
    targets = bake_document([context(PRECOMPILED)], cache=cache)["target"]
    for stage in ("userspace", "jit"):
        name = f"debian12-amd64-535_261_03-{stage}"
        assert targets[name]["cache-from"] == [
            f"type=registry,ref=registry.site/cache:{name}",
            f"type=registry,ref=registry.site/main:{name}",
        ]
        (written,) = targets[name]["cache-to"]
        assert written.startswith(f"type=registry,ref=registry.site/cache:{name},mode=max,")
        assert "ignore-error=true" in written
    assert not {"cache-from", "cache-to"} & targets[target_name(PRECOMPILED.key)].keys()
    plain = bake_document([context(PRECOMPILED)])["target"].values()
    assert not any("cache" in key for target in plain for key in target)


def test_network_is_for_every_target() -> None:
    document = bake_document([context(PRECOMPILED)], network="host")
    assert {target["network"] for target in document["target"].values()} == {"host"}
