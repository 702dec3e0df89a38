#!/bin/bash
# cluster_test.sh BIN [--long|--replicated|--tcp]: docker/cluster.py as a user has it, in the SoftRoCE VM
# with Debian's docker, on the programs in BIN; --replicated: the replicated group instead of the three
# servers; --tcp: both over TCP, the device out of sight. Prints "ok NAME" or "not ok NAME" for each check;
# exit status 1 if one was not ok.
# shellcheck source-path=SCRIPTDIR
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
self=$here/cluster_test.sh
bin=$(realpath -- "$1")
part=${2-}
failures=0

if [[ ${RKV_IN_VM-} != 1 ]]; then  # a machine with a device of its own keeps its own docker
  exec "$root/tests/softroce/vm.sh" --timeout 3600 -- "$self" "$@"
fi
parts=${RKV_DOCKER_PARTS:-$("$here/parts.sh")} || exit
export RKV_DOCKER_PARTS=$parts
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

same() {
  if [[ $2 == "$3" ]]; then
    echo "ok $1"
  else
    printf 'not ok %s: wanted %q, got %q\n' "$@"
    failures=$((failures + 1))
  fi
}

# says NAME PATTERN: the last run did.
says() {
  if grep -q -E -- "$2" "$scratch/out"; then
    echo "ok $1"
  else
    echo "not ok $1: the last run did not say \"$2\""
    failures=$((failures + 1))
  fi
}

# A few hundred records; keys and values that a shell, a line or UTF-8 would spoil among them.
write_records() {
  python3 - >"$scratch/records.tsv" <<'PYTHON'
for i in range(600):
    print(f"package-{i}", f"value {i} " + "x" * (i % 90), sep="\t")
print('a "quoted" $(key)', "its `value`", sep="\t")
print(r"\x00\xff", r"\xfe\n\r", sep="\t")
PYTHON
}

# cluster ARGUMENTS...: its exit status; what it says is in $scratch/out, and shown with the seconds.
cluster() {
  local line
  "$root/docker/cluster.py" "$@" 2>&1 | tee "$scratch/out" |
    while IFS= read -r line; do printf '# %4d s  %s\n' "$SECONDS" "$line"; done >&2
  echo "${PIPESTATUS[0]}"
}

# Little of everything, and patience: the processors are emulated, and others may use the real ones.
small=(--base-image rkv-base --programs "$bin" --memory 48MiB --recordcount 300 --operations 600 --timeout 30s)
export RKV_HEALTH_INTERVAL=10s RKV_HEALTH_TIMEOUT=60s

nothing_is_left() {
  same "$1: no container is left" "" "$(docker ps -aq)"
  same "$1: no volume is left" "" "$(docker volume ls -q)"
}

test_whole() {
  same "exit status" 0 "$(cluster "$scratch/records.tsv" "${small[@]}")"
  says "records of all servers" '^records +[0-9]+ +[0-9]+ +[0-9]+ +602$'
  says "keys of the dead server failed, all of them, and only they" \
    '^only keys of server2 failed while it was dead; every record compared equal'
  says "the table says so" '^  failed +0 +[1-9][0-9]* +0 +[1-9][0-9]*$'
  says "after the restart" '^started again: equal +602$'
  nothing_is_left "the end"
  same "users of the images" "rkv rkv rkv" \
    "$(docker image inspect --format '{{.Config.User}}' rkv-server rkv-client rkv-bench | xargs)"
  same "a volume belongs to that user" rkv \
    "$(docker run --rm --network none --entrypoint stat rkv-server -c %U /data)"
  same "no compiler in the images" "" "$(docker run --rm --network none --entrypoint sh rkv-server \
    -c 'for name in cc gcc g++ cmake; do command -v $name; done')"
}

test_replicated() {
  same "replicated: exit status" 0 "$(cluster "$scratch/records.tsv" --replicated "${small[@]}")"
  says "replicated: the records of the file" '^loaded +602 +all equal +all equal$'
  says "replicated: what was written around the kill" '^of the writer +[0-9,]{3,} +all equal +all equal$'
  says "replicated: those of the benchmark" '^of the benchmark \(keys\) +300 +all equal +all equal$'
  says "replicated: how long nobody served" \
    '^nobody served for [0-9]+\.[0-9] s: .* replica[123] dead, until replica[123] gave it$'
  says "replicated: the verdict" \
    '^every acknowledged record compared equal, after the death of replica[123] and after its return$'
  nothing_is_left "replicated"
  same "user of etcd's image" etcd "$(docker image inspect --format '{{.Config.User}}' rkv-etcd)"
}

# As on a machine where RDMA was never set up: the script and docker find no device.
test_tcp() {
  small+=(--transport tcp)
  mv /dev/infiniband /dev/infiniband-aside
  test_whole
  says "tcp: it says so" '^TCP on 127\.0\.0\.1, which is not RDMA: '
  test_replicated
  mv /dev/infiniband-aside /dev/infiniband
}

test_taken_port() {
  "$bin/kvserver" --transport verbs --no-auth --listen "$RKV_RDMA_ADDRESS:7472" --memory 32MiB 2>"$scratch/other" &
  local other=$!
  until grep -q "kvserver ready" "$scratch/other"; do kill -0 "$other" || break; done
  same "taken port: exit status" 3 "$(cluster "$scratch/records.tsv" "${small[@]}")"
  says "taken port: sentence" '^cluster: server2 did not start: .*7472'
  nothing_is_left "taken port"
  kill "$other"
  wait "$other"
}

test_interrupt() {
  setsid "$root/docker/cluster.py" "$scratch/records.tsv" "${small[@]}" >"$scratch/out" 2>&1 &
  local run=$! status=0
  until (($(docker ps -q | wc -l) == 3)); do kill -0 "$run" || break; done
  kill -INT -- "-$run"
  wait "$run" || status=$?
  same "Ctrl-C: exit status" 130 "$status"
  nothing_is_left "Ctrl-C"
}

if [[ ${RKV_DOCKERD_STEP-} == yes ]]; then
  write_records
  case $part in
    --replicated) test_replicated ;;
    --tcp) test_tcp ;;
    *) test_whole ;;
  esac
  if [[ $part == --long ]]; then
    test_taken_port
    test_interrupt
  fi
  exit "$((failures > 0))"
fi
write_records
same "no daemon: exit status" 3 "$(RKV_DOCKERD=no "$here/with_dockerd.sh" "$parts" \
  "$root/docker/cluster.py" "$scratch/records.tsv" >"$scratch/out" 2>&1; echo $?)"
says "no daemon: sentence" "^cluster: docker's daemon does not answer"
RKV_DOCKERD_STEP=yes "$here/with_dockerd.sh" "$parts" "$self" "$@" || failures=1
exit "$((failures > 0))"
