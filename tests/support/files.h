// Files as strings, for tests that read, damage and restore files on disk.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

namespace rkv::testing {

inline std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Changes one byte: one bit, or all bits of `mask`.
inline std::string flipped(std::string bytes, std::size_t at, int mask = 1) {
  bytes.at(at) = static_cast<char>(bytes.at(at) ^ mask);
  return bytes;
}

// The longest file in a directory whose name contains `part`: a database's data file. Other files
// may disappear meanwhile, because databases delete files in the background.
inline std::filesystem::path longest_file(const std::filesystem::path& directory,
                                          const std::string& part) {
  std::filesystem::path longest;
  std::uintmax_t most = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().filename().string().find(part) == std::string::npos) continue;
    std::error_code gone;
    const std::uintmax_t bytes = entry.file_size(gone);
    if (gone || (!longest.empty() && bytes <= most)) continue;
    longest = entry.path();
    most = bytes;
  }
  EXPECT_FALSE(longest.empty()) << part << " in " << directory;
  return longest;
}

}  // namespace rkv::testing
