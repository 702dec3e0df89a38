#!/bin/bash
# parts.sh [tree]: prepares, once, what docker in the SoftRoCE VM takes, and prints the folder that
# has it; with `tree` the first of the two alone:
#
#   tree/      Debian's docker.io and docker-compose, unpacked
#   base.tar   a Debian of this machine's release with the packages of docker/Dockerfile's last stages
#
# Nothing is installed: a docker.io that is would start a daemon on this machine and change its
# firewall. apt verifies all of it; it comes from where this machine's apt has it from.
# shellcheck source-path=SCRIPTDIR
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
# shellcheck source=../softroce/common.sh
source "$here/../softroce/common.sh"
# shellcheck source=../softroce/kernel.sh
source "$here/../softroce/kernel.sh"  # cache_root

docker_packages=(docker.io containerd runc tini libdevmapper1.02.1 docker-compose
  python3-attr python3-certifi python3-chardet python3-charset-normalizer python3-distro
  python3-distutils python3-docker python3-dockerpty python3-docopt python3-dotenv python3-idna
  python3-jsonschema python3-lib2to3 python3-pyrsistent python3-requests python3-six
  python3-texttable python3-urllib3 python3-websocket python3-yaml)

# The packages that the Dockerfile's stages from `runtime` on install, one a line.
image_packages() {
  python3 "$here/dockerfile.py" packages runtime client bench server etcd <"$root/docker/Dockerfile"
}

make_tree() {
  local options=(-qq)
  [[ $EUID -eq 0 ]] && options+=(-o APT::Sandbox::User=root)
  mkdir "$1/archives" "$1/tree"
  (cd "$1/archives" && apt-get "${options[@]}" download "${docker_packages[@]}" >&2) || return
  for package in "$1"/archives/*.deb; do dpkg-deb -x "$package" "$1/tree" || return; done
  rm -r "$1/archives"
}

# The "deb ADDRESS RELEASE main" lines of the Debian that apt has here.
mirrors() {
  # shellcheck disable=SC2016  # apt's variables
  apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI) $(CODENAME)' 'Identifier: Packages' |
    awk '$1 == "Debian" && $2 == "main" && $4 !~ /-/ {print "deb", $3, $4, "main"}' | sort -u
}

make_base() {
  local sources include leave_out=() path
  sources=$(mirrors)
  [[ -n $sources ]] || { say "apt has no Debian configured here"; return 1; }
  include=$(image_packages | paste -sd ,)
  for path in man doc locale info; do leave_out+=(--dpkgopt="path-exclude=/usr/share/$path/*"); done
  # Its source lists are emptied: in the VM the Dockerfile's apt-get finds its packages installed.
  mmdebstrap --quiet --variant=minbase --include="$include" "${leave_out[@]}" \
    --dpkgopt=force-unsafe-io --customize-hook='rm -f "$1"/etc/apt/sources.list' \
    "$(awk '{print $3; exit}' <<<"$sources")" "$1/base.tar" - <<<"$sources" >&2
}

# part NAME FUNCTION: makes PARTS/NAME, whole or not at all.
part() {
  [[ ! -e $parts/$1 ]] || return 0
  rm -rf "$parts/new"
  mkdir -p "$parts/new"
  "$2" "$parts/new" || return
  mv "$parts/new/$1" "$parts/$1"
  rm -r "$parts/new"
}

prepare() {
  local cache parts lock
  cache=$(cache_root) || exit
  parts=$cache/docker-$(cat "${BASH_SOURCE[0]}" <(image_packages) | sha256sum | cut -c1-12)
  mkdir -p "$parts"
  exec {lock}>"$cache/docker-lock"
  flock "$lock"
  [[ -e $parts/tree ]] || say "fetching Debian's docker (about 70 MB, once) into $parts"
  part tree make_tree || die "cannot get Debian's docker"
  if [[ ${1-} != tree ]]; then
    [[ -e $parts/base.tar ]] || say "making a base image (about 70 MB to fetch, once) in $parts"
    command -v mmdebstrap >/dev/null || die "mmdebstrap is missing (./run install-deps)"
    part base.tar make_base || die "cannot make a base image"
  fi
  echo "$parts"
}

prepare "$@"
