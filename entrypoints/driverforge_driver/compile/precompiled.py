"""Headers that many sources begin with, compiled once: a stand-in for make's compiler.

A precompiled header is used for the very lines that a source begins with, and what these include is guarded:
the compiler sees the same tokens in the same order. One thing gcc forgets in such a header: that a variable
of the kernel's is a register (`current_stack_pointer`), so that instructions came out in another order. It is
said once more. The objects are then the plain build's, byte by byte.

Whatever does not work out is compiled as make says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from driverforge_driver.compile import space
from driverforge_driver.compile.beginnings import DEFINITION, Texts, shared
from driverforge_driver.compile.probes import PREFIX
from driverforge_host.ports import Host

COMPILER = f"{PREFIX}cc"
# The stack pointer: the one register that kernels have a global variable for.
_REGISTERS = {"x86_64": "rsp", "aarch64": "sp"}
# A name in the precompiled header, and another one outside: a second declaration of the same says nothing.
_DECLARED = 'register unsigned long driverforge_{} asm("{}");'
# Whoever makes a header is waited for: make has other objects meanwhile. Of the sources of a folder some may
# be in no module.
_ORDER = """
{prefix}{number} := $(filter {objects},$(foreach module,$(obj-m:.o=),$($(module)-y) $($(module)-objs)))
{prefix}{number} := $(addprefix $(obj)/,${{{prefix}{number}}})
$(wordlist 2,$(words ${{{prefix}{number}}}),${{{prefix}{number}}}): | $(firstword ${{{prefix}{number}}})
"""

# The last words of a compilation are `-c -o OBJECT SOURCE`. Precompiling takes what make's `-include` names
# in as well. The source's name is a macro: it is defined afterwards, and what needs it does not precompile.
# NAME.h is never there: with a NAME.h.gch that it may not use, the compiler stops. Who finds that another one
# precompiles does not wait. The declaration at the end is a warning where the headers have one.
_SCRIPT = r"""#!/bin/sh
for df_source; do :; done
case $df_source in
{groups}
*) exec {compiler} "$@" ;;
esac
case "$*" in
*"-Wp,-M"*" -DKBUILD_BASENAME="*" -c -o "*" $df_source") ;;
*) exec {compiler} "$@" ;;
esac
df_folder=${{df_source%/*}}
df_header=$df_folder/{prefix}$df_group
df_precompile() {{
    df_left=$#
    while [ $((df_left -= 1)) -gt 0 ]; do
        case $1 in
        -DKBUILD_BASENAME=*) ;;
        *) set -- "$@" "$1" ;;
        esac
        shift
    done
    shift
    LC_ALL=C {compiler} "$@" -x c-header "$df_header.in" -o "$df_header.new" 2>"$df_header.err" &&
        ! grep -q ' redefined' "$df_header.err" || {{ rm -f "$df_header.new"; return; }}
    if grep -q 'multiple global register variables' "$df_header.err"; then
        echo '{declaration}'
    fi >"$df_header.registers"
    mv "$df_header.new" "$df_header.h.gch"
}}
df_compile() {{
    df_left=$#
    while [ $((df_left -= 1)) -ge 0 ]; do
        df_word=$1
        shift
        case $df_word in
        -include)
            shift
            df_left=$((df_left - 1))
            ;;
        -DKBUILD_BASENAME=*) df_name=${{df_word#*=}} ;;
        *) set -- "$@" "$df_word" ;;
        esac
    done
    {{ echo "#define KBUILD_BASENAME $df_name" && cat "$df_header.registers"; }} >"$df_said.h" || return
    {compiler} -include "$df_header.h" -include "$df_said.h" "$@" 2>"$df_said"
}}
df_list() {{
    df_left=$#
    while [ $((df_left -= 1)) -ge 0 ]; do
        df_word=$1
        shift
        case $df_word in
        -c) set -- "$@" -E -fdirectives-only ;;
        -o)
            shift
            df_left=$((df_left - 1))
            set -- "$@" -o /dev/null
            ;;
        *) set -- "$@" "$df_word" ;;
        esac
    done
    {compiler} "$@"
}}
if mkdir "$df_header.tried" 2>/dev/null; then
    df_precompile "$@"
fi
df_said=$df_folder/{prefix}${{df_source##*/}}.err
# The files that were read, into the file of `-Wp,-M`: with a precompiled header they come in another order,
# and fewer of them twice, which is another `srcversion` for modpost.
if [ -e "$df_header.h.gch" ] && (df_compile "$@") && df_list "$@" 2>"$df_said.list"; then
    [ ! -s "$df_said" ] || cat "$df_said" >&2
    exit 0
fi
exec {compiler} "$@"
"""


def stand_in(host: Host, compiler: str, *, work: str) -> str:
    """A program in the folder `work` to give make as its compiler; `compiler` itself where nothing is saved.

    Objects that are there already do not count. Where the disk has room for a plain build alone, it is one.
    """
    machine = host.commands.run(["uname", "-m"]).stdout.strip()
    if "gcc" not in compiler or machine not in _REGISTERS:
        return compiler
    listed = host.commands.run(["find", ".", "-name", "*.[co]", "-printf", "%P\\n"], cwd=work)
    there = frozenset(listed.stdout.split())
    sources = sorted(name for name in there if name.endswith(".c") and f"{name[:-1]}o" not in there)

    def read(path: str) -> str | None:
        return host.files.read_text(f"{work}/{path}") if host.files.exists(f"{work}/{path}") else None

    texts = Texts(read)
    groups = shared({name: texts.beginning(name) for name in sources if "/" in name})
    if host.files.free_bytes(work) < space.needed(host, work) + len(groups) * space.PRECOMPILED:
        return compiler
    register = _REGISTERS[machine]
    cases, order = [], []
    for number, (beginning, names) in enumerate(groups):
        directives = [line for line, _ in beginning]
        lines = [*directives, *_still_defined(directives), _DECLARED.format("asked", register)]
        text = "".join(f"{line}\n" for line in lines)
        folder = names[0].rpartition("/")[0]
        host.files.write_atomic(f"{work}/{folder}/{PREFIX}{number}.in", text.encode())
        patterns = " | ".join(f"{name} | */{name}" for name in names)
        cases.append(f"{patterns}) df_group={number} ;;")
        objects = " ".join(f"{name[:-1]}o" for name in names)
        order.append(_ORDER.format(prefix=PREFIX, number=number, objects=objects))
    _add_to_kbuild(host, work, "".join(order))
    script = _SCRIPT.format(
        groups="\n".join(cases),
        compiler=compiler,
        prefix=PREFIX,
        declaration=_DECLARED.format("said", register),
    )
    host.files.write_atomic(f"{work}/{COMPILER}", script.encode(), mode=0o755)
    return f"{work}/{COMPILER}"


def _add_to_kbuild(host: Host, work: str, rules: str) -> None:
    kbuild = f"{work}/Kbuild"
    if rules and host.files.exists(kbuild):
        # what is there may be a link to the sources' own
        text = host.files.read_text(kbuild)
        host.files.write_atomic(f"{kbuild}.new", f"{text}{rules}".encode())
        host.commands.run(["mv", f"{kbuild}.new", kbuild])


def _still_defined(directives: Sequence[str]) -> Iterator[str]:
    """What does not precompile where a header changed a macro: its source would define it once more."""
    for line in directives:
        if defined := DEFINITION.match(line):
            yield from (f"#ifndef {defined[1]}", "#error a header undefines it", "#endif", line)
