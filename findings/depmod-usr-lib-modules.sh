#!/bin/sh
# depmod looks for modules in ROOT/lib/modules alone.
#
# Debian's kernels from 7.0 on have their modules in /usr/lib/modules. On a node /lib is a link to
# usr/lib. In a folder into which a package was unpacked there is no such link, and depmod finds nothing.
set -eu
kmod=30+20221128-1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get -qq -o APT::Sandbox::User=root download "kmod=$kmod" "libkmod2=$kmod" || exit 69
for package in *.deb; do dpkg-deb -x "$package" programs; done
LD_LIBRARY_PATH=$(dirname "$(find "$work/programs" -name 'libkmod.so.2')")
export LD_LIBRARY_PATH
ln -s kmod programs/bin/depmod # the package's own link leads to the installed one

release=7.2.12+deb14-amd64
mkdir -p root/usr/lib/modules/$release
: >root/usr/lib/modules/$release/modules.order
: >root/usr/lib/modules/$release/modules.builtin

alone=0
programs/bin/depmod -b root $release 2>said || alone=$?
ln -s usr/lib root/lib
linked=0
programs/bin/depmod -b root $release 2>/dev/null || linked=$?

programs/bin/depmod --version | head -n 1
echo "expected: usr/lib/modules is read, as systems without a /lib of their own have it"
echo "seen:     exit $alone, $(tail -n 1 said)"
echo "          with lib -> usr/lib: exit $linked"
[ "$alone" = 1 ] && [ "$linked" = 0 ] && [ -s root/usr/lib/modules/$release/modules.dep.bin ]
