// The data that replay.cc needs from the program that it is linked into: replayed.cc.in defines it.
//
// Thread safety: constant.
#pragma once

#include <cstdint>

namespace rkv::fuzz {

struct Replayed {
  const char* name;      // of the fuzz target
  const char* corpus;    // the directory of the committed inputs
  std::uint64_t inputs;  // how many mutations of them, unless RKV_FUZZ_INPUTS says so
};

extern const Replayed replayed;

}  // namespace rkv::fuzz
