"""Real pods through a runtime handler, asked of containerd over its runtime interface.

This is what a kubelet would do, without a kubelet. Field numbers are those of runtime.v1 (k8s.io/cri-api
api.proto). The handlers' program is a fake of NVIDIA's. It says in a log that it was called, and hands on to
runc: there is no GPU here, and no libnvidia-container.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

from driverforge_host.adapters.sockets import UnixSockets
from driverforge_toolkit.runtime.find.cri import call, fields, messages, texts
from support import aptfetch
from support.machines import ociarchive
from support.process import until

NODE = 2  # NamespaceMode of the network: the node's own, so that no CNI plugin is needed
EXITED = 2  # ContainerState
IMAGES = "/runtime.v1.ImageService"

Message = Mapping[int, "str | int | Message | list[str]"]

# containerd gives a sandbox a negative OOM score, which needs CAP_SYS_RESOURCE: root may lack it here
FAKE = """#!/bin/sh
# a fake of NVIDIA's container runtime, for tests: it notes that it was called, and execs runc
echo "${{0##*/}} $*" >>{log}
bundle=
for word; do
  [ "$last" = --bundle ] && bundle=$word
  last=$word
done
[ -z "$bundle" ] || sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$bundle/config.json"
exec {runc} "$@"
"""


def fake_toolkit(folder: Path, runc: Path, log: Path, names: tuple[str, ...]) -> None:
    """The handlers' programs in `folder`; each call adds a line to `log`."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(FAKE.format(log=log, runc=runc))
        (folder / name).chmod(0o755)


def busybox() -> Path:
    """A folder with bin/busybox, which needs nothing else."""
    archive = aptfetch.archive()
    return archive.unpacked([archive.newest("busybox-static", suite="bookworm")])


def image_archive(target: Path) -> Path:
    """An image of busybox alone, which stays until it is stopped."""
    ociarchive.write(
        target,
        [{"bin/busybox": busybox() / "bin/busybox"}],
        config={"Cmd": ["/bin/busybox", "sleep", "1000000"], "Env": ["PATH=/bin"]},
    )
    return target


def encode(message: Message) -> bytes:
    """A protocol buffer of a mapping from field number to text, number, message or list of texts."""
    return b"".join(_field(number, value) for number, value in message.items())


def _field(number: int, value: object) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, list):
        return b"".join(_field(number, one) for one in value)
    data = encode(value) if isinstance(value, Mapping) else str(value).encode()
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


class Pods:
    """The pods of one containerd."""

    def __init__(self, socket: str, image: str) -> None:
        self._socket = socket
        self._image = image

    def _ask(self, method: str, message: Message) -> bytes:
        with UnixSockets().connect(self._socket, timeout=60) as connection:
            return call(connection, method, encode(message))

    def _has_image(self) -> bool:
        with UnixSockets().connect(self._socket, timeout=60) as connection:
            answer = call(connection, "ImageStatus", encode({1: {1: self._image}}), service=IMAGES)
        return bool(messages(answer, 1))

    def pull(self) -> None:
        """Have the image pulled as a kubelet does. Raises where that fails, with what containerd says."""
        with UnixSockets().connect(self._socket, timeout=60) as connection:
            call(connection, "PullImage", encode({1: {1: self._image}}), service=IMAGES)

    def run(self, handler: str, command: list[str], *, device: str = "") -> int:
        """Run a pod with one container, which may get a CDI device, through a handler ('' for the default).

        It waits for the container's end, removes the pod, and returns the exit status.
        """
        # the runtime interface hears in the background of what ctr imported; until then it would pull
        until(self._has_image, f"the image {self._image}")
        security = {1: {1: NODE}}
        pod: Message = {1: {1: "pod", 2: uuid.uuid4().hex, 3: "default"}, 8: {2: security}}
        asked: Message = {1: pod, 2: handler} if handler else {1: pod}
        (sandbox,) = texts(self._ask("RunPodSandbox", asked), 1)
        try:
            wanted: Message = {1: {1: "main"}, 2: {1: self._image}, 3: command, 15: {2: {3: {1: NODE}}}}
            if device:
                wanted = {**wanted, 17: {1: device}}
            (container,) = texts(self._ask("CreateContainer", {1: sandbox, 2: wanted, 3: pod}), 1)
            self._ask("StartContainer", {1: container})
            until(
                lambda: self._status(container).get(3) == EXITED,
                f"the end of a container of {handler or 'the default handler'}",
            )
            return self._status(container).get(7, 0)
        finally:
            self._ask("StopPodSandbox", {1: sandbox})
            self._ask("RemovePodSandbox", {1: sandbox})

    def _status(self, container: str) -> dict[int, int]:
        (status,) = messages(self._ask("ContainerStatus", {1: container}), 1)
        return {number: value for number, value in fields(status) if isinstance(value, int)}
