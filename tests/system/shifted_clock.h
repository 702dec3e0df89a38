// The wall clock of programs under test, which a test sets (interposed_calls.cc).
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "tests/system/process.h"
#include "tests/system/world.h"

namespace rkv::testing_support {

constexpr std::int64_t kDay = 86'400;  // seconds

inline std::string preload() {
  return "LD_PRELOAD=" RKV_INTERPOSED_CALLS;
}

// The wall clock of the programs that are started with environment().
class ShiftedClock {
 public:
  ShiftedClock() {
    std::ofstream(path_, std::ios::binary) << std::string(sizeof(std::int64_t), '\0');
  }
  // By seconds; negative: set back. Takes effect at once, in running programs too.
  void set_ahead(std::int64_t by) {
    // The file is never empty: programs have it mapped and read it at any time.
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.write(reinterpret_cast<const char*>(&by), sizeof(by));
  }
  std::vector<std::string> environment() const {
    return {preload(), "RKV_TEST_CLOCK_FILE=" + path_};
  }

 private:
  const ScratchDirectory scratch_;
  const std::string path_ = scratch_.path("ahead");
};

}  // namespace rkv::testing_support
