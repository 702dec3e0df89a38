#!/bin/bash
# Runs a command in a small VM that has an RDMA device made of software. See README.md.
# shellcheck source-path=SCRIPTDIR
# shellcheck disable=SC2054  # commas inside QEMU's options separate no array elements
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=common.sh
source "$here/common.sh"
# shellcheck source=kernel.sh
source "$here/kernel.sh"
# shellcheck source=native.sh
source "$here/native.sh"

usage() {
  cat <<'USAGE'
usage: ./run softroce [options] -- COMMAND...
  --provider rxe|rxe-backports|rxe-stable|siw
                  the RDMA device: SoftRoCE of Debian's kernel (the default), of its backported
                  kernel or of that of Debian's stable release, or soft-iWARP, which is built once from
                  Debian's kernel sources
  --out DIR       DIR of this machine, writable at the same path inside; may be repeated
  --nodes 2       two machines; `node2 COMMAND...` runs a command on the other one
  --timeout SEC   stop the command after SEC seconds, status 124
  --memory 4G     memory of each machine
  --cpus 2        processors of each machine
  --no-device     its modules and the device are left to the command, as on a machine never set up
  --internet      a way out to the network, by address translation
  --console       show kernel messages on stderr
usage: ./run softroce --native [-- COMMAND...]
                  no VM: make a SoftRoCE device on this machine's default-route interface (root)
USAGE
}

memory=4G cpus=2 nodes=1 timeout='' internet='' console='' device=yes kernel_dir='' provider=rxe
shares=() command=()

parse_options() {
  while (($#)); do
    case $1 in
      --provider | --out | --nodes | --timeout | --memory | --cpus)
        (($# > 1)) || misuse "$1 needs a value" ;;&
      --provider) provider=$2; shift ;;
      --out) add_share "$2"; shift ;;
      --nodes) nodes=$2; shift ;;
      --timeout) timeout=$2; shift ;;
      --memory) memory=$2; shift ;;
      --cpus) cpus=$2; shift ;;
      --internet) internet=yes ;;
      --no-device) device='' ;;
      --console) console=yes ;;
      --help | -h) usage; exit 0 ;;
      --) shift; command=("$@"); break ;;
      -*) misuse "no such option: $1" ;;
      *) command=("$@"); break ;;
    esac
    shift
  done
  [[ $provider == @(rxe|rxe-backports|rxe-stable|siw) ]] || misuse "--provider is rxe, rxe-backports, rxe-stable or siw"
  [[ $nodes == [12] ]] || misuse "--nodes is 1 or 2"
  [[ $nodes == 1 || -n $device ]] || misuse "--no-device is for one machine"
  [[ -z $timeout || $timeout =~ ^[0-9]+(\.[0-9]+)?$ ]] || misuse "--timeout needs seconds"
  ((${#command[@]})) || misuse "which command? (./run softroce --help)"
}

add_share() {
  [[ -d $1 && -w $1 ]] || misuse "--out needs a writable folder: $1"
  shares+=("$(realpath -- "$1")")
}

misuse() {
  echo "softroce: $1" >&2
  exit 2
}

# ---- one machine ----

# write_initrd NODE: the kept part, and what this run adds to it. The kernel unpacks both.
write_initrd() {
  local tree=$run_dir/tree$1 i
  mkdir -p "$tree/config"
  cp "$here"/{init,remote.py,node2} "$tree/"
  echo "$1" >"$tree/config/node"
  echo "$nodes" >"$tree/config/nodes"
  echo "${provider%%-*}" >"$tree/config/driver"
  [[ -z $internet ]] || : >"$tree/config/internet"
  [[ -n $device ]] || : >"$tree/config/no-device"
  for i in "${!shares[@]}"; do printf '%s' "${shares[i]}" >"$tree/config/share$i"; done
  cp "$kernel_dir/base.cpio" "$run_dir/initrd$1"
  (cd "$tree" && find . | cpio --quiet -o -H newc -R 0:0) >>"$run_dir/initrd$1"
}

# share_arguments PATH TAG OPTIONS: a folder of the host over 9p. A comma is doubled for QEMU.
share_arguments() {
  local id=fs_$2
  qemu+=(-fsdev "local,id=$id,path=${1//,/,,},security_model=none,multidevs=remap$3"
    -device "virtio-9p-pci,fsdev=$id,mount_tag=$2")
}

# link_arguments NAME NODE MAC: node 1 listens, node 2 connects.
link_arguments() {
  local server=on tries=100
  if [[ $2 == 2 ]]; then
    server=off
    until [[ -S $run_dir/$1 ]] || ((tries-- == 0)); do sleep 0.05; done
  fi
  qemu+=(-netdev "stream,id=$1,server=$server,addr.type=unix,addr.path=$run_dir/$1"
    -device "virtio-net-pci,netdev=$1,mac=52:54:00:77:$3:0$2")
}

# monitor_arguments NODE: the monitor of machine 2 is a port of machine 1, whose tests pause it.
monitor_arguments() {
  local path=$run_dir/monitor
  if [[ $1 == 1 ]]; then
    qemu+=(-chardev "socket,id=monitor,path=$path,server=on,wait=off"
      -device virtserialport,chardev=monitor,name=monitor2)
  else
    qemu+=(-chardev "socket,id=monitor,path=$path" -mon chardev=monitor,mode=readline)
  fi
}

# Sets the array qemu: the command line of machine NODE.
machine_arguments() {
  local node=$1 i
  qemu=(qemu-system-x86_64 -M pc -nodefaults -no-user-config -display none -no-reboot
    -smp "$cpus" -m "$memory" "${accelerator[@]}"
    -kernel "$kernel_dir/vmlinux" -initrd "$run_dir/initrd$node"
    -append "$(kernel_command_line)"
    -chardev "stdio,id=console,signal=off,logfile=$run_dir/console$node.log" -serial chardev:console
    -device virtio-serial-pci)
  share_arguments / root ,readonly=on
  for i in "${!shares[@]}"; do share_arguments "${shares[i]}" "share$i" ''; done
  if [[ $node == 1 ]]; then
    qemu+=(-chardev "socket,id=command,path=$run_dir/command,server=on,wait=off"
      -device virtserialport,chardev=command,name=command)
  fi
  if [[ $nodes == 2 ]]; then
    link_arguments data "$node" 00
    link_arguments control "$node" 01
    monitor_arguments "$node"
  fi
  [[ -z $internet ]] || qemu+=(-netdev user,id=internet -device virtio-net-pci,netdev=internet)
}

kernel_command_line() {
  local words=(console=ttyS0 panic=-1 oops=panic nowatchdog net.ifnames=0)
  # Emulation is slow enough without guards against neighbours that are not there, and its clock
  # needs no calibration.
  words+=(mitigations=off nokaslr tsc=reliable no_timer_check random.trust_cpu=on)
  # The console is a slow device: messages stay in dmesg unless they are asked for.
  [[ -n $console ]] && words+=(loglevel=7) || words+=(loglevel=4)
  echo "${words[*]}"
}

# start_machine NODE: QEMU dies with this script, whatever ends it.
start_machine() {
  write_initrd "$1"
  machine_arguments "$1"
  local out=/dev/null
  [[ -z $console ]] || out=/dev/stderr
  setpriv --pdeathsig KILL "${qemu[@]}" </dev/null >"$out" 2>"$run_dir/qemu$1.log" &
  pids+=($!)
}

# ---- KVM or emulation ----

choose_accelerator() {
  accelerator=(-accel kvm -cpu host)
  if [[ ${RKV_SOFTROCE_ACCEL-} != tcg ]] && grep -q -w -E 'vmx|svm' /proc/cpuinfo && kvm_works; then
    return
  fi
  accelerator=(-accel tcg,thread=multi -cpu max)
}

# /dev/kvm may be there and yet never start a kernel: try once, remember the answer.
kvm_works() {
  [[ -r /dev/kvm && -w /dev/kvm ]] || return
  local answer
  answer=$kernel_dir.kvm-$(uname -r)
  if [[ ! -e $answer ]]; then
    if kvm_boots; then echo yes >"$answer"; else echo no >"$answer"; fi
  fi
  [[ $(<"$answer") == yes ]]
}

kvm_boots() {
  local shares=() nodes=1 internet='' console='' device=yes
  write_initrd probe
  machine_arguments probe
  timeout -k 1 20 "${qemu[@]}" </dev/null >/dev/null 2>&1
  grep -q "softroce: up" "$run_dir/consoleprobe.log"
}

# ---- life of the machines ----

pids=()

clean_up() {
  local status=$?
  trap - EXIT INT TERM HUP
  ((${#pids[@]} == 0)) || kill -KILL "${pids[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$run_dir"
  exit "$status"
}

serve_command() {
  local options=(--unix "$run_dir/command" --lost "$run_dir/lost" --set RKV_IN_VM=1
    --set "RKV_RDMA_DEVICE=${provider%%-*}0" --set RKV_RDMA_ADDRESS=192.168.77.1)
  [[ $nodes == 1 ]] || options+=(--set RKV_NODE2_ADDRESS=192.168.77.2)
  [[ -z $timeout ]] || options+=(--seconds "$timeout")
  # In the background, so that a signal reaches this script while it waits.
  /usr/bin/python3 -I -S "$here/remote.py" run "${options[@]}" -- "${command[@]}" <&0 &
  pids+=($!)
  local status=0
  wait $! || status=$?
  [[ ! -e $run_dir/lost ]] || explain_loss
  return "$status"
}

# What the machine said last is kept where the next loss overwrites it.
explain_loss() {
  local log
  log=$(cache_root)/last-failure.log
  cat "$run_dir"/*.log >"$log"
  say "the machine ended without an exit status; its last messages are in $log"
}

run_in_vm() {
  local tool
  for tool in qemu-system-x86_64 busybox cpio xz modprobe /usr/bin/python3 rdma; do
    command -v "$tool" >/dev/null || die "$tool is missing (./run install-deps)"
  done
  ensure_kernel  # sets kernel_dir
  run_dir=$(mktemp -d /tmp/rkv-softroce.XXXXXX)  # short: paths of sockets have 108 bytes
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
  choose_accelerator
  local node
  for ((node = 1; node <= nodes; node++)); do start_machine "$node"; done
  serve_command
}

run_natively() {
  create_native_rxe
  local device
  device=$(native_device)
  say "device and address: $device"
  [[ ${1-} != -- ]] || shift
  (($# == 0)) || native_exec "$@"
}

main() {
  case ${1-} in
    --native) run_natively "${@:2}" ;;
    --remove-kernel) rm -rf "$(cache_root)" ;;
    *) parse_options "$@" && run_in_vm ;;
  esac
}

main "$@"; exit  # on one line: a run is not disturbed by an edit of this file
