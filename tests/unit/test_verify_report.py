"""The report of `driverforge verify`: for people, as JSON with its schema, as JUnit, as in-toto statement."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree as ET

from driverforge_build.junit import junit_text
from driverforge_build.verify.findings import Proof, TriedImage, document, statement, suites, text
from driverforge_build.verify.judge import Check, Kind, Outcome
from driverforge_build.verify.modules import ImageModule
from driverforge_core.errors import Unavailable
from support.jsonschemas import check_document
from support.samples.locks import package
from support.samples.tinyko import append_signature, tiny_ko

IMAGE = f"sha256:{'ab' * 32}"
SIGNED = append_signature(
    tiny_ko(["depends="]), signer=b"Magrathea", key_id=b"\x0a", signature=b"s", id_type=1
)
TRIED = TriedImage(
    reference="localhost/driverforge/driver:tag",
    image=IMAGE,
    kernel="6.1.0-50-cloud-amd64",
    packages=(package("linux-image-6.1.0-50-cloud-amd64", "6.1.176-1"),),
    modules=tuple(
        ImageModule(module_type="open", file=file, content=content, digest="")
        for file, content in {"nvidia.ko": SIGNED, "nvidia-uvm.ko": tiny_ko([])}.items()
    ),
    machine="QEMU 7.2.22, TCG",
)
CHECKS = (
    Check(module="open/nvidia.ko", kind=Kind.FILE, outcome=Outcome.AS_DESCRIBED),
    Check(
        module="open/nvidia.ko",
        kind=Kind.INSERT,
        outcome=Outcome.NO_GPU,
        reason="NVRM: No NVIDIA GPU found.",
        log=("NVRM: No NVIDIA GPU found.",),
    ),
    Check(module="open/nvidia.ko", kind=Kind.SIGNATURE, outcome=Outcome.UNTRUSTED, reason="not its own"),
)
BAD = Check(
    module="open/nvidia-uvm.ko",
    kind=Kind.INSERT,
    outcome=Outcome.UNKNOWN_SYMBOL,
    reason="nothing exports <x>",
    log=("nvidia_uvm: Unknown symbol \x1b[31mx\x00 (err -2)",),
)
PASSED = Proof(cell="a", seconds=4.26, tried=TRIED, checks=CHECKS)
FAILED = replace(PASSED, cell="b", checks=(*CHECKS, BAD))
ERROR = Proof(cell="c", seconds=1, error=Unavailable("no mirror has it", resolution="--mirror"))


def test_the_result_of_a_cell() -> None:
    assert [proof.result for proof in (PASSED, FAILED, ERROR)] == ["passed", "failed", "error"]
    nothing = Proof(cell="d", seconds=0, tried=TRIED)
    assert not nothing.passed, "nothing was looked at"


def test_people_read_what_came_out_and_what_the_kernel_said_of_a_failure() -> None:
    assert "\n".join(text([PASSED, FAILED])) == (
        "a  passed  4 s\n"
        "  6.1.0-50-cloud-amd64 from linux-image-6.1.0-50-cloud-amd64 6.1.176-1, on QEMU 7.2.22, TCG\n"
        "  ok      open/nvidia.ko: insert  no-gpu  NVRM: No NVIDIA GPU found.\n"
        "  warning open/nvidia.ko: signature  untrusted  not its own\n"
        "b  failed  4 s\n"
        "  6.1.0-50-cloud-amd64 from linux-image-6.1.0-50-cloud-amd64 6.1.176-1, on QEMU 7.2.22, TCG\n"
        "  ok      open/nvidia.ko: insert  no-gpu  NVRM: No NVIDIA GPU found.\n"
        "  warning open/nvidia.ko: signature  untrusted  not its own\n"
        "  FAILED  open/nvidia-uvm.ko: insert  unknown-symbol  nothing exports <x>\n"
        "          | nvidia_uvm: Unknown symbol \x1b[31mx\x00 (err -2)\n"
        "1 passed, 1 failed"
    )
    assert "  error: no mirror has it\n    next: --mirror\n" in "\n".join(text([ERROR]))


def test_programs_read_the_same_by_a_published_schema() -> None:
    found = json.loads(json.dumps(document([PASSED, FAILED, ERROR])))
    check_document("verify", found)
    passed, failed, error = found["cells"]
    assert passed["modules"][0]["signer"] == "Magrathea"
    assert passed["modules"][0]["key_id"] == "0a"
    assert passed["packages"] == [
        {"name": "linux-image-6.1.0-50-cloud-amd64", "version": "6.1.176-1", "sha256": "ab" * 32}
    ]
    assert [check["passed"] for check in failed["checks"]] == [True, True, True, False]
    assert error["error"]["resolution"] == "--mirror"


def test_junit_has_a_case_for_each_check_and_no_character_that_xml_forbids() -> None:
    root = ET.fromstring(junit_text("driverforge verify", suites([PASSED, FAILED, ERROR])))
    passed, failed, error = root
    assert [case.get("name") for case in passed] == [check.name for check in CHECKS]
    assert (failed.get("tests"), failed.get("failures"), failed.get("errors")) == ("4", "1", "0")
    [failure] = failed.iter("failure")
    assert (failure.get("type"), failure.get("message")) == ("unknown-symbol", "nothing exports <x>")
    assert failure.text == "nvidia_uvm: Unknown symbol \ufffd[31mx\ufffd (err -2)"
    assert (error.get("tests"), error.get("errors")) == ("1", "1")
    assert next(error.iter("error")).get("message") == "no mirror has it"


def test_a_statement_is_about_the_image_the_kernel_and_the_modules() -> None:
    made = statement(FAILED, TRIED)
    assert made["subject"] == [{"name": TRIED.reference, "digest": {"sha256": "ab" * 32}}]
    predicate = made["predicate"]
    assert predicate["result"] == "FAILED"
    assert [one["name"] for one in predicate["configuration"]] == [
        "linux-image-6.1.0-50-cloud-amd64.deb",
        "open/nvidia.ko",
        "open/nvidia-uvm.ko",
    ]
    assert predicate["configuration"][1]["digest"]["sha256"] == TRIED.modules[0].sha256
    assert predicate["passedTests"] == ["open/nvidia.ko: file", "open/nvidia.ko: insert"]
    assert predicate["warnedTests"] == ["open/nvidia.ko: signature"]
    assert predicate["failedTests"] == ["open/nvidia-uvm.ko: insert"]
    assert statement(PASSED, TRIED)["predicate"]["result"] == "WARNED"
    clean = replace(PASSED, checks=CHECKS[:2])
    pushed = statement(clean, TRIED, name="registry.site/driver", digest=f"sha256:{'cd' * 32}")
    assert pushed["predicate"]["result"] == "PASSED"
    assert pushed["subject"] == [{"name": "registry.site/driver", "digest": {"sha256": "cd" * 32}}]
