// Looks at a data directory without changing anything in it: is all of it there, and is it what was
// written?
//
//   const Inspection found = inspect(directory, [](const std::string& line) { print(line); });
//   if (found.problems != 0) ...
//
// Checked: the files that the database lists are there and have their lengths; the checksum of
// every block of every table and of every record of the write-ahead log; the form of every record
// and of the database's own facts; that no version is above those that were ever given out. Not
// checked: whether the data is the newest; a directory set back as a whole looks sound.
//
// What a crash leaves behind is sound: the log may be torn behind what is known to have been
// synced. Where later records say that it had been, it is a problem. A start decides by the same
// rule.
//
// Thread safety: free functions. Blocks on the disk, for as long as reading everything takes. The
// caller sees to it that nobody writes meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/layout.h"

namespace rkv::server {

struct Inspection {
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;       // keys and values
  Version highest{};             // of the records
  std::uint32_t boot = 0;        // the last that was claimed
  std::uint64_t torn_bytes = 0;  // of the log, that make no record; no problem by themselves
  std::uint64_t problems = 0;
};

// `tell` gets a line for each problem, kMostProblemLines at most, without a line end.
inline constexpr std::uint64_t kMostProblemLines = 20;
// `looked`, unless it is empty, is called all the time: so many bytes of tables, then so many
// records, of about so many.
enum class Looked : std::uint8_t { kTables, kRecords };
Inspection inspect(
    const std::string& directory, const std::function<void(const std::string& line)>& tell,
    const std::function<void(Looked at, std::uint64_t done, std::uint64_t expected)>& looked = {});

}  // namespace rkv::server
