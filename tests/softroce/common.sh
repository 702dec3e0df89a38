# shellcheck shell=bash
# Sourced by the front door and by the scripts of this folder.

# The number of a closed stream would be taken by the next file that is opened.
[[ -e /dev/stdin ]] || exec </dev/null
[[ -e /dev/stdout ]] || exec >/dev/null
[[ -e /dev/stderr ]] || exec 2>/dev/null

say() {
  echo "${0##*/}: $*" >&2
}

# 125: the tool failed, not the command it runs.
die() {
  say "$*"
  exit 125
}

# as_root COMMAND...: through sudo where we are not root. Without a terminal nobody could type a
# password, so there sudo must not ask for one.
as_root() {
  if [[ $EUID -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    if (: >/dev/tty) 2>/dev/null; then sudo "$@"; else sudo -n "$@"; fi
  else
    say "neither root nor sudo: cannot run: $*"
    return 1
  fi
}

# update_lists: apt-get update, by which apt waits for nobody that holds the lock of its lists.
update_lists() {
  local said tries=60
  until said=$(as_root env LC_ALL=C apt-get -q update 2>&1); do
    if [[ $said != *"Could not get lock"* ]] || ((tries-- == 0)); then
      echo "$said" >&2
      return 1
    fi
    ((tries < 59)) || say "another apt holds the lock of the package lists: waiting for up to 10 minutes"
    sleep 10
  done
  echo "$said"
}
