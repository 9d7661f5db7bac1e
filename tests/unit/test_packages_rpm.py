"""dnf and zypper as sources of header packages. The texts are what dnf 4.14 and zypper 1.14 print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from driverforge_core.errors import InputError, Unavailable, Unsupported
from driverforge_driver.packages import PackageAccess, PackageRequest, RepositoryAttempt, dnf, rpm, zypper
from driverforge_host.adapters.files import RootedFiles
from support.fakes.answers import Answers

DEVEL = "kernel-devel-5.14.0-427.13.1.el9_4.x86_64"
NO_PACKAGE = (
    f"No package {DEVEL} available.\nExiting due to strict setting.\nError: No package {DEVEL} available.\n"
)
UNKNOWN_REPO = "Error: Unknown repo: 'rhel-9-for-x86_64-baseos-eus-rpms'\n"
SKIPPED = f"""Errors during downloading metadata for repository 'u':
  - Curl error (7): Couldn't connect to server for http://127.0.0.1:9/x/repodata/repomd.xml
Error: Failed to download metadata for repo 'u': Cannot download repomd.xml: All mirrors were tried
Ignoring repositories: u
{NO_PACKAGE}"""
EUS = RepositoryAttempt(
    name="extended update support", enable=("rhel-9-for-x86_64-baseos-eus-rpms",), releasever="9.4"
)
PLAIN = RepositoryAttempt(name="release 9", releasever="9")

SEARCH = """<?xml version='1.0'?>
<stream>
<message type="info">Loading repository data...</message>
<search-result version="0.0">
<solvable-list>
<solvable status="not-installed" name="kernel-default-devel" kind="package" edition="6.4.0-150700.53.19.1" \
arch="x86_64" repository="t"/>
<solvable status="not-installed" name="kernel-default-devel" kind="package" edition="6.4.0-150700.53.19.10" \
arch="x86_64" repository="t"/>
<solvable status="not-installed" name="kernel-default-devel" kind="package" edition="6.4.0-150700.53.19.9" \
arch="x86_64" repository="t"/>
<solvable status="not-installed" name="kernel-default-devel" kind="package" edition="6.4.0-150700.53.191.1" \
arch="x86_64" repository="t"/>
</solvable-list>
</search-result>
</stream>
"""
NOTHING = (
    "<?xml version='1.0'?>\n<stream>\n<message type=\"info\">No matching items found.</message>\n</stream>\n"
)
REFUSED = """Retrieving repository 'u' metadata [.error]
Repository 'u' is invalid.
[u|http://127.0.0.1:9/x] Valid metadata not found at specified URL
History:
 - [|] Error trying to read from 'http://127.0.0.1:9/x'
 - Download (curl) error for 'http://127.0.0.1:9/x/content':
Error code: Connection failed
Error message: Failed to connect to 127.0.0.1 port 9 after 0 ms: Couldn't connect to server

Please check if the URIs defined for this repository are pointing to a valid repository.
Skipping repository 'u' because of the above error.
Could not refresh the repositories because of errors.
"""
SUSE = PackageRequest(names=("kernel-default-devel=6.4.0-150700.53.19",))
SUSE_FILE = "/work/t/kernel-default-devel-6.4.0-150700.53.19.10.x86_64.rpm"


def checked(path: str, *lines: str) -> str:
    """What `rpmkeys --checksig --verbose` says of a package."""
    return "\n    ".join([f"{path}:", *lines]) + "\n"


# rpm 4.14 of RHEL 8
SIGNED = (
    "Header V4 RSA/SHA256 Signature, key ID fd431d51: OK",
    "Header SHA256 digest: OK",
    "Header SHA1 digest: OK",
    "Payload SHA256 digest: OK",
    "V4 RSA/SHA256 Signature, key ID fd431d51: OK",
    "MD5 digest: OK",
)


@dataclass
class Listing(RootedFiles):
    """A folder that holds some names."""

    names: tuple[str, ...] = ()

    def list_dir(self, path: str) -> tuple[str, ...]:
        return self.names


def asked(*attempts: RepositoryAttempt) -> PackageRequest:
    return PackageRequest(names=(DEVEL,), attempts=attempts)


def access(
    commands: Answers, *names: str, environ: Mapping[str, str] | None = None, ca: str = ""
) -> PackageAccess:
    return PackageAccess(commands=commands, files=Listing(names=names), environ=environ or {}, ca_bundle=ca)


def test_dnf_downloads_into_the_work_folder() -> None:
    file = f"/work/{DEVEL}.rpm"
    commands = Answers({"--checksig": (0, checked(file, *SIGNED), "")})
    found = dnf.download(access(commands, f"{DEVEL}.rpm", "x.txt", ca="/ca.pem"), asked(EUS, PLAIN), "/work")
    assert found == (file,)
    options = "--setopt=*.skip_if_unavailable=1 --enablerepo=rhel-9-for-x86_64-baseos-eus-rpms "
    options += "--releasever=9.4 --setopt=sslcacert=/ca.pem"
    assert commands.followed == [f"dnf --assumeyes {options} download --destdir /work {DEVEL}"]
    assert commands.asked[:-1] == commands.followed
    assert commands.asked[-1].startswith("rpmkeys ")
    assert commands.asked[-1].endswith(f" --checksig --verbose {file}")
    assert commands.endless == []


def test_dnf_goes_on_without_a_repository_that_this_subscription_has_not() -> None:
    signed = (0, checked(f"/work/{DEVEL}.rpm", *SIGNED), "")
    commands = Answers({"--enablerepo": (1, "", UNKNOWN_REPO), "--checksig": signed})
    assert dnf.download(access(commands, f"{DEVEL}.rpm"), asked(EUS, PLAIN), "/work")
    assert len(commands.followed) == 2


def test_dnf_names_every_attempt_when_the_package_is_nowhere() -> None:
    with pytest.raises(Unsupported, match="headers missing") as caught:
        dnf.download(
            access(Answers({"--enablerepo": (1, "", UNKNOWN_REPO), "": (1, "", NO_PACKAGE)})),
            asked(EUS, PLAIN),
            "/work",
        )
    assert "Error: Unknown repo: 'rhel-9-for-x86_64-baseos-eus-rpms'" in caught.value.details
    assert f"Error: No package {DEVEL} available." in caught.value.details


def test_dnf_that_skipped_an_unreachable_repository_has_not_seen_all() -> None:
    with pytest.raises(Unavailable, match="mirror unreachable"):
        dnf.download(access(Answers({"": (1, "", SKIPPED)})), asked(PLAIN), "/work")


def test_zypper_takes_the_newest_rebuild_of_exactly_this_release() -> None:
    assert zypper.newest(SEARCH, "6.4.0-150700.53.19") == "6.4.0-150700.53.19.10"
    assert zypper.newest(SEARCH, "6.4.0-150700.53.2") is None
    assert zypper.newest("not XML", "6.4.0") is None


def test_zypper_downloads_into_the_work_folder() -> None:
    signed = (0, checked(SUSE_FILE, *SIGNED), "")
    commands = Answers({"search": (0, SEARCH, ""), "find": (0, f"{SUSE_FILE}\n", ""), "--checksig": signed})
    assert zypper.download(
        access(commands, environ={"HTTP_PROXY": "http://proxy.example"}, ca="/ca.pem"),
        SUSE,
        "/work",
    ) == (SUSE_FILE,)
    assert commands.asked[2].endswith(
        "--pkg-cache-dir /work download kernel-default-devel=6.4.0-150700.53.19.10"
    )
    assert [line.split()[4] for line in commands.followed] == ["refresh", "download"]
    assert commands.endless == ["find /work -name *.rpm -type f"]
    assert commands.environments[2] == {"http_proxy": "http://proxy.example"}


def test_zypper_without_the_package_is_no_mirror_problem() -> None:
    with pytest.raises(
        Unsupported, match=r"headers missing.*kernel-default-devel 6\.4\.0-150700\.53\.19"
    ) as caught:
        zypper.download(access(Answers({"search": (104, NOTHING, "")})), SUSE, "/work")
    assert "No matching items found." in caught.value.details


def test_zypper_with_an_unreachable_repository_says_so_without_xml() -> None:
    with pytest.raises(Unavailable, match="mirror unreachable") as caught:
        zypper.download(
            access(Answers({"refresh": (4, REFUSED, ""), "search": (106, NOTHING, "")})),
            SUSE,
            "/work",
        )
    assert "Repository 'u' is invalid." in caught.value.details
    assert not any("<" in line for line in caught.value.details)


def test_zypper_ends_well_without_a_download_when_a_package_vanished_meanwhile() -> None:
    gone = (
        "Warning: Argument resolves to no package: kernel-default-devel=6.4.0-150700.53.19.10\nNothing "
        "to do.\n"
    )
    with pytest.raises(Unsupported, match="headers missing"):
        zypper.download(
            access(Answers({"search": (0, SEARCH, ""), "download": (0, gone, "")})),
            SUSE,
            "/work",
        )


def test_package_files_are_asked_for_name_and_version() -> None:
    commands = Answers({"--query": (0, "kernel-devel\n5.14.0-427.13.1.el9_4\n", "")})
    package = rpm.extract(access(commands), "/work/k.rpm", "/work/headers")
    assert (package.name, package.version) == ("kernel-devel", "5.14.0-427.13.1.el9_4")
    assert commands.asked[1].endswith("sh /work/k.rpm /work/headers")


def test_a_file_that_is_no_package_is_refused() -> None:
    with pytest.raises(InputError, match=r"not an RPM package: /work/k\.rpm"):
        rpm.extract(
            access(Answers({"--query": (1, "", "error: /work/k.rpm: not an rpm package\n")})),
            "/work/k.rpm",
            "/x",
        )


@pytest.mark.parametrize(
    "line",
    [
        *SIGNED[:1],
        "V4 RSA/SHA256 Signature, key ID fd431d51: OK",
        # rpm 4.19 of RHEL 10
        "Header V4 RSA/SHA256 Signature, key ID 199e2f91fd431d51: OK",
        # rpm 6
        f"Header OpenPGP V4 RSA/SHA512 signature, key fingerprint: {'fd431d51' * 5}: OK",
    ],
)
def test_every_rpms_words_for_a_signature_of_a_known_key(line: str) -> None:
    commands = Answers({"--checksig": (0, checked("/work/k.rpm", line, "Payload SHA256 digest: OK"), "")})
    rpm.verify(access(commands), ["/work/k.rpm"], places=dnf.KEYS, scratch="/work/keys")


@pytest.mark.parametrize(
    ("path", "status", "lines"),
    [
        # the status alone says nothing: rpm 4.14 is content with digests
        ("/work/k.rpm", 0, SIGNED[1:4]),
        ("/work/k.rpm", 1, SIGNED),
        ("/work/k.rpm", 0, ("Header V4 RSA/SHA256 Signature, key ID fd431d51: NOKEY",)),
        # a mirror chooses the names of its files
        (f"/work/k\n    {SIGNED[0]}\n.rpm", 0, SIGNED[1:4]),
    ],
)
def test_nothing_else_counts_as_a_signature(path: str, status: int, lines: tuple[str, ...]) -> None:
    commands = Answers({"--checksig": (status, checked(path, *lines), "")})
    with pytest.raises(InputError, match="header package") as caught:
        rpm.verify(access(commands), [path], places=dnf.KEYS, scratch="/work/keys")
    assert "\n" not in caught.value.brief
