"""How the bench reads what `go` says about a module proxy, and what it takes instead."""

from __future__ import annotations

import pytest

from support.gobuild import newer, refusals, staged

# go 1.26.8, addresses shortened
REFUSED = """\
go: github.com/site/app/cmd imports
	github.com/site/one: github.com/site/one@v1.2.0: reading \
https://proxy.test/github.com/site/one/@v/v1.2.0.zip: 403 Forbidden
	server response: This module version is not available.
go: k8s.io/two@v0.35.4 (replaced by k8s.io/two@v0.35.5): reading \
https://proxy.test/k8s.io/two/@v/v0.35.5.mod: 404 Not Found
go: example.test/three@v0.0.0-20250102030405-abcdefabcdef: reading https://proxy.test/three.info: 410 Gone
"""
WHOLE = """\
go: module github.com/SITE/four: reading https://proxy.test/github.com/!s!i!t!e/four/@v/list: 403 Forbidden
"""
# the proxy or the network fails; the checksum database refuses nothing
BROKEN = """\
go: a.test/five@v1.0.0: reading https://proxy.test/a.test/five/@v/v1.0.0.mod: 503 Service Unavailable
go: a.test/five@v1.0.0: Get "https://proxy.test/a.test/five/@v/v1.0.0.mod": dial tcp: connection refused
go: a.test/six@v1.0.0: verifying go.mod: a.test/six@v1.0.0/go.mod: reading \
https://sums.test/lookup: 404 Not Found
five.go:1:1: expected 'package', found 'EOF'
"""


def test_refused_versions_are_named_and_what_is_broken_is_not() -> None:
    assert refusals(REFUSED) == (
        ("example.test/three", "v0.0.0-20250102030405-abcdefabcdef"),
        ("github.com/site/one", "v1.2.0"),
        ("k8s.io/two", "v0.35.5"),
    )
    assert refusals(WHOLE) == (("github.com/SITE/four", "latest"),)
    assert refusals(BROKEN) == ()


LISTED = ("v1.9.0", "v1.10.0-rc.1", "v1.10.0", "v1.2.0", "v1.11.0+incompatible", "v2.0.0+incompatible")


@pytest.mark.parametrize(
    ("refused", "taken"),
    [
        ("v1.2.0", "v1.9.0"),
        ("v1.9.0", "v1.10.0"),
        ("v1.10.0-rc.1", "v1.10.0"),
        ("v1.10.0", "v1.11.0+incompatible"),
        ("v1.11.0+incompatible", "v2.0.0+incompatible"),
        ("v2.0.0+incompatible", None),
        ("v0.0.0-20250102030405-abcdefabcdef", "v1.2.0"),
        ("latest", None),
    ],
)
def test_the_oldest_newer_release_is_taken(refused: str, taken: str | None) -> None:
    assert newer(LISTED, refused) == taken


UPSTREAM = """\
module k8s.io/kubernetes

go 1.25.0

require (
	go.etcd.io/etcd/server/v3 v3.6.5 // indirect
	k8s.io/api v0.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kube-proxy => ./staging/src/k8s.io/kube-proxy
)
"""

BUILDABLE = """\
module bench

go 1.25.0

require (
	go.etcd.io/etcd/server/v3 v3.6.5 // indirect
	k8s.io/api v0.0.0
)

replace (
	k8s.io/api => k8s.io/api v0.35.4
	k8s.io/kube-proxy => k8s.io/kube-proxy v0.35.4
)

require k8s.io/kubernetes v1.35.4
"""


def test_folders_that_the_proxy_lacks_become_published_modules() -> None:
    assert staged(UPSTREAM, "k8s.io/kubernetes", "v1.35.4") == BUILDABLE
