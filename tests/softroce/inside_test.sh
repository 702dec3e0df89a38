#!/bin/bash
# Run inside by softroce_test.sh, in a folder shared with the host. What it finds goes to `checks`
# there; its stdout and stderr must both become a copy of its stdin; its exit status is 7.
set -u

check() {
  local name=$1
  shift
  if "$@" >>log 2>&1; then echo "ok $name"; else echo "not ok $name"; fi >>checks
}

# serve_and_ask SERVER... -- CLIENT...: the client tries until the server listens. Tools of perftest
# wait without end for a peer that gave up during the set-up. So both have a time limit, and start
# again together.
serve_and_ask() {
  local server=() tries=5 client_tries
  while [[ $1 != -- ]]; do server+=("$1"); shift; done
  shift
  while ((tries-- > 0)); do
    timeout 15 "${server[@]}" &
    for ((client_tries = 20; client_tries > 0; client_tries--)); do
      timeout 10 "$@" && wait $! && return
      kill -0 $! || break
      sleep 0.5
    done
    wait $!
  done
  return 1
}

ctest_works() {
  mkdir -p /tmp/build
  echo 'add_test(a true)' >/tmp/build/CTestTestfile.cmake
  ctest --test-dir /tmp/build --output-junit "$PWD/junit.xml" && grep -q 'name="a"' junit.xml
}

check "arguments" test "$# $1 $2 $3 $4" = $'4 two words new\nline  *'
check "directory" test "${PWD##*/}" = "a folder, with 'odd' \"letters\""
check "environment is passed" test "$GTEST_COLOR${RKV_EMPTY-unset}" = 'a b"c'
check "environment is chosen" test -z "${UNRELATED-}"
check "environment of the VM" test "$RKV_IN_VM $RKV_RDMA_DEVICE" = "1 rxe0"
check "locked memory is unlimited" test "$(ulimit -l)" = unlimited
check "root" test "$(id -u)" = 0
check "files of the host are in view" test -s /etc/debian_version
check "they can be changed inside" sh -c 'echo x >../stray && echo x >>/etc/hosts'
check "/dev/shm" sh -c 'echo x >/dev/shm/x'
check "/dev/infiniband" test -w /dev/infiniband/rdma_cm -a -w /dev/infiniband/uverbs0
check "rxe0 is active" sh -c 'ibv_devinfo -d rxe0 | grep -q PORT_ACTIVE'
check "its MTU is 4096" sh -c 'ibv_devinfo -d rxe0 | grep -q "active_mtu:.*4096"'
check "its GID is the IPv4 address" grep -q ffff:c0a8:4d01 /sys/class/infiniband/rxe0/ports/1/gids/1
check "rping" serve_and_ask rping -s -C 10 -a "$RKV_RDMA_ADDRESS" -- \
  rping -c -C 10 -v -V -a "$RKV_RDMA_ADDRESS"
check "ib_read_lat -R" serve_and_ask ib_read_lat -R -F -s 64 -n 200 -- \
  ib_read_lat -R -F -s 64 -n 200 "$RKV_RDMA_ADDRESS"
check "sparse file of 8 GiB" truncate -s 8G /tmp/sparse
check "modprobe" modprobe sch_netem
check "ctest" ctest_works

tee /dev/stderr
exit 7
