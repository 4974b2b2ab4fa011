# chroot.sh: sourced, after steps.sh, by the programs that make a root folder with another Debian. `root` is
# this source folder.

# enter_chroot FOLDER COMMAND...: runs a command there, in this source folder, which is mounted at /hdt. Its
# processes, mounts and shared memory are its own, and end with it. Does not return.
enter_chroot() {
  local folder=$1
  shift
  [ -x "$folder/usr/bin/env" ] ||
    fail "$folder is no root of a system; make it first ($(basename "$0") --help)"
  mkdir -p "$folder/hdt"
  # shellcheck disable=SC2016 # expanded by the inner shell
  exec unshare --mount --pid --fork --kill-child -- /bin/sh -c '
    set -e
    root=$1 folder=$2
    shift 2
    mount --bind "$root" "$folder/hdt"
    mount -t proc proc "$folder/proc"
    mount --rbind /dev "$folder/dev"
    mount --rbind /sys "$folder/sys"
    mount -t tmpfs -o size=50% shm "$folder/dev/shm"
    mount -t tmpfs -o size=50% tmp "$folder/tmp"
    exec chroot "$folder" /usr/bin/env -i -C /hdt HOME=/root LANG=C.UTF-8 OMP_NUM_THREADS=1 \
      CCACHE_DIR=/ccache PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' sh "$root" "$folder" "$@"
}

# enter_chroot_if_asked ARGUMENT...: as enter_chroot, if the first argument is --enter.
enter_chroot_if_asked() {
  [ "${1:-}" = --enter ] || return 0
  if [ $# -lt 3 ]; then
    echo "$(basename "$0"): --enter without a folder and a command" >&2
    exit 2
  fi
  shift
  enter_chroot "$@"
}

# make_chroot SUITE FOLDER PACKAGE...: makes the folder the root of a Debian with the packages, from the
# mirror of this system's apt.
make_chroot() {
  local suite=$1 folder=$2 mirror included
  shift 2
  [ ! -e "$folder" ] || [ -z "$(ls -A "$folder")" ] || fail "$folder is not empty; give a new folder"
  command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing (Debian: mmdebstrap)"
  # shellcheck disable=SC2016 # apt replaces it
  mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }')
  [ -n "$mirror" ] || fail "apt knows no mirror of Debian; run apt-get update, or see /etc/apt/sources.list"
  included=$(IFS=,; echo "$*")
  # An unstable release that was kept for long has a release file that has expired.
  mmdebstrap --variant=minbase --include="$included" --aptopt='APT::Install-Recommends "false"' \
    --aptopt='Acquire::Check-Valid-Until "false"' "$suite" "$folder" "$mirror"
}
