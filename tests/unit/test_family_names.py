"""Names of packages and repositories for kernels of every family; the releases are real ones."""

from __future__ import annotations

import pytest

from driverforge_core.errors import Unsupported
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsRelease
from driverforge_driver.family import debian, rhel, suse
from driverforge_driver.family.lookup import family_of
from driverforge_driver.family.protocol import Family


def os_release(name: str, version: str = "", *like: str) -> OsRelease:
    return OsRelease(id=name, version=version, codename="", like=like, pretty_name=name)


@pytest.mark.parametrize(
    ("name", "like", "module"),
    [
        ("debian", (), debian),
        ("ubuntu", ("debian",), debian),
        ("linuxmint", ("ubuntu", "debian"), debian),
        ("rocky", ("rhel", "centos", "fedora"), rhel),
        ("ol", ("fedora",), rhel),
        ("amzn", ("fedora",), rhel),
        ("almalinux", ("rhel",), rhel),
        ("sles", ("suse",), suse),
        ("opensuse-leap", ("suse", "opensuse"), suse),
    ],
)
def test_family_by_id_else_by_relatives(name: str, like: tuple[str, ...], module: Family) -> None:
    assert family_of(os_release(name, "1", *like)) is module


def test_an_unknown_os_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="alpine"):
        family_of(os_release("alpine", "3.20"))


@pytest.mark.parametrize(
    ("module", "release", "packages"),
    [
        (debian, "6.1.0-50-cloud-amd64", ("linux-headers-6.1.0-50-cloud-amd64",)),
        (debian, "6.12.94+deb13-cloud-amd64", ("linux-headers-6.12.94+deb13-cloud-amd64",)),
        (debian, "6.8.0-1046-azure-fde", ("linux-headers-6.8.0-1046-azure-fde",)),
        (rhel, "5.14.0-427.13.1.el9_4.x86_64", ("kernel-devel-5.14.0-427.13.1.el9_4.x86_64",)),
        (rhel, "5.14.0-284.54.1.el9_2.aarch64+64k", ("kernel-64k-devel-5.14.0-284.54.1.el9_2.aarch64",)),
        (rhel, "5.14.0-503.14.1.el9_5.x86_64+rt", ("kernel-rt-devel-5.14.0-503.14.1.el9_5.x86_64",)),
        (rhel, "6.12.0-55.el10_0.aarch64+rt-64k", ("kernel-rt-64k-devel-6.12.0-55.el10_0.aarch64",)),
        # as RHEL 8 names them: nothing but the number says it
        (rhel, "4.18.0-553.rt7.342.el8_10.x86_64", ("kernel-rt-devel-4.18.0-553.rt7.342.el8_10.x86_64",)),
        (rhel, "5.15.0-302.167.6.el9uek.x86_64", ("kernel-uek-devel-5.15.0-302.167.6.el9uek.x86_64",)),
        (rhel, "6.1.166-197.305.amzn2023.x86_64", ("kernel-devel-6.1.166-197.305.amzn2023.x86_64",)),
        (rhel, "6.12.37-61.105.amzn2023.x86_64", ("kernel6.12-devel-6.12.37-61.105.amzn2023.x86_64",)),
        (
            suse,
            "6.4.0-150700.53.19-default",
            ("kernel-default-devel=6.4.0-150700.53.19", "kernel-devel=6.4.0-150700.53.19"),
        ),
        (
            suse,
            "6.4.0-150600.8.14-azure",
            ("kernel-azure-devel=6.4.0-150600.8.14", "kernel-devel-azure=6.4.0-150600.8.14"),
        ),
        (
            suse,
            "6.4.0-150700.53.19-64kb",
            ("kernel-64kb-devel=6.4.0-150700.53.19", "kernel-devel=6.4.0-150700.53.19"),
        ),
    ],
)
def test_header_packages(module: Family, release: str, packages: tuple[str, ...]) -> None:
    assert module.header_packages(KernelRelease.parse(release)) == packages


def test_rhel_asks_extended_update_support_of_the_kernels_own_minor_release_first() -> None:
    attempts = rhel.repositories(
        os_release("rhel", "9.2"), KernelRelease.parse("5.14.0-427.13.1.el9_4.x86_64"), {}
    )
    assert attempts[0].enable == ("rhel-9-for-x86_64-baseos-eus-rpms", "rhel-9-for-x86_64-appstream-eus-rpms")
    assert [attempt.releasever for attempt in attempts] == ["9.4", "9.4", "9"]


def test_rhel_takes_the_minor_release_of_the_os_where_the_kernel_names_none() -> None:
    attempts = rhel.repositories(os_release("rhel", "9.4"), KernelRelease.parse("5.14.0-427.el9.x86_64"), {})
    assert attempts[0].releasever == "9.4"
    # a kernel of another major release says nothing about its minor one
    other = rhel.repositories(os_release("rhel", "8.10"), KernelRelease.parse("5.14.0-427.el9.x86_64"), {})
    assert other[0].releasever == "9"


def test_openshift_and_a_pinned_release_are_honoured() -> None:
    environ = {"OPENSHIFT_VERSION": "4.16", "DNF_RELEASEVER": "9.2"}
    attempts = rhel.repositories(
        os_release("rhel", "9.4"), KernelRelease.parse("5.14.0-427.el9_4.aarch64+64k"), environ
    )
    assert attempts[0].enable == ("rhocp-4.16-for-rhel-9-aarch64-rpms",)
    assert attempts[0].releasever == "9.2"


def test_a_release_that_is_given_is_asked_for_on_clones_of_rhel_too() -> None:
    attempts = rhel.repositories(
        os_release("ol", "9"), KernelRelease.parse("5.14.0-687.el9.x86_64"), {"DNF_RELEASEVER": "9.2"}
    )
    assert [attempt.releasever for attempt in attempts] == ["", "9.2", "9"]


@pytest.mark.parametrize(
    ("kernel", "repository"),
    [
        ("5.15.0-302.167.6.el9uek.x86_64", "ol9_UEKR7"),
        ("6.12.0-100.28.2.2.el9uek.aarch64", "ol9_UEKR8"),
    ],
)
def test_oracles_own_kernel_is_in_a_repository_that_its_image_leaves_off(
    kernel: str, repository: str
) -> None:
    attempts = rhel.repositories(os_release("ol", "9.6"), KernelRelease.parse(kernel), {})
    assert [(attempt.enable, attempt.releasever) for attempt in attempts] == [((repository,), "")]


def test_amazon_linux_asks_its_own_release_and_then_the_newest() -> None:
    kernel = KernelRelease.parse("6.1.166-197.305.amzn2023.x86_64")
    attempts = rhel.repositories(os_release("amzn", "2023"), kernel, {})
    assert [attempt.releasever for attempt in attempts] == ["", "latest"]
    given = {"DNF_RELEASEVER": "2023.12.20260817"}
    attempts = rhel.repositories(os_release("amzn", "2023"), kernel, given)
    assert [attempt.releasever for attempt in attempts] == ["", "2023.12.20260817", "latest"]


def test_clones_of_rhel_have_no_subscription_repositories() -> None:
    attempts = rhel.repositories(
        os_release("rocky", "9.4"), KernelRelease.parse("5.14.0-427.el9_4.x86_64"), {}
    )
    assert all(attempt.enable == () for attempt in attempts)
    assert attempts[0].releasever == ""
