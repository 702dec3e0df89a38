# shellcheck shell=bash
# Debian's stock kernel and the few modules the VM needs, kept in a cache folder.
# Sourced by vm.sh; sets kernel_dir, which holds vmlinux, base.cpio and SHA256SUMS. Which kernel and
# which modules: $provider, rxe unless it is set.
#
# Nothing is installed: the packages are downloaded (apt verifies them against the signed release),
# unpacked aside, and all but the needed files is thrown away.

# Needed to see the host's files.
boot_modules=(virtio_pci virtio_console 9pnet_virtio 9p overlay)
# Loaded after that. rdma_rxe and siw do not say that they need a crc32.
rdma_modules=(virtio_net dummy ib_uverbs rdma_ucm)
rxe_modules=(crc32_generic rdma_rxe)
siw_modules=(libcrc32c crc32c_generic siw)
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
  provider=${provider:-rxe}
  root=$(cache_root) || exit
  # Another version of this file may want other modules: the recipe names the folder.
  kernel_dir=$root/kernel-$provider-$(sha256sum <"${BASH_SOURCE[0]}" | cut -c1-12)
  if [[ $provider == siw ]]; then rdma_modules+=("${siw_modules[@]}"); else rdma_modules+=("${rxe_modules[@]}"); fi
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
  local what="Debian's kernel (about 70 MB, once)"
  [[ $provider != rxe-backports ]] || what="Debian's backported kernel (about 110 MB, once)"
  [[ $provider != rxe-stable ]] || what="the kernel of Debian's stable release (about 110 MB, once)"
  [[ $provider != siw ]] || what="Debian's kernel and its sources (about 230 MB, once)"
  say "fetching $what into $kernel_dir"
  local work=$kernel_dir.new
  rm -rf "$work" "$kernel_dir"
  mkdir -p "$work"
  (cd "$work" && download_kernel) || die "cannot download Debian's kernel package"
  dpkg-deb -x "$work"/linux-image-*.deb "$work/package" || die "cannot unpack Debian's kernel package"
  [[ -e $work/package/lib ]] || ln -s usr/lib "$work/package/lib"  # from Debian 13 on
  if [[ $provider == siw ]]; then
    build_siw "$work" >"$work.log" 2>&1 || die "cannot build siw; $work.log says why"
  fi
  pack_kernel "$work" || die "cannot pick the VM's files from Debian's kernel package"
  rm -rf "$work/package" "$work/apt" "$work/siw" "$work"/*.deb "$work.log"
  (cd "$work" && sha256sum -- * >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
  mv "$work" "$kernel_dir"
}

download_kernel() {
  case $provider in
    rxe-backports) set -- "$(. /etc/os-release && echo "$VERSION_CODENAME")-backports" ;;
    rxe-stable) set -- stable ;;
  esac
  if (($#)); then
    see_suite "$1" && apt-get "${apt_options[@]}" -qq update && try_download
    return
  fi
  # Lists that are absent or too old name a package that cannot be had: refresh them, once.
  try_download 2>/dev/null || { update_lists >/dev/null && try_download; }
}

apt_options=()  # empty: the archive as this system sees it

# see_suite SUITE: lets apt see it on the mirror that this system takes Debian from, by lists of its own
# in this folder: the system's sources and lists stay as they are.
see_suite() {
  local codename site keys=/usr/share/keyrings/debian-archive-keyring.gpg
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  # shellcheck disable=SC2016  # apt expands the format
  site=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
    sed -n "s/^$codename //p" | head -n 1)
  [[ -n $site ]] || { echo "apt has no list of Debian's archive: run apt-get update" >&2; return 1; }
  [[ -e $keys ]] || { echo "the package debian-archive-keyring is missing" >&2; return 1; }
  mkdir -p apt/lists/partial apt/cache/archives/partial
  echo "deb [signed-by=$keys] $site $1 main" >apt/sources.list
  apt_options=(-o "Dir::Etc::SourceList=$PWD/apt/sources.list" -o Dir::Etc::SourceParts=-
    -o "Dir::State::Lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache")
  [[ $EUID -ne 0 ]] || apt_options+=(-o APT::Sandbox::User=root)
}

try_download() {
  local image packages options=(-qq)
  image=$(apt-cache "${apt_options[@]}" depends linux-image-amd64 |
    sed -n 's/.*Depends: \(linux-image-[0-9]\)/\1/p')
  [[ -n $image ]] || { echo "no package linux-image-amd64" >&2; return 1; }
  packages=("$image")
  if [[ $provider == siw ]]; then
    # Releases name the parts differently: the headers' package and the newest sources' say which they are.
    packages+=("${image/image/headers}")
    mapfile -t -O 2 packages < <(apt-cache depends "${image/image/headers}" linux-source |
      sed -n 's/^  Depends: \(linux-\(headers\|kbuild\|source\)-[^ ]*\)$/\1/p')
  fi
  # apt's own download user cannot write here; root can.
  [[ $EUID -eq 0 ]] && options+=(-o APT::Sandbox::User=root)
  apt-get "${apt_options[@]}" "${options[@]}" download "${packages[@]}"
}

# build_siw WORK: the module, out of the kernel's sources, among those of WORK/package. The headers
# name their parts by absolute paths; they are unpacked aside, so the paths are changed.
build_siw() {
  local work=$1 aside=$1/siw deb headers modules
  mkdir -p "$aside"
  for deb in "$work"/linux-{headers,kbuild,source}-*.deb; do dpkg-deb -x "$deb" "$aside" || return; done
  grep -rlIZ --include=Makefile --include=.kernelvariables /usr/src/linux-headers- \
    "$aside"/usr/src/linux-headers-*/ | xargs -0 -r sed -i "s|/usr/src/|$aside/usr/src/|g"
  tar -xJf "$aside"/usr/src/linux-source-*.tar.xz -C "$aside" --strip-components=1 --wildcards \
    '*/drivers/infiniband/sw/siw' || return
  modules=$(echo "$work"/package/lib/modules/*)
  headers=$aside/usr/src/linux-headers-${modules##*/}
  make -C "$headers" M="$aside/drivers/infiniband/sw/siw" CONFIG_RDMA_SIW=m modules || return
  install -D -m 644 "$aside/drivers/infiniband/sw/siw/siw.ko" \
    "$modules/kernel/drivers/infiniband/sw/siw/siw.ko"
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

# copy_modules PACKAGE RELEASE TREE: the modules, and in which order to insert them. Packed ones are
# unpacked: busybox cannot insert them.
copy_modules() {
  local package=$1 release=$2 tree=$3 path
  list_modules "${boot_modules[@]}" | sed 's/\.xz$//' >"$tree/boot-modules" || return
  list_modules "${rdma_modules[@]}" | sed 's/\.xz$//' |
    grep -v -x -F -f "$tree/boot-modules" >"$tree/rdma-modules"
  for path in $(list_modules "${boot_modules[@]}" "${rdma_modules[@]}" "${spare_modules[@]}"); do
    install -D -m 644 "$package$path" "$tree$path" || return
    [[ $path != *.xz ]] || xz -d "$tree$path" || return
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
