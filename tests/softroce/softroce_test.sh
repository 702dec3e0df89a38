#!/bin/bash
# Tests of the VM itself. Prints "ok NAME" or "not ok NAME" for each check, "end" when all were made.
# shellcheck source-path=SCRIPTDIR
# shellcheck disable=SC2016  # quoted scripts are for the shell inside
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
scratch=$(mktemp -d /tmp/softroce-test.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
failures=0

# check NAME COMMAND...: passes if the command succeeds.
check() {
  local name=$1
  shift
  if "$@"; then
    echo "ok $name"
  else
    echo "not ok $name"
    failures=$((failures + 1))
  fi
}

# same NAME WANTED GOT
same() {
  [[ $2 == "$3" ]] || printf '%s: wanted %q, got %q\n' "$1" "$2" "$3" >&2
  check "$1" test "$2" = "$3"
}

vm() {
  "$here/vm.sh" --timeout 120 "$@"
}

# All of these in one machine: each start takes seconds.
test_inside() {
  local out="$scratch/a folder, with 'odd' \"letters\"" status=0
  mkdir -p "$out"
  head -c 3000000 /dev/urandom >"$scratch/binary"
  cp "$here/inside_test.sh" "$out/"
  cd "$out" || return
  GTEST_COLOR='a b"c' RKV_EMPTY='' UNRELATED=1 \
    vm --out "$out" -- ./inside_test.sh 'two words' $'new\nline' '' '*' \
    <"$scratch/binary" >"$scratch/stdout" 2>"$scratch/stderr" || status=$?
  same "exit status" 7 "$status"
  check "stdin to stdout, binary" cmp "$scratch/binary" "$scratch/stdout"
  check "stdin to stderr, binary" cmp "$scratch/binary" "$scratch/stderr"
  check "share is written on this side" test -s "$out/checks"
  cat "$out/checks"
  check "nothing else is written on this side" test ! -e "$scratch/stray"
}

test_death_by_signal() {
  local status=0
  "$here/../../run" softroce --timeout 120 -- sh -c 'cat; kill -9 $$' <&- || status=$?
  same "closed stdin; killed by a signal: 128 + n" 137 "$status"
}

test_time_limit() {
  local status=0
  "$here/vm.sh" --timeout 1 -- sleep 60 </dev/null 2>/dev/null || status=$?
  same "time limit" 124 "$status"
}

test_crash() {
  local status=0 message
  message=$(vm -- sh -c 'echo c >/proc/sysrq-trigger' 2>&1 </dev/null) || status=$?
  same "machine that crashes" 125 "$status"
  check "crash names the log" grep -q "Kernel panic" "${message##* }"
}

# Output arrives while the command runs, and a signal ends everything.
test_live_output_and_signal() {
  local vm_pid machine line='' status=0
  mkfifo "$scratch/live"
  "$here/vm.sh" -- sh -c 'echo first; sleep 600' </dev/null >"$scratch/live" 2>/dev/null &
  vm_pid=$!
  read -r -t 120 line <"$scratch/live"
  same "output is live" first "$line"
  machine=$(pgrep -P "$vm_pid" qemu)
  kill -TERM "$vm_pid"
  wait "$vm_pid" || status=$?
  same "ended by SIGTERM" 143 "$status"
  check "a machine was there, none is left behind" \
    test -n "$machine" -a ! -e "/proc/${machine:-self}"
}

test_misuse() {
  local status=0
  "$here/vm.sh" --nodes 3 -- true 2>/dev/null || status=$?
  same "misuse: bad option" 2 "$status"
  status=0
  "$here/vm.sh" --provider none -- true 2>/dev/null || status=$?
  same "misuse: no such provider" 2 "$status"
  status=0
  "$here/vm.sh" 2>/dev/null || status=$?
  same "misuse: no command" 2 "$status"
}

# An altered kernel is noticed. (That it is fetched again is not tried: it takes the network.)
test_verification() (
  # shellcheck source=common.sh
  source "$here/common.sh"
  # shellcheck source=kernel.sh
  source "$here/kernel.sh"
  ensure_kernel
  mkdir "$scratch/kernel"
  cp "$kernel_dir"/* "$scratch/kernel/"
  # shellcheck disable=SC2030  # meant for this subshell
  kernel_dir=$scratch/kernel
  check "intact kernel is accepted" kernel_is_intact
  printf x | dd of="$scratch/kernel/vmlinux" bs=1 seek=1000000 conv=notrunc status=none
  if kernel_is_intact; then exit 1; fi
)

test_two_nodes() {
  vm --nodes 2 -- "$here/two_nodes_test.sh" </dev/null || check "two machines" false
}

test_tally() {
  mkdir "$scratch/reports"
  cat >"$scratch/junit.xml" <<'XML'
<testsuite>
  <testcase name="plain" status="run"/>
  <testcase name="gtest" status="run"/>
  <testcase name="crashed" status="fail"><system-out>[ RUN      ] S.A
[       OK ] S.A (0 ms)
</system-out></testcase>
  <testcase name="mistyped" status="run"><system-out>[==========] Running 0 tests from 0 test suites.
[  PASSED  ] 0 tests.
</system-out></testcase>
  <testcase name="shared" status="fail"><system-out>[  SKIPPED ] S.Skips (0 ms)
[----------] Global test environment tear-down
[==========] 5 tests from 1 test suite ran. (1 ms total)
[  PASSED  ] 2 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] S.Skips
[  FAILED  ] 2 tests, listed below:
[  FAILED  ] S.Fails
[  FAILED  ] P/S.Fails/0, where GetParam() = 1

 2 FAILED TESTS
</system-out></testcase>
  <testcase name="absent" status="notrun"><skipped message="Unable to find executable"/></testcase>
  <testcase name="wish" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
</testsuite>
XML
  cat >"$scratch/reports/gtest.xml" <<'XML'
<testsuites><testsuite name="S">
  <testcase name="A" classname="S" status="run" result="completed"/>
  <testcase name="B" classname="S" status="run" result="skipped"/>
  <testcase name="DISABLED_D" classname="S" status="notrun" result="suppressed"/>
  <testcase name="C" classname="S" status="run" result="completed"><failure/></testcase>
</testsuite></testsuites>
XML
  local tally=("$here/tally.py" "$scratch/junit.xml" "$scratch/reports")
  same "tally" "4 6 3" "$("${tally[@]}" 2>/dev/null)"
  same "tally where skipping is failing" "4 9 3" \
    "$("$here/tally.py" --skip-is-failure "${tally[@]:1}" 2>/dev/null)"
  same "tally without a report" "0 1 0" "$("$here/tally.py" /nowhere /nowhere 2>/dev/null)"
}

test_only_failures() {
  local shown
  shown=$("$here/only_failures.py" <<'TEXT'
      Start 7: b
 1/3 Test #6: a ......   Passed    2.64 sec
 2/3 Test #7: b ......***Failed   75.60 sec
[----------] 4 tests from S
[ RUN      ] S.Passes
what it prints
repeat with SEED=1
[       OK ] S.Passes (1 ms)
[ RUN      ] S.Fails
file.cc:3: Failure
[  FAILED  ] S.Fails (1 ms)
between cases
[ RUN      ] S.Crashes
how far it came
 3/3 Test #8: c ......***Failed   75.60 sec
[ RUN      ] S.Hangs
TEXT
)
  same "only failures" "      Start 7: b
 1/3 Test #6: a ......   Passed    2.64 sec
 2/3 Test #7: b ......***Failed   75.60 sec
repeat with SEED=1
[ RUN      ] S.Fails
file.cc:3: Failure
[  FAILED  ] S.Fails (1 ms)
between cases
[ RUN      ] S.Crashes
how far it came
 3/3 Test #8: c ......***Failed   75.60 sec
[ RUN      ] S.Hangs" "$shown"
}

test_tally
test_only_failures
test_misuse
check "altered kernel is refused" test_verification
test_inside
test_death_by_signal
test_time_limit
test_crash
test_live_output_and_signal
test_two_nodes
echo end
exit "$((failures > 0))"
