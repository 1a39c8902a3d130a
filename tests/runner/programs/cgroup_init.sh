#!/bin/sh
# The first program of the virtual machine: cgroups as GUEST_CGROUPS says, then the scenarios as each of GUEST_USERS.
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /mnt
mount -t tmpfs tmp /run
if [ "$GUEST_CGROUPS" = v2 ]; then
    mount -t cgroup2 none /sys/fs/cgroup
else # as systemd mounts version 1: two controllers share a hierarchy
    mount -t tmpfs none /sys/fs/cgroup
    for controllers in memory pids cpu,cpuacct; do
        mkdir "/sys/fs/cgroup/$controllers"
        mount -t cgroup -o "$controllers" none "/sys/fs/cgroup/$controllers"
    done
fi
mount -t devtmpfs dev /dev 2>/dev/null
export PATH=/usr/bin:/bin HOME=/mnt TMPDIR=/mnt PYTHONDONTWRITEBYTECODE=1
chmod 1777 /mnt
for user in $(echo "$GUEST_USERS" | tr , " "); do
    "$GUEST_PYTHON" "$GUEST_PROGRAM" "$user"
done
echo GUEST-DONE
poweroff -f 2>/dev/null || echo o >/proc/sysrq-trigger
