#!/usr/bin/env bash
# Measures the kernel's SCTP and TIPC where the running kernel has neither: boots another kernel in QEMU, without hardware
# help, with the program inside, and checks that nothing is lost or damaged. Of figures from there only ratios of one run
# say something: the cores are emulated.
#
#   scripts/guest.sh KERNEL_ROOT [SCRIPT [ARGUMENT...]]
#
# KERNEL_ROOT is an unpacked kernel package: what scripts/kernel.sh prints, or apt-get download linux-image-VERSION &&
# dpkg-deb -x FILE KERNEL_ROOT
# SCRIPT is run in the guest, with its arguments, instead of scripts/guest/check.sh: scripts/guest/plan.sh NAME measures a plan there.
# PROGRAM names a program that is built already, with the libraries that this machine has for it, instead of the static one of
# scripts/static.sh; TIMEOUT_S is how long the guest may take (1800); DOCUMENT is a file for what the script writes to /dev/ttyS1.
# Exit code 75: the guest's kernel panicked, which says nothing of what is measured.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

fail() { printf 'guest: %s\n' "$*" >&2; exit 1; }

[ $# -ge 1 ] || fail "which kernel? scripts/guest.sh KERNEL_ROOT [SCRIPT], where KERNEL_ROOT is an unpacked kernel package"
root=$1 script=${2:-scripts/guest/check.sh}
arguments=("${@:3}")

packages=()
need() { command -v "$1" >/dev/null || packages+=("$2"); }
need qemu-system-x86_64 qemu-system-x86
need busybox busybox-static
need cpio cpio
need modprobe kmod
need ip iproute2
need tipc iproute2
need nft nftables
need ethtool ethtool
need strip binutils
[ ${#packages[@]} = 0 ] || fail "something is missing: apt-get install $(printf '%s\n' "${packages[@]}" | sort -u | xargs)"

kernel=$(find "$root/boot" -name 'vmlinuz-*' 2>/dev/null | sort -V | tail -n1)
[ -n "$kernel" ] || fail "$root/boot holds no vmlinuz-*: is it an unpacked kernel package (dpkg-deb -x FILE $root)?"
version=${kernel##*/vmlinuz-}
[ -d "$root/lib/modules/$version" ] || fail "$root/lib/modules/$version is missing: the modules belong to the same package"
[ -r "$script" ] || fail "no script $script"
program=${PROGRAM:-$(scripts/static.sh)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
guest=$work/root
mkdir -p "$guest"/{bin,sbin,lib,proc,sys,dev,run/netns,tmp,modules}
busybox=$(command -v busybox)
cp "$busybox" "$guest/bin/busybox"
cp "$script" "$guest/check.sh"
cp scripts/guest/init.sh "$guest/init"
printf '%s\n' ${arguments[@]+"${arguments[@]}"} >"$guest/arguments"
chmod 755 "$guest/init"

# place FILE PATH: a program with the libraries that it names; a static one names none.
place() {
    install -D -s -m 755 "$1" "$guest$2"
    { ldd "$1" 2>/dev/null || true; } | sed -nE 's,^[^/]*(/[^ ]+\.so[^ ]*).*,\1,p' | while read -r library; do
        [ -e "$guest$library" ] || install -D -m 755 "$library" "$guest$library"
    done
}
place "$program" /bin/polyrail
for command in ip tc tipc nft ethtool; do place "$(readlink -f "$(command -v $command)")" "/sbin/$command"; done

# Modules with what they need, in the order in which they must be loaded. What is built in needs none.
depmod -b "$root" "$version"
for module in tipc sctp veth bridge nf_tables nft_numgen sch_tbf tcp_bbr; do
    { modprobe -d "$root" -S "$version" --show-depends "$module" 2>/dev/null || true; } |
        sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | awk '!seen[$0]++' | while read -r file; do
    name=$(basename "$file")
    case $name in
    *.xz) xz -dc "$file" >"$guest/modules/${name%.xz}" ;;
    *.zst) zstd -qdc "$file" >"$guest/modules/${name%.zst}" ;;
    *) cp "$file" "$guest/modules/$name" ;;
    esac
    name=${name%.xz}
    echo "${name%.zst}" >>"$guest/modules/order"
done

(cd "$guest" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/image"
log=$work/log
timeout "${TIMEOUT_S:-1800}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 3 -m 1024 -nographic -no-reboot \
    -nodefaults -serial stdio -serial "file:$work/document" -nic none -kernel "$kernel" -initrd "$work/image" \
    -append "console=ttyS0 quiet loglevel=3 mitigations=off panic=1" </dev/null | sed -u 's/\r//g' | tee "$log" ||
    fail "the guest did not end within ${TIMEOUT_S:-1800} s"
[ -z "${DOCUMENT:-}" ] || sed 's/\r//g' "$work/document" >"$DOCUMENT"
grep -q '^guest: ended with 0$' "$log" && exit
# Seen now and then with several emulated cores: an int3 of code that the kernel patches, a double fault.
if grep -q 'Kernel panic' "$log"; then
    echo "guest: the guest's kernel panicked, probably by the emulation: try again" >&2
    exit 75
fi
fail "the check in the guest failed"
