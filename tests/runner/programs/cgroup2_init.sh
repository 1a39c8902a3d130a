#!/bin/sh
# The first program of the virtual machine: version 2 cgroups, then the scenarios as root and as a plain user.
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /mnt
mount -t tmpfs tmp /run
mount -t cgroup2 none /sys/fs/cgroup
mount -t devtmpfs dev /dev 2>/dev/null
export PATH=/usr/bin:/bin HOME=/mnt TMPDIR=/mnt PYTHONDONTWRITEBYTECODE=1
chmod 1777 /mnt
"$GUEST_PYTHON" "$GUEST_PROGRAM" 0
"$GUEST_PYTHON" "$GUEST_PROGRAM" 65534
echo GUEST-DONE
poweroff -f 2>/dev/null || echo o >/proc/sysrq-trigger
