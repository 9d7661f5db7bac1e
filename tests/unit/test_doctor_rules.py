"""Every rule of the doctor: a node on which it speaks, and one beside it on which it is silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from driverforge_toolkit.cdi.spec import ContainerEdits, DeviceNode, Spec, SpecDevice, SpecHook
from driverforge_toolkit.cdi.specfiles import SpecFile
from driverforge_toolkit.commands.doctor import as_document, as_text
from driverforge_toolkit.doctor import runtime_files
from driverforge_toolkit.doctor.evidence import (
    NodeEvidence,
    RestoreEvidence,
    RestoreState,
    RuntimeEvidence,
    TemplateEvidence,
    ToolkitEvidence,
)
from driverforge_toolkit.doctor.rules import RULES, examine, looked_at
from driverforge_toolkit.runtime.backends.containerd_config import CRI_V2, CRI_V3
from driverforge_toolkit.runtime.formats.tomledit import parse
from driverforge_toolkit.runtime.journal import JournalEntry, JournalFile
from driverforge_toolkit.runtime.model import Supervisor
from driverforge_toolkit.runtime.transaction.refused import RefusedChange

CONFIG = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
SOCKET = "/run/containerd/containerd.sock"
CRI = 'plugins."io.containerd.grpc.v1.cri"'
CRI3 = 'plugins."io.containerd.cri.v1.runtime"'
PROGRAM = "/usr/local/nvidia/toolkit/nvidia-container-runtime"


def handler(
    name: str = "nvidia", section: str = CRI, kind: str = "io.containerd.runc.v2", program: str = PROGRAM
) -> str:
    type_ = f'runtime_type = "{kind}"\n' if kind else ""
    table = f"{section}.containerd.runtimes.{name}"
    return f'[{table}]\n{type_}[{table}.options]\nBinaryName = "{program}"\n'


KATA3 = f'[{CRI3}.containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n'
RUNC = f'[{CRI}.containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
ROOT = "version = 2\n" + RUNC
GOOD = "version = 2\n" + RUNC + handler()


def containerd(
    root: str, drop_in: str = "", *, loose: str = "", version: tuple[int, ...] = (1, 7, 24), **more: Any
) -> RuntimeEvidence:
    texts = {path: text for path, text in ((CONFIG, root), (DROP_IN, drop_in)) if text}
    documents = {path: parse(text.encode(), path) for path, text in texts.items()}
    beside = {DROP_IN: parse(loose.encode(), DROP_IN)} if loose else {}
    return RuntimeEvidence(
        kind="containerd",
        config=CONFIG,
        socket=SOCKET,
        version=version,
        documents=documents,
        texts=texts,
        loose=beside,
        **more,
    )


def docker(document: Mapping[str, object]) -> RuntimeEvidence:
    path = "/etc/docker/daemon.json"
    return RuntimeEvidence(kind="docker", config=path, socket="/run/docker.sock", documents={path: document})


def crio(text: str) -> RuntimeEvidence:
    path = "/etc/crio/crio.conf"
    return RuntimeEvidence(
        kind="crio", config=path, socket="/run/crio/crio.sock", documents={path: parse(text.encode(), path)}
    )


def in_section(section: str, runtime: str, version: int) -> dict[str, object]:
    table = {
        "default_runtime_name": runtime,
        "runtimes": {runtime: {"options": {"BinaryName": f"/{runtime}"}}},
    }
    return {"version": version, "plugins": {section: {"containerd": table}}}


def test_each_file_is_brought_to_one_version_by_itself() -> None:
    """The root file has the newer section, a drop-in the older one."""
    documents = {"/c": in_section(CRI_V3[1], "runc", 3), "/d": in_section(CRI_V2[1], "nvidia", 2)}
    for version in ((2, 1, 9), (2, 4, 2), ()):
        runtime = RuntimeEvidence(kind="containerd", config="/c", version=version, documents=documents)
        assert runtime_files.handlers(runtime) == {"runc": "/runc", "nvidia": "/nvidia"}
        assert runtime_files.default(runtime) == "nvidia"


@pytest.mark.parametrize(("version", "counts"), [((2, 1, 9), False), ((2, 3, 7), True), ((2, 4, 2), True)])
def test_the_old_section_of_a_version_3_file_is_seen_where_it_counts(
    version: tuple[int, ...], counts: bool
) -> None:
    documents = {"/c": in_section(CRI_V2[1], "nvidia", 3)}
    runtime = RuntimeEvidence(kind="containerd", config="/c", version=version, documents=documents)
    assert runtime_files.has_nvidia(runtime) is counts
    assert runtime_files.default(runtime) == ("nvidia" if counts else "")


def test_a_runtime_of_a_later_file_replaces_all_of_crios_earlier_one() -> None:
    table = "[crio.runtime.runtimes.nvidia]\n"
    first = crio(f'{table}runtime_path = "/n"\n')
    later = {"/etc/crio/crio.conf.d/x.conf": parse(f'{table}runtime_root = "/r"\n'.encode(), "x")}
    whole = replace(first, documents={**first.documents, **later})
    assert (runtime_files.handlers(first), runtime_files.handlers(whole)) == (
        {"nvidia": "/n"},
        {"nvidia": ""},
    )


def facts(*runtimes: RuntimeEvidence, **more: Any) -> NodeEvidence:
    return NodeEvidence(live=True, runtimes=runtimes, **{"toolkit": TOOLKIT, **more})


def entry(state: str = "in force", restore: str = "") -> JournalEntry:
    file = JournalFile(path=CONFIG, original=b"", written=GOOD.encode(), before=b"")
    return JournalEntry(
        kind="containerd",
        socket=SOCKET,
        binary="/usr/bin/containerd",
        config=CONFIG,
        drop_in=DROP_IN,
        supervisor=Supervisor(kind=""),
        handlers=(("nvidia", PROGRAM),),
        files=(file,),
        state=state,
        restore=restore,  # type: ignore[arg-type]
    )


def spec(
    kind: str = "nvidia.com/gpu",
    *,
    driver: str = "",
    nodes: tuple[DeviceNode, ...] = (),
    path: str = "/etc/cdi/a.yaml",
    version: str = "0.5.0",
) -> SpecFile:
    hooks = (
        (SpecHook(name="createContainer", path="/h", args=(f"--host-driver-version={driver}",)),)
        if driver
        else ()
    )
    edits = ContainerEdits(device_nodes=nodes, hooks=hooks)
    return SpecFile(
        path=path,
        folder=path.rpartition("/")[0],
        spec=Spec(version=version, kind=kind, devices=(SpecDevice(name="0", edits=edits),)),
    )


def template(text: str, *, root: str | None = None) -> TemplateEvidence:
    return TemplateEvidence(
        path="/var/lib/rancher/rke2/agent/etc/containerd/config.toml.tmpl",
        text=text,
        distribution="rke2",
        unit="rke2-server.service",
        root=root,
    )


def logs(*lines: str) -> NodeEvidence:
    return facts(logs={"containerd.service": lines})


TOOLKIT = ToolkitEvidence(
    folder="/usr/local/nvidia/toolkit", there=True, config="/t/config.toml", mode="auto"
)
KUBELET = {"kubelet": True, "kubelet_sockets": (SOCKET,)}
UVM = DeviceNode(path="/dev/nvidia-uvm", major=511, minor=0)
SYSTEMD = ROOT + f"[{CRI}.containerd.runtimes.runc.options]\nSystemdCgroup = true\n" + handler()
REFUSED = 'failed to get sandbox runtime: no runtime for \\"nvidia\\" is configured'
LOST = containerd(ROOT)
READ_ONLY = "/etc/containerd"
CDI = f"version = 2\n[{CRI}]\nenable_cdi = true\n"
PAUSE = f'[{CRI}]\nsandbox_image = "rancher/pause"\n'
BASE = '{{ template "base" . }}\n'
NO_FIELD = (
    'level=fatal msg="template: compiled_template:119:21: executing at <.SystemdCgroup>: no such field"'
)

# rule -> (speaks, silent): every pair differs in the one thing that the rule is about
CASES: dict[str, list[tuple[NodeEvidence, NodeEvidence]]] = {
    "drop-in-version": [
        (
            facts(containerd(ROOT, "version = 4\n", version=(2, 2, 0))),
            facts(containerd(ROOT, "version = 2\n", version=(2, 2, 0))),
        ),
        # of kata's, which 2.3.0 to 2.3.4 refuse alone
        (
            facts(containerd(ROOT, "version = 3\n" + KATA3, version=(2, 3, 4))),
            facts(containerd(ROOT, "version = 3\n" + KATA3, version=(2, 3, 5))),
        ),
        (
            facts(containerd(ROOT, "version = 3\n", version=())),
            facts(containerd("version = 3\n", "version = 2\n", version=())),
        ),
        (
            facts(containerd('root = "/x"\n', "version = 2\n")),
            facts(containerd("", "version = 3\n", version=(2, 2, 0))),
        ),
    ],
    "config-broken": [
        (
            facts(RuntimeEvidence(kind="containerd", config=CONFIG, broken=("line 3",))),
            facts(containerd(GOOD)),
        )
    ],
    "restart-doomed": [
        (
            facts(replace(containerd(GOOD), doomed=("/etc/spec.json is not there",))),
            facts(containerd(GOOD)),
        ),
        (
            facts(replace(containerd(GOOD), doomed=("`mirrors` cannot be set",), runs=True)),
            facts(replace(containerd(GOOD), doomed=("it starts without its CRI plugin",))),
        ),
    ],
    "cri-disabled": [
        # docker's own containerd
        (
            facts(containerd('disabled_plugins = ["cri"]\n', version=(1, 6, 33)), **KUBELET),
            facts(
                containerd('disabled_plugins = ["cri"]\n', version=(1, 6, 33)),
                kubelet=True,
                kubelet_sockets=("/run/crio/crio.sock",),
            ),
        ),
        (
            facts(containerd('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n', GOOD)),
            facts(containerd('version = 2\ndisabled_plugins = ["io.containerd.snapshotter.v1.zfs"]\n', GOOD)),
        ),
    ],
    "runc-missing": [
        (
            facts(containerd("version = 2\n", "version = 2\n" + handler())),
            facts(containerd("version = 2\n", GOOD)),
        ),
        (
            facts(containerd(ROOT, "version = 2\n" + handler())),
            facts(containerd(ROOT, "version = 2\n" + handler(), version=(2, 1, 9))),
        ),
        (
            facts(containerd("version = 2\n" + handler(), version=())),
            facts(containerd("version = 3\n" + handler(section=CRI3), version=())),
        ),
    ],
    "default-unknown": [
        (
            facts(containerd(ROOT + f'[{CRI}.containerd]\ndefault_runtime_name = "crun"\n')),
            facts(
                containerd(ROOT + handler("crun") + f'[{CRI}.containerd]\ndefault_runtime_name = "crun"\n')
            ),
        ),
        (
            facts(docker({"default-runtime": "nvidia"})),
            facts(docker({"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "/x"}}})),
        ),
        (facts(docker({"default-runtime": "gpu"})), facts(docker({"default-runtime": "runc"}))),
        (
            facts(crio('[crio.runtime]\ndefault_runtime = "kata"\n')),
            facts(crio('[crio.runtime]\ndefault_runtime = "crun"\n')),
        ),
    ],
    "template-without-base": [
        (
            facts(templates=(template(GOOD),)),
            facts(templates=(template(BASE + handler()),)),
        ),
        (
            facts(templates=(template("version = 3\n"),)),
            facts(templates=(template("{{ if .NodeConfig.SELinux }}x{{ end }}\n"),)),
        ),
        # a copy of what was made of the base, as older documentation has it
        (
            facts(templates=(template(ROOT),)),
            facts(templates=(template(f'{ROOT}[{CRI}]\nsandbox_image = "x"\n'),)),
        ),
    ],
    "template-error": [
        # what people make of a template that NVIDIA's toolkit left
        (
            facts(templates=(template(f"{BASE}\nversion = 2\n[plugins]\n[{CRI}]\n", root=ROOT + PAUSE),)),
            facts(templates=(template(f"{BASE}\n[debug]\n", root=ROOT + PAUSE),)),
        ),
        (
            facts(templates=(template(BASE),), logs={"k3s": (NO_FIELD,)}),
            facts(templates=(template(BASE),), logs={"k3s": (NO_FIELD, 'msg="Running containerd -c x"')}),
        ),
    ],
    "restart-loop": [
        (
            logs("systemd[1]: containerd.service: Scheduled restart job, restart counter is at 7."),
            logs("systemd[1]: containerd.service: Scheduled restart job, restart counter is at 1."),
        ),
        (
            logs("systemd[1]: k3s-agent.service: Start request repeated too quickly."),
            logs("systemd[1]: getty@tty1.service: Start request repeated too quickly."),
        ),
        (
            logs("systemd[1]: rke2-agent.service: Scheduled restart job, restart counter is at 3."),
            logs("systemd[1]: cups.service: Scheduled restart job, restart counter is at 30."),
        ),
    ],
    "sighup-death": [
        (
            logs("systemd[1]: containerd.service: Main process exited, code=killed, status=1/HUP"),
            logs("systemd[1]: containerd.service: Main process exited, code=killed, status=9/KILL"),
        ),
        (
            logs('level=error msg="containerd exited: signal: hangup"'),
            logs("systemd[1]: sshd.service: Main process exited, status=1/HUP"),
        ),
    ],
    "wrapper-calls-itself": [
        (
            facts(toolkit=replace(TOOLKIT, low_level=(PROGRAM, "runc"), own=(PROGRAM,))),
            facts(toolkit=replace(TOOLKIT, low_level=("runc",))),
        ),
    ],
    "restore-pending": [
        (
            facts(restores=(RestoreEvidence(path="/r/1", state=RestoreState.ARMED),)),
            facts(restores=(RestoreEvidence(path="/r/1", state=RestoreState.ARMED, watched=True),)),
        ),
        (
            facts(restores=(RestoreEvidence(path="/r/1", state=RestoreState.RESTORED, log=("put back",)),)),
            facts(),
        ),
    ],
    "config-version-1": [
        (
            facts(containerd("[plugins.cri]\nsandbox_image = 'x'\n"), **KUBELET),
            facts(containerd("version = 2\n[plugins.cri]\nsandbox_image = 'x'\n"), **KUBELET),
        ),
        (
            facts(containerd('disabled_plugins = ["cri"]\n', loose=handler(section="plugins.cri"))),
            facts(containerd('disabled_plugins = ["cri"]\n')),
        ),
    ],
    "drop-in-not-read": [
        (facts(containerd(ROOT, loose=GOOD)), facts(containerd(ROOT, loose=ROOT))),
        (facts(containerd(ROOT, loose=GOOD)), facts(containerd(GOOD, loose=GOOD))),
    ],
    "handler-without-type": [
        (
            facts(containerd("version = 3\n" + handler(section=CRI3, kind=""), version=(2, 1, 9))),
            facts(containerd("version = 3\n" + handler(section=CRI3), version=(2, 1, 9))),
        ),
    ],
    "changed-runtime-down": [
        (
            facts(containerd(GOOD), journal=(entry(),)),
            facts(containerd(GOOD, runs=True), journal=(entry(),)),
        ),
        (
            facts(containerd(ROOT), journal=(entry(),), rewritten={CONFIG: (CONFIG,)}),
            replace(facts(containerd(ROOT), journal=(entry(),)), live=False),
        ),
        (facts(containerd(GOOD), journal=(entry(),)), facts(containerd(GOOD))),
    ],
    "config-overwritten": [
        (
            facts(LOST, journal=(entry(),), rewritten={CONFIG: (CONFIG,)}),
            facts(containerd(GOOD), journal=(entry(),), rewritten={CONFIG: (CONFIG,)}),
        ),
        (
            facts(LOST, journal=(entry(),), rewritten={CONFIG: (CONFIG,)}),
            facts(LOST, journal=(entry("written"),), rewritten={CONFIG: (CONFIG,)}),
        ),
    ],
    "journal-unfinished": [
        (facts(journal=(entry("prepared"),)), facts(journal=(entry("prepared"),), lock_held=True)),
        # that one waits for somebody's restart
        (facts(journal=(entry("written", "1-a"),)), facts(journal=(entry("written"),))),
        (facts(journal_problem=("it is damaged",)), facts(journal=(entry(),))),
    ],
    "change-refused": [
        (
            facts(replace(containerd(ROOT), refused=RefusedChange(digest="x", said=("why",), at=0))),
            facts(containerd(ROOT)),
        ),
    ],
    "not-in-force": [
        (
            facts(containerd(GOOD, reported={"runc": ""})),
            facts(containerd(GOOD, reported={"runc": "", "nvidia": PROGRAM})),
        ),
        (
            facts(containerd(GOOD, reported={"nvidia": "/other"})),
            facts(containerd(GOOD, reported={"nvidia": None})),
        ),
        (facts(containerd(GOOD, reported={})), facts(containerd(GOOD))),  # nobody was asked
    ],
    "handler-asked": [
        (
            facts(containerd(ROOT), logs={"kubelet": (REFUSED,)}),
            # it was started since
            facts(containerd(ROOT), logs={"kubelet": (REFUSED, 'msg="starting containerd" x')}),
        ),
        (
            facts(containerd(GOOD), logs={"kubelet": (REFUSED,)}),
            # its process has it now
            facts(containerd(GOOD, reported={"nvidia": PROGRAM}), logs={"kubelet": (REFUSED,)}),
        ),
        (
            facts(
                crio(""), logs={"crio": ("failed to find runtime handler nvidia from runtime list map[]",)}
            ),
            facts(crio(""), logs={"crio": ("failed to find runtime handler kata from runtime list map[]",)}),
        ),
    ],
    "device-asked": [
        (
            logs("unresolvable CDI devices nvidia.com/gpu=7"),
            facts(specs=(spec(),), logs={"x": ("unresolvable CDI devices nvidia.com/gpu=0",)}),
        ),
        (
            logs("unresolvable CDI devices management.nvidia.com/gpu=GPU-1, nvidia.com/gpu=0"),
            logs("unresolvable CDI devices site.example/gpu=0"),
        ),
    ],
    "settings-hidden": [
        (
            facts(containerd(ROOT + PAUSE, GOOD)),
            facts(containerd(ROOT + PAUSE, GOOD, version=(2, 1, 0))),
        ),
        (facts(containerd(ROOT + PAUSE, GOOD)), facts(containerd(ROOT + PAUSE, GOOD + PAUSE))),
        # 2.0 has runc without a file
        (
            facts(containerd(SYSTEMD, "version = 2\n" + handler(), version=(2, 0, 5))),
            facts(containerd(ROOT, "version = 2\n" + handler(), version=(2, 0, 5))),
        ),
    ],
    "other-cgroups": [
        (facts(containerd(SYSTEMD)), facts(containerd(SYSTEMD + "SystemdCgroup = true\n"))),
        # where runc has none, the default may be what the kubelet follows
        (facts(containerd(SYSTEMD)), facts(containerd(GOOD + "SystemdCgroup = true\n"))),
    ],
    "mixed-runtimes": [
        (
            facts(containerd(ROOT), docker({"runtimes": {"nvidia": {"path": PROGRAM}}}), **KUBELET),
            facts(containerd(GOOD), docker({"runtimes": {"nvidia": {"path": PROGRAM}}}), **KUBELET),
        ),
        # no kubelet: docker alone is meant
        (
            facts(containerd(ROOT), docker({"runtimes": {"nvidia": {"path": PROGRAM}}}), **KUBELET),
            facts(containerd(ROOT), docker({"runtimes": {"nvidia": {"path": PROGRAM}}})),
        ),
    ],
    "folder-read-only": [
        (facts(containerd(ROOT, read_only=READ_ONLY)), facts(containerd(GOOD, read_only=READ_ONLY))),
    ],
    "programs-missing": [(facts(missing_programs=(PROGRAM,)), facts())],
    "low-level-missing": [
        (
            facts(toolkit=replace(TOOLKIT, low_level=("runc", "crun"), absent=("runc", "crun"))),
            facts(toolkit=replace(TOOLKIT, low_level=("runc", "crun"), absent=("crun",))),
        ),
    ],
    "spec-unresolvable": [
        (
            facts(
                specs=(SpecFile(path="/etc/cdi/x.yaml", folder="/etc/cdi", spec=None, problems=("no kind",)),)
            ),
            facts(specs=(spec(),)),
        ),
        # a later folder wins
        (
            facts(specs=(spec(), spec(path="/etc/cdi/b.yaml"))),
            facts(specs=(spec(), spec(path="/var/run/cdi/b.yaml"))),
        ),
    ],
    "spec-folder": [
        (
            facts(containerd(CDI + 'cdi_spec_dirs = ["/x"]\n'), specs=(spec(),)),
            facts(containerd(CDI + 'cdi_spec_dirs = ["/x", "/etc/cdi"]\n'), specs=(spec(),)),
        ),
        (
            facts(
                crio('[crio.runtime]\ncdi_spec_dirs = ["/etc/cdi"]\n'), specs=(spec(path="/run/cdi/b.yaml"),)
            ),
            # it has the same device elsewhere
            facts(
                crio('[crio.runtime]\ncdi_spec_dirs = ["/etc/cdi"]\n'),
                specs=(spec(), spec(path="/run/cdi/b.yaml")),
            ),
        ),
        (
            facts(docker({"cdi-spec-dirs": ["/etc/cdi"]}), specs=(spec(path="/run/cdi/b.yaml"),)),
            facts(docker({"cdi-spec-dirs": ["/var/run/cdi"]}), specs=(spec(path="/run/cdi/b.yaml"),)),
        ),
    ],
    "spec-without-devices": [
        (
            facts(specs=(spec(driver="580.65.06"),)),
            facts(specs=(spec(driver="580.65.06", nodes=(UVM,)),)),
        ),
        (facts(specs=(spec(driver="580.65.06"),)), facts(specs=(spec(),))),
    ],
    "spec-version": [
        (
            facts(containerd(CDI, version=(1, 7, 11)), specs=(spec(version="0.6.0"),)),
            facts(containerd(CDI, version=(1, 7, 12)), specs=(spec(version="0.6.0"),)),
        ),
        (
            facts(containerd(CDI, version=(1, 6, 20)), specs=(spec(),)),
            # NVIDIA's own runtime reads the specs
            facts(containerd(ROOT, version=(1, 6, 20)), specs=(spec(),)),
        ),
        (
            facts(containerd("version = 3\n", version=(2, 2, 0)), specs=(spec(version="1.1.0"),)),
            facts(containerd("version = 3\n", version=(2, 2, 1)), specs=(spec(version="1.1.0"),)),
        ),
        (
            facts(containerd("version = 3\n", version=(2, 1, 9)), specs=(spec(version="1.1.0"),)),
            facts(containerd("version = 3\n", version=()), specs=(spec(version="1.1.0"),)),
        ),
    ],
    "spec-missing": [
        (
            facts(toolkit=replace(TOOLKIT, mode="cdi", default_kind="management.nvidia.com/gpu")),
            facts(toolkit=TOOLKIT),
        ),
        (
            facts(
                toolkit=replace(TOOLKIT, mode="cdi", default_kind="management.nvidia.com/gpu"),
                specs=(spec(),),
            ),
            facts(toolkit=replace(TOOLKIT, mode="cdi", default_kind="nvidia.com/gpu"), specs=(spec(),)),
        ),
    ],
    "spec-of-other-driver": [
        (
            facts(specs=(spec(driver="580.65.06"),), driver="595.91.07"),
            facts(specs=(spec(driver="595.91.07"),), driver="595.91.07"),
        ),
        # an upgrade of packages: only a reboot helps
        (
            facts(specs=(spec(driver="595.91.07"),), driver="580.65.06", libraries=frozenset({"595.91.07"})),
            facts(specs=(spec(driver="580.65.06"),), driver="580.65.06", libraries=frozenset({"595.91.07"})),
        ),
        # no driver is loaded
        (
            facts(specs=(spec(driver="580.65.06"),), driver="595.91.07"),
            facts(specs=(spec(driver="580.65.06"),)),
        ),
    ],
    "spec-with-wrong-major": [
        (
            facts(specs=(spec(nodes=(UVM,)),), majors={"nvidia-uvm": 505}),
            facts(specs=(spec(nodes=(UVM,)),), majors={"nvidia-uvm": 511}),
        ),
        # without numbers, the runtime looks them up
        (
            facts(specs=(spec(nodes=(UVM,)),), majors={"nvidia-uvm": 505}),
            facts(specs=(spec(nodes=(replace(UVM, major=0),)),), majors={"nvidia-uvm": 505}),
        ),
    ],
    "spec-paths-gone": [
        (facts(gone={"/etc/cdi/a.yaml": ("/dev/nvidia3",)}), facts(gone={"/etc/cdi/a.yaml": ()}))
    ],
    "links-missing": [
        (
            facts(containerd(SYSTEMD), unlinked=("195:0 for /dev/nvidia0",)),
            facts(containerd(GOOD), unlinked=("195:0 for /dev/nvidia0",)),
        ),
        (
            facts(crio(""), unlinked=("195:0",)),
            facts(crio('[crio.runtime]\ncgroup_manager = "cgroupfs"\n'), unlinked=("195:0",)),
        ),
        (
            facts(docker({"exec-opts": ["native.cgroupdriver=systemd"]}), unlinked=("195:0",)),
            facts(docker({}), unlinked=("195:0",)),
        ),
        (facts(containerd(SYSTEMD), unlinked=("195:0",)), facts(containerd(SYSTEMD))),
    ],
    "stale-ready": [
        (
            facts(ready=("driver-ready", "toolkit-ready"), toolkit=replace(TOOLKIT, there=False)),
            facts(ready=("driver-ready", "toolkit-ready")),
        ),
        (facts(ready=("toolkit-ready",)), facts(ready=("driver-ready",))),
    ],
    "selinux-denials": [
        (
            logs(
                'type=AVC msg=audit(1.2:3): avc:  denied  { read } for pid=1 path="/dev/nvidia0" scontext=x'
            ),
            logs(
                'type=AVC msg=audit(1.2:3): avc:  granted  { read } for pid=1 path="/dev/nvidia0" scontext=x'
            ),
        ),
        (
            logs(
                "avc:  denied  { open } for scontext=container_t "
                "tcontext=system_u:object_r:xserver_misc_device_t:s0"
            ),
            logs("avc:  denied  { open } for scontext=httpd_t tcontext=system_u:object_r:tmp_t:s0"),
        ),
    ],
}

PAIRS = [(name, *pair) for name, pairs in CASES.items() for pair in pairs]


def test_every_rule_has_a_case() -> None:
    assert sorted(CASES) == sorted(rule.id for rule in RULES)
    assert len({rule.id for rule in RULES}) == len(RULES)


@pytest.mark.parametrize(("name", "speaks", "silent"), PAIRS, ids=[name for name, _, _ in PAIRS])
def test_a_rule_speaks_and_is_silent(name: str, speaks: NodeEvidence, silent: NodeEvidence) -> None:
    (rule,) = (rule for rule in RULES if rule.id == name)
    diagnosis = rule.check(speaks)
    assert diagnosis is not None
    assert diagnosis.what
    assert all(line.strip() for line in diagnosis.evidence)
    assert diagnosis.evidence
    assert diagnosis.command
    assert rule.check(silent) is None


def test_a_healthy_node_has_nothing() -> None:
    healthy = facts(
        containerd(GOOD, runs=True, reported={"runc": "", "nvidia": PROGRAM}),
        **KUBELET,
        journal=(entry(),),
        ready=("driver-ready", "toolkit-ready"),
        specs=(spec(driver="580.65.06", nodes=(UVM,)),),
        driver="580.65.06",
        majors={"nvidia-uvm": 511},
    )
    assert examine(healthy) == ()
    assert as_text((), healthy) == (
        f"nothing found: none of {len(RULES)} known problems shows on this node\n\n"
        f"looked at: containerd ({CONFIG}: answers); a kubelet; 1 CDI spec file; driver 580.65.06; "
        f"{TOOLKIT.folder}"
    )


def test_what_there_was_to_look_at_is_said() -> None:
    bare = facts(toolkit=ToolkitEvidence(folder="/usr/local/nvidia/toolkit"))
    assert looked_at(bare) == (
        "no container runtime: neither a process nor its files",
        "no kubelet",
        "0 CDI spec files",
        "no loaded driver",
        "no toolkit in /usr/local/nvidia/toolkit",
    )
    assert looked_at(facts(containerd(GOOD)))[0] == f"containerd ({CONFIG}: does not run)"
    assert looked_at(facts(containerd(GOOD, runs=True)))[0] == f"containerd ({CONFIG}: runs, serves no pods)"
    assert looked_at(replace(facts(containerd(GOOD)), live=False))[0] == f"containerd ({CONFIG})"


def test_a_name_that_keeps_containerd_from_starting_is_told_without_a_kubelet() -> None:
    (found,) = examine(facts(containerd('version = 2\ndisabled_plugins = ["cri"]\n', version=())))
    assert found.rule.id == "cri-disabled"
    assert found.diagnosis.what.startswith("containerd does not start: ")
    assert examine(facts(containerd('disabled_plugins = ["cri"]\n', version=()))) == (), (
        "docker's own file, on a node for docker"
    )


def test_one_cause_has_one_cure() -> None:
    """containerd 1.x ignores a file of a later version: neither its runtimes nor its handlers count."""
    drop_in = "version = 3\n" + handler(section=CRI3)
    old = containerd("version = 2\n", drop_in, version=(1, 6, 20), reported={"runc": ""}, runs=True)
    assert [one.rule.id for one in examine(facts(old))] == ["drop-in-version"]


def test_what_is_printed() -> None:
    broken = facts(containerd(ROOT, "version = 4\n", version=(2, 2, 0)))
    found = examine(broken)
    assert as_text(found, broken).partition("\n\n")[0] == (
        "drop-in-version: a drop-in has a higher version than the root file: "
        "containerd 2.2 does not start\n"
        f"  | {CONFIG}: version = 2\n"
        f"  | {DROP_IN}: version = 4\n"
        f"  next: mv {DROP_IN} /root/ && systemctl restart containerd && driverctl runtime apply\n"
        "  see:  aicr#1688, aicr#1689, containerd#12891, containerd#13939"
    )
    document = as_document(found, broken)
    assert document["looked_at"] == list(looked_at(broken))
    assert document["found"] == [
        {
            "id": "drop-in-version",
            "what": "a drop-in has a higher version than the root file: containerd 2.2 does not start",
            "evidence": [f"{CONFIG}: version = 2", f"{DROP_IN}: version = 4"],
            "next": f"mv {DROP_IN} /root/ && systemctl restart containerd && driverctl runtime apply",
            "issues": ["aicr#1688", "aicr#1689", "containerd#12891", "containerd#13939"],
        }
    ]
