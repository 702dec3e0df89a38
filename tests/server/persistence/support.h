// Shared by the tests of this folder: a seed to repeat a failing run with, a directory that is
// removed afterwards, and bytes that prove which entry they belong to.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/random.h"

namespace rkv::server::test {

// RKV_TEST_SEED=N repeats a run.
inline std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* const given = std::getenv("RKV_TEST_SEED");
    const std::uint64_t value =
        given != nullptr ? std::strtoull(given, nullptr, 0) : random_from_kernel();
    std::cout << "repeat with RKV_TEST_SEED=" << value << "\n" << std::flush;
    return value;
  }();
  return seed;
}

class TempDir {
 public:
  TempDir() {
    std::string name = std::filesystem::temp_directory_path() / "rkv-test-XXXXXX";
    path_ = mkdtemp(name.data()) != nullptr ? name : std::string();
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// `length` bytes that follow from `seed`.
inline std::vector<std::byte> patterned(std::uint64_t seed, std::size_t length) {
  std::vector<std::byte> bytes(length);
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < length; ++i) {
    if (i % 8 == 0) word = mix64(seed + i);
    bytes[i] = static_cast<std::byte>(word >> (8 * (i % 8)));
  }
  return bytes;
}

inline bool equal(Bytes a, Bytes b) {
  return as_text(a) == as_text(b);
}

}  // namespace rkv::server::test
