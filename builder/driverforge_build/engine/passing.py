"""Which failures of an engine pass, so that the same build or push may work in a minute.

A network, a registry or a mirror that is busy or away. What a RUN step did is judged by its exit status
alone: our scripts end with EX_TEMPFAIL (75) where a mirror does not answer. So no line of a compiler is ever
taken for a reason to try again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

# BuildKit's words, and buildah's
_STEP_FAILED = re.compile(
    r"did not complete successfully: exit code: (?P<buildkit>\d+)"
    r"|building at STEP .*: while running runtime: exit status (?P<buildah>\d+)"
)
# the last line of a buildah that has started itself anew says nothing but its status
_FAILED = re.compile(r"^(?:(?:#\d+ )?ERROR|Error): (?!exit status \d+$)")
# words of Go's net and net/http, of gRPC, of containerd's and docker's registry clients, of BuildKit's ADD
_PASSING = re.compile(
    r"i/o timeout|TLS handshake timeout|context deadline exceeded|DeadlineExceeded|timed out"
    r"|connection re(?:set by peer|fused)|broken pipe|unexpected EOF|: EOF$|no such host|server misbehaving"
    r"|network is unreachable|no route to host|code = Unavailable|http2: server sent GOAWAY"
    r"|temporary failure in name resolution|toomanyrequests|Too Many Requests"
    r"|unexpected (?:HTTP )?status.*\b(?:429|5\d\d)\b|\b50[0234] (?:Internal|Bad|Service|Gateway)"
    r"|invalid response status (?:429|5\d\d)\b",
    re.IGNORECASE,
)


def passing_reason(lines: Iterable[str]) -> str:
    """The line that names a passing reason, of a build's output; '' where the failure would come again."""
    said = [line for line in lines if _FAILED.match(line)]
    if not said:
        return ""
    if found := _STEP_FAILED.search(said[-1]):
        return said[-1] if int(found["buildkit"] or found["buildah"]) == os.EX_TEMPFAIL else ""
    return said[-1] if passes(said[-1]) else ""


def passes(message: str) -> bool:
    """Whether an engine's error message, of a push, is about something that passes."""
    return _PASSING.search(message) is not None
