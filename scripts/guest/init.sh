#!/bin/busybox sh
# The first process of the guest: loads the modules, runs the check, tells its exit code, switches off.
/bin/busybox --install -s /bin
# busybox has an ip of its own; the one of iproute2 is meant.
rm -f /bin/ip /bin/tc
export PATH=/sbin:/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mkdir -p /run/netns
while read -r module; do insmod "/modules/$module" || echo "guest: module $module was refused"; done </modules/order
ip link set lo up
# A line each.
xargs sh /check.sh </arguments 2>&1
echo "guest: ended with $?"
poweroff -f
