"""A site's own certificates, for the mirror that header packages come from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease
from driverforge_core.log import LOGGER
from driverforge_core.osid import parse_os_release
from driverforge_driver.compile.headers import site_ca_bundle, unpack_headers
from driverforge_driver.family import debian
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.real import real_host
from driverforge_host.adapters.subprocesses import SystemCommands
from driverforge_host.ports import Host
from support.fakes.mockpath import MockPath


@pytest.fixture
def tools(tmp_path: Path) -> MockPath:
    made = MockPath(tmp_path / "bin")
    made.add("update-ca-certificates")
    return made


def image(root: Path, tools: MockPath, *anchors: str, given: str = "") -> Host:
    folder = root / "root" / debian.trust_store().anchors.strip("/")
    folder.mkdir(parents=True)
    for name in anchors:
        (folder / name).write_text("a certificate")
    environ = tools.environ({"SSL_CERT_FILE": given} if given else {}, only=True)
    return replace(
        real_host(),
        files=RootedFiles("/", beneath=str(root / "root")),
        commands=SystemCommands(environ),
        environ=environ,
    )


def test_a_site_without_certificates_keeps_the_default(tmp_path: Path, tools: MockPath) -> None:
    assert site_ca_bundle(image(tmp_path, tools), debian) == ""
    assert tools.calls("update-ca-certificates") == []


def test_a_given_file_is_handed_on(tmp_path: Path, tools: MockPath) -> None:
    assert site_ca_bundle(image(tmp_path, tools, given="/etc/site.pem"), debian) == "/etc/site.pem"


def test_certificates_of_the_site_are_made_known(tmp_path: Path, tools: MockPath) -> None:
    assert (
        site_ca_bundle(image(tmp_path, tools, "site.crt", given="/etc/site.pem"), debian)
        == "/etc/ssl/certs/ca-certificates.crt"
    )
    assert tools.calls("update-ca-certificates") == [""]


def test_an_image_that_cannot_add_them_says_so(
    tmp_path: Path, tools: MockPath, caplog: pytest.LogCaptureFixture
) -> None:
    LOGGER.propagate = True  # a command line that ran before has its own handler
    (tools.folder / "update-ca-certificates").unlink()
    assert site_ca_bundle(image(tmp_path, tools, "site.crt"), debian) == ""
    assert "the program that adds them is missing" in caplog.text


def test_packages_that_are_given_need_no_trust(tmp_path: Path, tools: MockPath) -> None:
    """An update of the store costs as much as modules from the compile cache."""
    host = image(tmp_path, tools, "site.crt")
    (tmp_path / "root/debs").mkdir()
    (tmp_path / "root/debs/linux-headers.deb").write_text("no package")
    tools.add("dpkg-deb", "exit 2")
    with pytest.raises(InputError, match="not a Debian package"):
        unpack_headers(
            host,
            parse_os_release("ID=debian\nVERSION_ID=12\n"),
            KernelRelease.parse("6.1.0-50-cloud-amd64"),
            given="/debs",
            folder="/work",
        )
    assert tools.calls("update-ca-certificates") == []
