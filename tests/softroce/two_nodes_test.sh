#!/bin/bash
# Run inside, on node 1 of two, by softroce_test.sh.
# shellcheck disable=SC2016  # quoted scripts are for the other machine's shell
set -u

same() {
  if [[ $2 == "$3" ]]; then
    echo "ok two machines: $1"
  else
    printf 'not ok two machines: %s: wanted %q, got %q\n' "$@"
  fi
}

status_of() {
  "$@" >/dev/null 2>&1
  echo $?
}

rping_across() {
  node2 rping -s -C 10 -a "$RKV_NODE2_ADDRESS" >/dev/null 2>&1 &
  local tries=20
  until rping -c -C 10 -V -a "$RKV_NODE2_ADDRESS" >/dev/null 2>&1 || ((tries-- == 0)); do
    sleep 0.5
  done
  wait $! && echo both sides
}

loss_across() {
  tc qdisc add dev eth0 root netem loss 100%
  /run/softroce/busybox ping -c 1 -W 1 "$RKV_NODE2_ADDRESS" >/dev/null 2>&1 && echo no loss
  tc qdisc del dev eth0 root
  node2 echo control stays
}

same "another machine" rkv-node2 "$(node2 hostname)"
same "its address" "$RKV_NODE2_ADDRESS" "$(node2 sh -c 'echo $RKV_RDMA_ADDRESS')"
same "directory" "$PWD" "$(node2 pwd)"
same "stdin" "some input" "$(echo some input | node2 cat)"
same "stdout and stderr" out "$(node2 sh -c 'echo out; echo err >&2' 2>/dev/null)"
same "exit status" 9 "$(status_of node2 sh -c 'exit 9')"
same "killed by a signal" 137 "$(status_of node2 sh -c 'kill -9 $$')"
same "no such command" 127 "$(status_of node2 no-such-command)"
same "not a program" 126 "$(status_of node2 /etc/passwd)"
same "rping across" "both sides" "$(rping_across)"
same "a link that loses everything" "control stays" "$(loss_across)"
node2 sh -c 'echo c >/proc/sysrq-trigger' >/dev/null 2>&1
same "crash of the other machine" 125 "$(status_of node2 true)"
