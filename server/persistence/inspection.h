// Checks a data directory without changing it: is everything there, and is it what was written?
//
//   const Inspection found = inspect(directory, [](const std::string& line) { print(line); });
//   if (found.problems != 0) ...
//
// Checked: the files that the database lists exist and have their lengths; the checksum of each
// block of each table and of each record of the write-ahead log; the form of each record and of the
// database's own facts; no version is above those ever given out. Not checked: whether the data is
// the newest. A directory set back as a whole looks sound.
//
// The state that a crash leaves is sound: the log may be torn beyond what is known to have been
// synced. It is a problem if later records prove that the torn part had been synced. A start
// decides by the same rule.
//
// Thread safety: free functions. Blocks on the disk for as long as it takes to read everything. The
// caller ensures that nothing writes to the directory meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/layout.h"

namespace rkv::server {

struct Inspection {
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;       // keys and values
  Version highest{};             // highest version of the records
  std::uint32_t boot = 0;        // last boot number claimed
  std::uint64_t torn_bytes = 0;  // log bytes that form no record; not a problem by themselves
  std::uint64_t problems = 0;
};

// `tell` gets a line without line end for each problem, at most kMostProblemLines, and then one
// line with the number of further problems.
inline constexpr std::uint64_t kMostProblemLines = 20;
// `looked`, if not empty, is called after each table and each record: `done` bytes of tables, then
// `done` records. `expected` is the total, estimated for records.
enum class Looked : std::uint8_t { kTables, kRecords };
Inspection inspect(
    const std::string& directory, const std::function<void(const std::string& line)>& tell,
    const std::function<void(Looked at, std::uint64_t done, std::uint64_t expected)>& looked = {});

}  // namespace rkv::server
