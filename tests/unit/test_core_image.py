"""image.json and module-set.json: what the builder writes is what the node reads, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import InputError
from driverforge_core.image import ImageFacts, ModuleSet, module_set_directory
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsId

FACTS = ImageFacts(
    os=OsId.parse("debian12"),
    arch="amd64",
    driver=DriverVersion("535.261.03"),
    payload="packages",
    module_types=("open", "proprietary"),
    variant="precompiled",
    kernels=(KernelRelease.parse("6.1.0-50-cloud-amd64"),),
    sources={"open": "/usr/src/nvidia-535.261.03/kernel-open"},
    firmware="/opt/driverforge/firmware",
)
MODULES = ModuleSet(
    driver=DriverVersion("535.261.03"),
    module_type="open",
    kernel=KernelRelease.parse("6.12.94+deb13-cloud-amd64"),
    arch="amd64",
    compiler="gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0",
    modules={"nvidia.ko": "sha256:" + "a" * 64, "nvidia-uvm.ko": "sha256:" + "b" * 64},
    signer="",
)


def test_facts_and_module_sets_round_trip() -> None:
    assert ImageFacts.from_json(FACTS.to_json()) == FACTS
    assert ModuleSet.from_json(MODULES.to_json()) == MODULES
    against = replace(MODULES, network="sha256:" + "c" * 64)
    assert ModuleSet.from_json(against.to_json()) == against
    signed = replace(MODULES, signer="Site", signer_key="0a1b", signature_digests=("sha512", "sha256"))
    assert ModuleSet.from_json(signed.to_json()) == signed
    assert MODULES.directory == "/opt/lib/modules/6.12.94+deb13-cloud-amd64/open"


def test_equal_values_give_equal_bytes() -> None:
    other = ModuleSet.from_json(json.dumps(dict(reversed(json.loads(MODULES.to_json()).items()))))
    assert other.to_json() == MODULES.to_json()
    assert MODULES.to_json().endswith('"schema":1,"signer":""}\n')


def test_the_documented_example_reads() -> None:
    facts = ImageFacts.from_json(
        '{"schema":1,"os":"debian12","arch":"amd64","driver":"535.261.03","payload":"runfile",'
        '"module_types":["open"],"variant":"jit","kernels":["6.1.0-50-cloud-amd64"],'
        '"sources":{"open":"/usr/src/nvidia-535.261.03/kernel-open"},"firmware":"/opt/driverforge/firmware"}'
    )
    assert (facts.variant, facts.driver.branch, facts.kernels[0].flavour) == ("jit", 535, "cloud-amd64")


def _facts(**changes: object) -> str:
    document = json.loads(FACTS.to_json()) | changes
    return json.dumps({key: value for key, value in document.items() if value is not ...})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("[]", "no JSON object"),
        ("{}", "schema None"),
        (_facts(schema=2), "schema 2, this program reads 1"),
        (_facts(schema=True), "schema True"),
    ],
)
def test_documents_of_another_kind(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        ImageFacts.from_json(text)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"os": "Debian"}, "os: 'Debian' is not an OS"),
        ({"os": ""}, "os: '' is not an OS"),
        ({"driver": ""}, "driver: '' is not a driver version"),
        ({"driver": 535.261}, "driver: must be a text"),
        ({"driver": ...}, "driver: is missing, expected a text"),
        ({"arch": "x86_64"}, "arch: must be one of amd64, arm64, not 'x86_64'"),
        ({"variant": "both"}, "variant: must be one of jit, precompiled, not 'both'"),
        ({"module_types": "open"}, "module_types: must be a list of texts"),
        ({"module_types": ["kernel"]}, "module_types: must be a list out of open, proprietary, not 'kernel'"),
        ({"kernels": ["6.1.0", "../.."]}, "kernels: '../..' is not a kernel release"),
        ({"kernels": [6.1]}, "kernels: must be a list of texts"),
        (
            {"sources": {"kernel": "/usr/src"}},
            "sources: must be an object with the keys open, proprietary, not 'kernel'",
        ),
        ({"sources": ["open"]}, "sources: must be an object of texts"),
        ({"drivers": "535"}, "drivers: unknown key"),
    ],
)
def test_each_problem_is_named(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        ImageFacts.from_json(_facts(**changes))
    assert list(caught.value.details) == [problem]


def test_all_problems_come_at_once() -> None:
    with pytest.raises(InputError) as caught:
        ImageFacts.from_json(_facts(os="?", arch="?", payload="?", extra=1))
    assert len(caught.value.details) == 4
    doubled = FACTS.to_json().replace('"arch":"amd64"', '"arch":"amd64","arch":"arm64"')
    with pytest.raises(InputError) as caught:
        ImageFacts.from_json(doubled)
    assert list(caught.value.details) == ["arch: stands there twice"]


@pytest.mark.parametrize(
    "modules",
    [
        {"nvidia.ko": "sha256:abc"},
        {"../nvidia.ko": "sha256:" + "a" * 64},
        {"nvidia": "sha256:" + "a" * 64},
        {"nvidia.ko": "md5:" + "a" * 64},
    ],
)
def test_module_files_need_a_plain_name_and_a_digest(modules: dict[str, str]) -> None:
    document = json.loads(MODULES.to_json()) | {"modules": modules}
    with pytest.raises(InputError, match="not as expected") as caught:
        ModuleSet.from_json(json.dumps(document))
    assert "is no NAME.ko with its sha256" in caught.value.details[0]


def test_a_module_type_names_a_directory() -> None:
    with pytest.raises(InputError, match="is not a module type"):
        module_set_directory(MODULES.kernel, "../open")
