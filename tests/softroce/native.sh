# shellcheck shell=bash
# RDMA devices of this machine itself. Sourced by the front door and by vm.sh.

rdma_class=/sys/class/infiniband

# native_device [NAME]: the first device, or the one of this name, that has an active port and an IPv4
# address: "DEVICE ADDRESS"; false if there is none.
native_device() {
  local device link address
  [[ -w /dev/infiniband/rdma_cm ]] || return
  for device in "$rdma_class"/${1:-*}; do
    grep -q -s ACTIVE "$device"/ports/*/state || continue
    for link in $(links_of "$device"); do
      address=$(ip -4 -o address show dev "$link" 2>/dev/null |
        awk '{sub("/.*", "", $4); print $4; exit}')
      [[ -z $address ]] || { echo "${device##*/} $address"; return; }
    done
  done
  return 1
}

# The network interfaces of a device. Reading an unused entry of ndevs fails; that is not an error. A
# device of iWARP made of software is in neither place: the kernel names its interface to rdma(8).
links_of() {
  { cat "$1"/ports/*/gid_attrs/ndevs/* 2>/dev/null
    ls "$1"/device/net 2>/dev/null
    PATH=$PATH:/usr/sbin:/sbin rdma link show 2>/dev/null |
      sed -n "s|^link ${1##*/}/.* netdev \([^ ]*\).*|\1|p"; } | sort -u
}

# Could this kernel have an rxe device? (A container's kernel has modules its image does not know.)
native_rxe_possible() {
  [[ -d $rdma_class/rxe0 || -d /sys/module/rdma_rxe ]] || modprobe -n -q rdma_rxe 2>/dev/null
}

# Puts an rxe device on the interface of the default route.
create_native_rxe() {
  native_device >/dev/null && return
  native_rxe_possible || die "this machine's kernel has no rdma_rxe; leave --native out for a VM"
  local link
  link=$(ip -4 route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)
  [[ -n $link ]] || die "no default route, so no interface to put rxe0 on"
  as_root modprobe -a ib_uverbs rdma_ucm rdma_rxe || die "cannot load rdma_rxe"
  as_root rdma link add rxe0 type rxe netdev "$link" || die "cannot make rxe0 on $link"
  local tries=50
  while ((tries-- > 0)); do
    native_device >/dev/null && return
    sleep 0.1
  done
  die "rxe0 on $link did not become active"
}

# native_exec COMMAND...: the variables the VM sets, then the command itself.
native_exec() {
  local device address
  read -r device address < <(native_device)
  ulimit -l unlimited 2>/dev/null || say "locked memory is limited to $(ulimit -l) KiB"
  RKV_RDMA_DEVICE=$device RKV_RDMA_ADDRESS=$address exec "$@"
}
