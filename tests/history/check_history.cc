// check_history FILE: judges a recorded history (README.md). Exit code 0: linearizable; 1: not; 2:
// the file is missing or not a history; 3: undecided.
#include <fmt/format.h>

#include <cstdio>

#include "tests/history/checker.h"
#include "tests/history/history.h"

int main(int argc, char** argv) {
  using namespace rkv::history;
  if (argc != 2) {
    fmt::print(stderr, "usage: check_history FILE (JSON lines, see tests/history/README.md)\n");
    return 2;
  }
  std::string complaint;
  const auto history = import_from(argv[1], &complaint);
  if (!history) {
    fmt::print(stderr, "check_history: {}: {} {}\n", argv[1], to_string(history.error()),
               complaint);
    return 2;
  }
  const auto violation = check(*history);
  if (!violation) {
    fmt::print("linearizable: {} operations\n", history->size());
    return 0;
  }
  fmt::print("{}", violation->text);
  return violation->given_up ? 3 : 1;
}
