# shellcheck shell=bash
# Debian's stock kernel and the few modules the VM needs, kept in a cache folder.
# Sourced by vm.sh; sets kernel_dir, which holds vmlinux, base.cpio and SHA256SUMS.
#
# Nothing is installed: the package is downloaded (apt verifies it against the signed release),
# unpacked aside, and all but the needed files is thrown away.

# Needed to see the host's files.
boot_modules=(virtio_pci virtio_console 9pnet_virtio 9p overlay)
# Loaded after that. rdma_rxe does not say that it needs a crc32.
rdma_modules=(virtio_net dummy ib_uverbs rdma_ucm crc32_generic rdma_rxe)
# At hand for modprobe inside: links that lose, delay and limit; namespaces; disks in files.
spare_modules=(crc32_pclmul sch_netem sch_prio sch_tbf sch_ingress cls_u32 cls_matchall act_mirred act_gact ifb
               veth bridge loop ext4 virtio_blk)

cache_root() {
  local dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rkv/softroce
  if ! mkdir -p "$dir" 2>/dev/null || [[ ! -w $dir ]]; then
    # A home that cannot be written. Only a folder that is ours alone is trusted in a shared place.
    dir=${TMPDIR:-/var/tmp}/rkv-softroce-$(id -u)
    mkdir -m 700 "$dir" 2>/dev/null || [[ -O $dir && ! -L $dir ]] ||
      die "no folder to keep the kernel in"
  fi
  echo "$dir"
}

# Leaves a verified kernel in $kernel_dir.
ensure_kernel() {
  local root
  root=$(cache_root) || exit
  # Another version of this file may want other modules: the recipe names the folder.
  kernel_dir=$root/kernel-$(sha256sum <"${BASH_SOURCE[0]}" | cut -c1-12)
  local lock
  exec {lock}>"$root/lock"
  if ! { flock --shared "$lock" && kernel_is_intact; }; then
    flock "$lock"  # somebody else may have fetched it in the meantime, so look again
    kernel_is_intact || fetch_kernel
    kernel_is_intact || die "the kernel in $kernel_dir does not match its checksums"
  fi
  exec {lock}>&-
}

kernel_is_intact() {
  [[ -e $kernel_dir/SHA256SUMS ]] &&
    (cd "$kernel_dir" && sha256sum --status --strict --check SHA256SUMS 2>/dev/null)
}

fetch_kernel() {
  [[ $(dpkg --print-architecture 2>/dev/null) == amd64 ]] ||
    die "the VM needs Debian on amd64 to take its kernel from"
  say "fetching Debian's kernel (about 70 MB, once) into $kernel_dir"
  local work=$kernel_dir.new
  rm -rf "$work" "$kernel_dir"
  mkdir -p "$work"
  (cd "$work" && download_kernel) || die "cannot download Debian's kernel package"
  dpkg-deb -x "$work"/*.deb "$work/package" || die "cannot unpack Debian's kernel package"
  pack_kernel "$work" || die "cannot pick the VM's files from Debian's kernel package"
  rm -rf "$work/package" "$work"/*.deb
  (cd "$work" && sha256sum -- * >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
  mv "$work" "$kernel_dir"
}

download_kernel() {
  # Lists that are absent or too old name a package that cannot be had: refresh them, once.
  try_download 2>/dev/null || { as_root apt-get -qq update && try_download; }
}

try_download() {
  local package options=(-qq)
  package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9]\)/\1/p')
  [[ -n $package ]] || { echo "no package linux-image-amd64" >&2; return 1; }
  # apt's own download user cannot write here; root can.
  [[ $EUID -eq 0 ]] && options+=(-o APT::Sandbox::User=root)
  apt-get "${options[@]}" download "$package"
}

# pack_kernel WORK: vmlinux and base.cpio out of WORK/package.
pack_kernel() {
  local work=$1 package=$1/package tree=$1/tree release
  release=$(basename "$package"/lib/modules/*) && echo "$release" >"$work/release"
  extract_vmlinux "$package/boot/vmlinuz-$release" "$work/vmlinux"
  depmod -b "$package" "$release"
  mkdir -p "$tree"/{bin,proc,sys,dev,host,rw,new,lib/modules}
  cp /usr/bin/busybox "$tree/bin/" || cp /bin/busybox "$tree/bin/" || return
  copy_modules "$package" "$release" "$tree" || return
  (cd "$tree" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) >"$work/base.cpio"
  rm -rf "$tree"
}

# copy_modules PACKAGE RELEASE TREE: the modules, and in which order to insert them.
copy_modules() {
  local package=$1 release=$2 tree=$3 path
  list_modules "${boot_modules[@]}" >"$tree/boot-modules" || return
  list_modules "${rdma_modules[@]}" | grep -v -x -F -f "$tree/boot-modules" >"$tree/rdma-modules"
  for path in $(list_modules "${boot_modules[@]}" "${rdma_modules[@]}" "${spare_modules[@]}"); do
    install -D -m 644 "$package$path" "$tree$path" || return
  done
  cp "$package/lib/modules/$release"/modules.{builtin,order}* "$tree/lib/modules/$release/"
  depmod -b "$tree" "$release"
}

# list_modules NAME...: their paths, dependencies first, each once.
list_modules() {
  modprobe -d "$package" -S "$release" --show-depends -a "$@" |
    awk -v prefix="$package" \
      '$1 == "insmod" && !seen[$2]++ {print substr($2, length(prefix) + 1)}'
}

# The kernel as it is linked. QEMU starts it directly (PVH), which spares an emulated processor
# from unpacking it: 4 s of 7. A kernel not packed with xz is started as it is.
extract_vmlinux() {
  local offset
  offset=$(LC_ALL=C grep -obUaP '\xfd7zXZ\x00' "$1" | head -n 1 | cut -d: -f1)
  # xz complains about the bytes behind the stream; the ELF magic tells whether it went well.
  [[ -n $offset ]] && tail -c "+$((offset + 1))" "$1" | xz -dc >"$2" 2>/dev/null
  [[ $(head -c 4 "$2" 2>/dev/null) == $'\x7fELF' ]] || cp "$1" "$2"
}
