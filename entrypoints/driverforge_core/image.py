"""What an image says about itself.

image.json tells about the whole of it, module-set.json about each set of compiled modules. The builder writes
both, driverctl reads them on the node. A reader of another schema refuses, it does not guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from driverforge_core.arch import ARCHITECTURES
from driverforge_core.cms import DIGESTS
from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import InputError
from driverforge_core.jsonreader import JsonReader, canonical
from driverforge_core.kernel import KernelRelease
from driverforge_core.names import MODULE_TYPES
from driverforge_core.osid import OsId

SCHEMA = 1
FACTS_PATH = "/opt/driverforge/image.json"
MODULES_ROOT = "/opt/lib/modules"
MODULE_SET_NAME = "module-set.json"
ANSWERS_NAME = "conftest.txt"
"""Beside modules that were compiled: what NVIDIA's conftest.sh found out about their kernel."""
PAYLOADS = ("packages", "runfile", "image")
VARIANTS = ("jit", "precompiled")

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*\.ko")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """The content of /opt/driverforge/image.json.

    `module_types` are the kinds that the image can provide, compiled or as source; `kernels` those it has
    compiled modules for; `sources` the source tree of each kind (empty in an image without sources);
    `firmware` is the directory with nvidia/<driver>/*.bin; `source_digests` maps a kind to the
    'sha256:<hex>' of what its sources were made of, which tells the cached modules of two images apart;
    `source_versions` maps it to the version of the distribution's package with its source, where that is one.
    """

    os: OsId
    arch: str
    driver: DriverVersion
    payload: str
    module_types: tuple[str, ...]
    variant: str
    kernels: tuple[KernelRelease, ...]
    sources: Mapping[str, str]
    firmware: str
    source_digests: Mapping[str, str] = field(default_factory=dict)
    source_versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> ImageFacts:
        """Raises InputError with every problem of the document."""
        read = JsonReader(text, what="image.json", schema=SCHEMA)
        os = read.parsed("os", OsId.parse)
        driver = read.parsed("driver", DriverVersion)
        kernels = [read.attempt("kernels", KernelRelease.parse, item) for item in read.texts("kernels")]
        values = {
            "arch": read.text("arch", choices=ARCHITECTURES),
            "payload": read.text("payload", choices=PAYLOADS),
            "variant": read.text("variant", choices=VARIANTS),
            "firmware": read.text("firmware", default=""),
        }
        module_types = read.texts("module_types", choices=MODULE_TYPES)
        sources = read.mapping("sources", keys=MODULE_TYPES)
        source_digests = read.mapping("source_digests", keys=MODULE_TYPES, default={})
        source_versions = read.mapping("source_versions", keys=MODULE_TYPES, default={})
        read.finish()
        assert os is not None
        assert driver is not None
        found = tuple(kernel for kernel in kernels if kernel is not None)
        return cls(
            os=os,
            driver=driver,
            module_types=module_types,
            kernels=found,
            sources=sources,
            source_digests=source_digests,
            source_versions=source_versions,
            **values,
        )

    def to_json(self) -> str:
        return canonical(
            {
                "schema": SCHEMA,
                "os": self.os.key,
                "arch": self.arch,
                "driver": self.driver.text,
                "payload": self.payload,
                "module_types": self.module_types,
                "variant": self.variant,
                "kernels": [kernel.text for kernel in self.kernels],
                "sources": dict(self.sources),
                "firmware": self.firmware,
                **({"source_digests": dict(self.source_digests)} if self.source_digests else {}),
                **({"source_versions": dict(self.source_versions)} if self.source_versions else {}),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSet:
    """The modules of one (driver, module type, kernel release, architecture, compiler).

    `modules` maps file names ('nvidia-uvm.ko') to 'sha256:<hex>' of the files as they are there, after
    stripping and signing; `compiler` is the first line of the compiler's --version; `signer` is '' for
    unsigned modules; `signer_key` is what /proc/keys of a kernel that has the signer's key shows behind its
    name, '' where it is not known; `signature_digests` are digest algorithms that the kernel has for
    signatures, its own choice first, none where that is not known; `network` is the 'sha256:<hex>' of the
    network driver's Module.symvers that nvidia-peermem was compiled against, '' where that was the kernel's
    own.
    """

    driver: DriverVersion
    module_type: str
    kernel: KernelRelease
    arch: str
    compiler: str
    modules: Mapping[str, str]
    signer: str
    signer_key: str = ""
    signature_digests: tuple[str, ...] = ()
    network: str = ""

    @property
    def directory(self) -> str:
        """Where an image has it: /opt/lib/modules/<release>/<type>."""
        return module_set_directory(self.kernel, self.module_type)

    @classmethod
    def from_json(cls, text: str) -> ModuleSet:
        """Raises InputError with every problem of the document."""
        read = JsonReader(text, what=MODULE_SET_NAME, schema=SCHEMA)
        driver = read.parsed("driver", DriverVersion)
        kernel = read.parsed("kernel", KernelRelease.parse)
        module_type = read.text("module_type", choices=MODULE_TYPES)
        arch = read.text("arch", choices=ARCHITECTURES)
        compiler = read.text("compiler")
        signer = read.text("signer")
        signer_key = read.text("signer_key", default="")
        signature_digests = read.texts("signature_digests", choices=DIGESTS, default=())
        network = read.text("network", default="")
        modules = read.mapping("modules")
        for name, digest in modules.items():
            if not _MODULE.fullmatch(name) or not _DIGEST.fullmatch(digest):
                read.problem(
                    f"modules: {name!r}: {digest!r} is no NAME.ko with its sha256:<64 hexadecimal digits>"
                )
        read.finish()
        assert driver is not None
        assert kernel is not None
        return cls(
            driver=driver,
            module_type=module_type,
            kernel=kernel,
            arch=arch,
            compiler=compiler,
            modules=modules,
            signer=signer,
            signer_key=signer_key,
            signature_digests=signature_digests,
            network=network,
        )

    def to_json(self) -> str:
        return canonical(
            {
                "schema": SCHEMA,
                "driver": self.driver.text,
                "module_type": self.module_type,
                "kernel": self.kernel.text,
                "arch": self.arch,
                "compiler": self.compiler,
                "modules": dict(self.modules),
                "signer": self.signer,
                **({"signer_key": self.signer_key} if self.signer_key else {}),
                **({"signature_digests": self.signature_digests} if self.signature_digests else {}),
                **({"network": self.network} if self.network else {}),
            }
        )


def module_set_directory(kernel: KernelRelease, module_type: str) -> str:
    """/opt/lib/modules/<release>/<type>; InputError for a type that is none."""
    if module_type not in MODULE_TYPES:
        raise InputError(
            f"{module_type!r} is not a module type", resolution=f"use {' or '.join(MODULE_TYPES)}"
        )
    return f"{MODULES_ROOT}/{kernel}/{module_type}"
