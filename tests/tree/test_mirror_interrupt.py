"""A copy ends when it is told to, as a process: threads that wait for a registry do not keep it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

# what is read ahead of a part does not come, which no request that can be stopped is about
_PROGRAM = """
import signal, sys, time
from pathlib import Path
from types import SimpleNamespace
from driverforge_mirror.copying.copier import Copier
from driverforge_mirror.lists.loads import Load
from driverforge_mirror.copying.registries import PART, BegunUploads, RegistrySink
from driverforge_mirror.copying.tide import Tide
from driverforge_oci.client import digest_of
from driverforge_oci.reference import Reference
from driverforge_oci.uploads import Upload

class Source:
    def __init__(self):
        self.left = PART
    def open_blob(self, _load, _digest, _offset):
        return self
    def read(self, size):
        if not self.left:
            print("silent", flush=True)
            time.sleep(60)
        size = min(size, self.left)
        self.left -= size
        return bytes(size)
    def close(self): ...

class Sink(RegistrySink):
    def holds(self, _load):
        return False

uploads = SimpleNamespace(
    begin=lambda _place, **_given: Upload(location="/a"),
    append=lambda _place, upload, _part, size: Upload(location="/a", offset=upload.offset + size),
)
client = SimpleNamespace(has_blob=lambda _place, _digest: False, uploads=uploads)
sink = Sink(client=client, begun=BegunUploads(Path(sys.argv[1]) / "uploads.json"))
nothing = lambda *_given, **_named: None
listener = SimpleNamespace(begins=nothing, settled=nothing, moved=nothing, copied=nothing)
place = Reference.parse("registry.site/a:1")
load = Load(
    image="a", digest=digest_of(b""), source=place, place=place, manifests={},
    blobs={digest_of(b"a"): 2 * PART},
)
signal.signal(signal.SIGINT, signal.default_int_handler)
Copier(source=Source(), sink=sink, tide=Tide(now=time.monotonic), listener=listener).run([load])
"""


def test_an_interrupt_does_not_wait_for_what_is_read_ahead(tmp_path: Path) -> None:
    """Python joins the threads of a pool before it ends."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    with subprocess.Popen(
        argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            assert run.stdout
            assert run.stdout.readline() == "silent\n"
            run.send_signal(signal.SIGINT)
            _, told = run.communicate(timeout=15)
        finally:
            run.kill()
    assert "KeyboardInterrupt" in told
