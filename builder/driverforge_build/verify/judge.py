"""What a pass is, for each module, on a machine without a GPU. docs/verify.md has the reasons and sources.

An errno of insmod and the kernel's own words decide; nothing here has run anything.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from driverforge_build.ports import GuestEnd
from driverforge_build.verify.guest import Answer, Transcript
from driverforge_build.verify.modules import ImageModule, ImageModules
from driverforge_core.names import PEERMEM

_NO_GPU = re.compile(r"No NVIDIA (GPU|graphics adapter) found")
_UNKNOWN = re.compile(r"Unknown symbol (\S+) \(err -?\d+\)")
_OTHER_VERSION = re.compile(r"disagrees about version of symbol (\S+)")
_UNTRUSTED = re.compile(r"of module with unavailable key is rejected", re.IGNORECASE)
_REJECTED = frozenset({errno.EKEYREJECTED, errno.ENOKEY, errno.ENOPKG, errno.EBADMSG})
"""What a kernel says of a signature that does not fit, or that it cannot read (kernel/module/signing.c)."""
_PEERS = frozenset({"ib_register_peer_memory_client", "ib_unregister_peer_memory_client"})
"""What a network driver (MLNX_OFED, DOCA) exports for nvidia-peermem, and no kernel does."""


class Kind(Enum):
    """What of a module is looked at."""

    FILE = "file"
    """Digest, vermagic, version and signer, against what its set says."""
    INSERT = "insert"
    """Inserted into the kernel."""
    SIGNATURE = "signature"
    """Inserted into the kernel that takes signed modules only (module.sig_enforce=1)."""
    UNSIGNED = "unsigned copy"
    """The same with the signature cut off: that kernel has to refuse it."""


class Outcome(Enum):
    """What came out. Those of `_PASSES` are a pass, `UNTRUSTED` is one with a warning."""

    AS_DESCRIBED = "as-described"
    INSERTED = "inserted"
    NO_GPU = "no-gpu"
    NO_DRIVER = "needs-nvidia"
    NO_PEERS = "no-network-driver"
    TRUSTED = "trusted"
    REFUSED = "refused"
    UNTRUSTED = "untrusted"

    NOT_AS_DESCRIBED = "not-as-described"
    WRONG_KERNEL = "wrong-kernel"
    UNKNOWN_SYMBOL = "unknown-symbol"
    REJECTED = "rejected"
    TAKEN = "taken"
    FAILED = "failed"
    HUNG = "hung"
    CRASHED = "crashed"
    NOT_REACHED = "not-reached"


_PASSES = frozenset(
    {
        Outcome.AS_DESCRIBED,
        Outcome.INSERTED,
        Outcome.NO_GPU,
        Outcome.NO_DRIVER,
        Outcome.NO_PEERS,
        Outcome.TRUSTED,
        Outcome.REFUSED,
        Outcome.UNTRUSTED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at. `module` is 'open/nvidia.ko', `log` the kernel's words about it."""

    module: str
    kind: Kind
    outcome: Outcome
    reason: str = ""
    log: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.module}: {self.kind.value}"

    @property
    def passed(self) -> bool:
        return self.outcome in _PASSES

    @property
    def warned(self) -> bool:
        return self.outcome is Outcome.UNTRUSTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a guest said, and how it ended: `silence` is how many seconds it was given to say something.

    `console` are the last lines of its kernel's console.
    """

    said: Transcript
    end: GuestEnd
    silence: float
    console: tuple[str, ...]


def check_files(modules: ImageModules) -> Iterator[Check]:
    """What can be told without a kernel."""
    for module in modules.modules:
        problems = list(module.problems(modules.described))
        yield Check(
            module=module.path,
            kind=Kind.FILE,
            outcome=Outcome.NOT_AS_DESCRIBED if problems else Outcome.AS_DESCRIBED,
            reason="; ".join(problems),
        )


def check_inserted(modules: ImageModules, heard: Heard, absent: Collection[str] = ()) -> Iterator[Check]:
    """What a kernel made of a set's modules. `absent` are names of modules that its packages do not hold."""
    for module in modules.modules:
        check = _check(module.path, Kind.INSERT, heard, partial(_inserted, module, modules.modules))
        if check.outcome is Outcome.UNKNOWN_SYMBOL and (lacking := set(absent) & set(module.depends)):
            why = f"it depends on {_some(sorted(lacking))}, which the kernel's packages do not hold"
            check = replace(check, reason=f"{check.reason}; {why}")
        yield check


def check_signatures(modules: ImageModules, heard: Heard) -> Iterator[Check]:
    """What a kernel that takes signed modules only made of those that are signed."""
    for module in modules.signed:
        yield _check(module.path, Kind.SIGNATURE, heard, partial(_signed, module, heard.said.keys))


def check_unsigned(path: str, heard: Heard) -> Check:
    """What that kernel made of an unsigned copy of the module at `path`."""
    return _check(path, Kind.UNSIGNED, heard, _refused, inserted=unsigned(path))


def unsigned(path: str) -> str:
    """What a guest calls the unsigned copy of a module."""
    return f"unsigned/{path}"


def _check(
    path: str, kind: Kind, heard: Heard, judge: Callable[[Answer], tuple[Outcome, str]], *, inserted: str = ""
) -> Check:
    """`inserted` is what the guest calls the module, where that is not its path."""
    answer = heard.said.answers.get(inserted or path)
    if answer is None:
        outcome, reason = _unanswered(inserted or path, heard)
        return Check(module=path, kind=kind, outcome=outcome, reason=reason, log=heard.console)
    outcome, reason = judge(answer)
    return Check(module=path, kind=kind, outcome=outcome, reason=reason, log=answer.log)


def _unanswered(path: str, heard: Heard) -> tuple[Outcome, str]:
    trying = heard.said.trying
    if trying != path:
        return Outcome.NOT_REACHED, f"not tried: {trying or 'something before it'} ended the guest"
    if heard.end is GuestEnd.SILENT:
        return Outcome.HUNG, f"its init has not ended after {heard.silence:.0f} s"
    return Outcome.CRASHED, "the kernel went down while it was inserted"


def _refused(answer: Answer) -> tuple[Outcome, str]:
    if answer.status == errno.EKEYREJECTED:
        return Outcome.REFUSED, _last(answer)
    return Outcome.TAKEN, "with module.sig_enforce=1 this kernel looks into a module that is not signed"


def _inserted(module: ImageModule, together: Sequence[ImageModule], answer: Answer) -> tuple[Outcome, str]:
    if answer.status == 0:
        return Outcome.INSERTED, ""
    if answer.status == errno.ENODEV and (
        module.name != "nvidia" or any(_NO_GPU.search(line) for line in answer.log)
    ):
        return Outcome.NO_GPU, next(filter(_NO_GPU.search, answer.log), "its init found no device")
    if other := [found[1] for line in answer.log if (found := _OTHER_VERSION.search(line))]:
        return Outcome.WRONG_KERNEL, f"compiled against other versions of {_some(other)}"
    if answer.status == errno.ENOEXEC:
        return Outcome.WRONG_KERNEL, _last(answer)
    unknown = dict.fromkeys(found[1] for line in answer.log if (found := _UNKNOWN.search(line)))
    if answer.status == errno.ENOENT and unknown:
        return _unresolved(module, unknown, together)
    if answer.status == errno.EINVAL and module.name == PEERMEM and not _serves_peers(module):
        return Outcome.NO_PEERS, "compiled without a network driver's symbols: its init always ends so"
    if answer.status in _REJECTED:
        return Outcome.REJECTED, _last(answer)
    return Outcome.FAILED, _last(answer)


def _unresolved(
    module: ImageModule, unknown: Mapping[str, None], together: Sequence[ImageModule]
) -> tuple[Outcome, str]:
    """Without a GPU nvidia.ko does not stay, so the kernel cannot know its symbols.

    All others have to be the kernel's, and those have to be exported by the modules of this very set.
    """
    needed = [other for other in together if other.name in module.depends]
    peers = _PEERS if module.name == PEERMEM else frozenset[str]()
    strange = [
        symbol
        for symbol in unknown
        if symbol not in peers and not any(symbol in other.exports for other in needed)
    ]
    if strange:
        return Outcome.UNKNOWN_SYMBOL, f"nothing exports {_some(strange)}"
    if peers & unknown.keys():
        return Outcome.NO_PEERS, "the rest of its symbols comes with the node's network driver"
    names = " and ".join(other.file for other in needed if other.exports & unknown.keys())
    left = "1 symbol" if len(unknown) == 1 else f"{len(unknown)} symbols"
    return Outcome.NO_DRIVER, f"{left} left, exported by {names}, which needs a GPU to stay"


def _serves_peers(module: ImageModule) -> bool:
    return b"ib_register_peer_memory_client" in module.content


def _signed(module: ImageModule, keys: Sequence[str], answer: Answer) -> tuple[Outcome, str]:
    signature = module.signature
    assert signature is not None
    signer = f"signed by {signature.signer or 'key ' + signature.key_id.hex()}"
    # the signature is looked at first: what ended otherwise was taken
    if answer.status not in _REJECTED:
        return Outcome.TRUSTED, signer
    known = any(key.partition(": ")[0] == signature.signer for key in keys)
    if any(_UNTRUSTED.search(line) for line in answer.log) and not known:
        return Outcome.UNTRUSTED, (
            f"{signer}, whose key is none of this kernel's own: nodes with Secure Boot need it enrolled"
        )
    return Outcome.REJECTED, f"{signer}: {_last(answer)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}"


def _last(answer: Answer) -> str:
    """insmod's errno, and the last thing that the kernel said."""
    name = os.strerror(answer.status)
    return f"{name}: {answer.log[-1]}" if answer.log else f"{name}: {answer.words}".rstrip(": ")
