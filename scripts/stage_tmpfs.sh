#!/bin/sh
# Copy PACK into memory, once per machine; root may have a tmpfs mounted for it first, where none is yet.
# Usage: scripts/stage_tmpfs.sh [--mount DIR [--size SIZE]] [PACK [OPTIONS of packer stage]]
# Without --mount: into /dev/shm. --size: as of mount, 50% of the memory by default. Anybody may stage into DIR then:
# root mounts it once without PACK, and each user stages for himself.
set -eu
folder=
size=50%
while :; do
    case "${1:-}" in
    --mount) folder="${2:?--mount needs a folder}"; shift 2 ;;
    --size) size="${2:?--size needs a size}"; shift 2 ;;
    -h | --help)
        sed -n '2,/^set/{/^#/s/^# *//p;}' "$0"
        echo "Options of packer stage: packer stage --help"
        exit 0
        ;;
    *) break ;;
    esac
done
if [ -n "$folder" ] && [ "$(stat -f -c %T "$folder" 2>/dev/null)" != tmpfs ]; then
    [ "$(id -u)" = 0 ] || {
        echo "scripts/stage_tmpfs.sh: $folder: only root may mount a tmpfs: use sudo, or leave --mount out" >&2
        exit 2
    }
    mkdir -p "$folder"
    options="size=$size,mode=1777,nosuid,nodev,noexec"
    # Linux before 6.4 has no noswap
    mount -t tmpfs -o "$options,noswap" packer "$folder" 2>/dev/null || mount -t tmpfs -o "$options" packer "$folder"
fi
[ $# -gt 0 ] || exit 0
packer="$(command -v packer)" || {
    here="$(cd "$(dirname "$0")/.." && pwd)"
    "$here/scripts/install"
    packer="$here/.venv/bin/packer"
}
exec "$packer" stage "$@" ${folder:+--to "$folder"}
