#!/bin/bash
# with_dockerd.sh PARTS COMMAND...: inside the SoftRoCE VM, the command with a docker daemon of
# Debian's and the image rkv-base; PARTS is what parts.sh prints. With RKV_DOCKERD=no the programs of
# docker are there, but no daemon. The command's exit status is ours, 125 if there is no daemon.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=../softroce/common.sh
source "$here/../softroce/common.sh"

[[ ${RKV_IN_VM-} == 1 ]] || die "this is for the inside of the VM (./run softroce -- $0 ...)"
(($# >= 2)) || die "usage: with_dockerd.sh PARTS COMMAND..."
parts=$1
shift

# Debian's docker comes first, whatever else this machine has.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
export DOCKER_HOST=unix:///run/docker.sock
export RKV_BUILD_NETWORK=host  # there is no bridge
log=/run/dockerd.log

# What the machine has installed already stays.
lay_out() {
  local folder
  for folder in usr/bin usr/sbin usr/lib lib sbin; do
    [[ ! -d $parts/tree/$folder ]] || cp -asn "$parts/tree/$folder/." "/$folder/"
  done
}

start_dockerd() {
  # Layers cannot lie on the VM's own overlay: a file system of their own. The host's network is all
  # that the containers use.
  mkdir -p /var/lib/docker /var/lib/containerd
  mount -t tmpfs -o size=90% docker /var/lib/docker
  # Of its own, dockerd gives it 15 s to start, which are few on an emulated processor.
  containerd >/run/containerd.log 2>&1 &
  containerd=$!
  until [[ -S /run/containerd/containerd.sock ]]; do
    kill -0 "$containerd" 2>/dev/null || { cat /run/containerd.log >&2; die "containerd does not start"; }
    sleep 0.2
  done
  dockerd --containerd /run/containerd/containerd.sock --iptables=false --ip6tables=false --bridge=none \
    --storage-driver overlay2 -H "$DOCKER_HOST" >"$log" 2>&1 &
  daemon=$!
  until docker version >/dev/null 2>&1; do
    kill -0 "$daemon" 2>/dev/null || { cat "$log" >&2; die "dockerd does not start"; }
    sleep 0.2
  done
}

stop_dockerd() {
  kill "$daemon" 2>/dev/null || return 0
  wait "$daemon" || true
  kill "$containerd" 2>/dev/null && wait "$containerd" || true
  umount /var/lib/docker || true
}

lay_out
status=0
if [[ ${RKV_DOCKERD-} == no ]]; then
  "$@" || status=$?
  exit "$status"
fi
start_dockerd
trap stop_dockerd EXIT
docker import "$parts/base.tar" rkv-base >/dev/null
"$@" || status=$?
exit "$status"
