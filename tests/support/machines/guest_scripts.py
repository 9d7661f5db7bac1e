"""What runs inside a guest before any test does.

That is its init, and the agent that obeys over the second serial port.
"""

from __future__ import annotations

# The agent's language has a line for each command. \001 starts each answer. Runs under busybox sh and bash.
#
#   clock SECONDS       answered with OK STATUS
#   files BLOCKS        of 64 KiB; answered with OK STATUS
#   mount DISK TARGET   answered with OK STATUS
#   run NUMBER LENGTH   answered with SEND; then come LENGTH bytes of script, answered with the script's
#                       output and DONE NUMBER STATUS
AGENT = r"""
disk() {  # the device whose serial number is $1
    for block in /sys/block/vd*; do
        [ "$(cat $block/serial)" = "$1" ] && echo /dev/${block##*/} && return
    done
    echo "no disk $1" >&2
    return 1
}
stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
printf '\001READY\n' >&3
while read -r word first second <&3; do
    case $word in
    clock) date -s "@$first" >/dev/null ;;
    files)
        # tar alone would read the disk to its end, gigabytes of nothing
        device=$(disk payload) && blockdev --flushbufs $device &&
            dd if=$device bs=65536 count=$first 2>/dev/null | tar -C / -xf - >&3 2>&1 ;;
    mount)
        device=$(disk $first) && blockdev --flushbufs $device && mkdir -p $second &&
            mount -t ext4 $device $second >&3 2>&1 ;;
    run)
        # bash reads a tty in blocks: a script sent at once would be swallowed with the command
        printf '\001SEND\n' >&3
        head -c $second <&3 >/run/script
        $RUNNER /run/script </dev/null >&3 2>&1 3<&-
        printf '\001DONE %s %s\n' $first $? >&3
        continue ;;
    *) false ;;
    esac
    printf '\001OK %s\n' $? >&3
done
"""

# busybox sh runs its own applets before it looks at PATH, and kmod's programs have the messages that real
# systems have
PRELUDE = r"""
for name in modprobe insmod rmmod lsmod depmod modinfo; do
    eval "$name() { /sbin/$name \"\$@\"; }"
done
"""

_FIRST = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/sbin:/bin:/usr/sbin:/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in virtio_pci virtio_blk ext4; do /sbin/modprobe -q $module; done
until grep -qsx payload /sys/block/vd*/serial; do sleep 0.02; done
"""

_BUSYBOX = r"""
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
mount -t tmpfs tmp /tmp
mount -t tmpfs -o mode=755 run /run
mount -t securityfs security /sys/kernel/security 2>/dev/null
export RUNNER="busybox sh /etc/runner"
echo '. /etc/prelude; script=$1; shift; . $script' >/etc/runner
. /agent
poweroff -f
"""

_SWITCH = r"""
while read -r name target; do
    found=
    until [ "$found" ]; do
        for block in /sys/block/vd*; do
            [ "$(cat $block/serial)" = "$name" ] && found=/dev/${block##*/}
        done
    done
    mkdir -p /new$target
    mount -t ext4 $found /new$target || exec sh </dev/console
done </etc/disks
mount -t tmpfs -o mode=755 run /new/run
mkdir -p /new/run/driverforge
cp /agent /new/run/driverforge/agent
mount --move /dev /new/dev
umount /sys /proc
"""

_AGENT = (
    _FIRST
    + _SWITCH
    + r"""
cat >/new/run/driverforge/init <<'X'
#!/bin/bash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root RUNNER=bash
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t securityfs security /sys/kernel/security
mount --make-rshared /
. /run/driverforge/agent
X
chmod +x /new/run/driverforge/init
exec switch_root /new /run/driverforge/init
"""
)

_SYSTEMD = (
    _FIRST
    + _SWITCH
    + r"""
mkdir -p /new/run/systemd/system/multi-user.target.wants
cat >/new/run/systemd/system/driverforge-agent.service <<'X'
[Unit]
After=multi-user.target
[Service]
Environment=RUNNER=bash HOME=/root
ExecStart=/bin/bash /run/driverforge/agent
KillMode=process
X
ln -s ../driverforge-agent.service /new/run/systemd/system/multi-user.target.wants/driverforge-agent.service
exec switch_root /new /sbin/init
"""
)

INIT = {"busybox": _FIRST + _BUSYBOX, "agent": _AGENT, "systemd": _SYSTEMD}
