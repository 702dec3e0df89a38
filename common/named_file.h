// Reads a file that a person has named: a configuration, a list of servers, properties. It is read
// whole, within a bound, and no pipe is awaited for longer than kPipeWaitMs.
//
// Thread safety: free functions. They block on the disk.
#pragma once

#include <cstddef>
#include <expected>
#include <string>

namespace rkv {

inline constexpr int kPipeWaitMs = 10'000;

struct UnreadFile {
  bool is_too_long = false;
  std::string why{};  // "No such file or directory", to follow "cannot read PATH: "
};

// Returns the bytes, at most `most`. A pipe that nobody writes into, or in which nothing arrives
// for kPipeWaitMs, is an error.
std::expected<std::string, UnreadFile> read_named_file(const std::string& path, std::size_t most);

}  // namespace rkv
