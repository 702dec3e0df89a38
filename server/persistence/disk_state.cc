#include "server/persistence/disk_state.h"

#include <array>
#include <cerrno>
#include <cstddef>

namespace rkv::server {

DiskState disk_state_of(const Error& error) {
  switch (error.sys_errno) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return DiskState::kFull;
    case EROFS:
    case EACCES:
    case EPERM:
      return DiskState::kReadOnly;
    case EMFILE:
    case ENFILE:
      return DiskState::kNoFiles;
    case ENOENT:
      return DiskState::kMissing;
    default:
      return error.code == Code::kCorrupt ? DiskState::kDamaged : DiskState::kFailing;
  }
}

const char* to_string(DiskState state) {
  switch (state) {
    case DiskState::kWell:
      return "well";
    case DiskState::kFull:
      return "full";
    case DiskState::kReadOnly:
      return "read-only";
    case DiskState::kFailing:
      return "failing";
    case DiskState::kDamaged:
      return "damaged";
    case DiskState::kNoFiles:
      return "no-files";
    case DiskState::kMissing:
      return "missing";
  }
  return "failing";
}

namespace {

// One sentence for each state except kWell, in the order of DiskState.
using Sentences = std::array<const char*, kDiskStates.size() - 1>;

constexpr Sentences kOfWrites = {
    "the server's disk is full: no write is taken until there is room on it",
    "the server's disk is read-only: no write is taken until the server may write to it",
    "the server's disk has failed: no write is taken until it is well",
    "the server's database is damaged: no write is taken, and reads go on until it is stopped; its "
    "log says what to do",
    "the server has no free file descriptor: no write is taken until it has; raise its limit of "
    "open files (ulimit -n)",
    "the server's data directory is not there any more: no write is taken until it is back"};
constexpr Sentences kOfMadeWrites = {
    "the server's disk was full when the write had been made: it is in memory, and is saved when "
    "there is room unless the server ends before",
    "the server's disk was read-only when the write had been made: it is in memory, and is saved "
    "when the server may write to it unless it ends before",
    "the server's disk failed after the write was made: it is in memory, and is saved when the "
    "disk is well unless the server ends before",
    "the server's database was damaged when the write had been made: it is in memory, and is saved "
    "if the disk lets it; the server's log says what to do",
    "the server had no free file descriptor when the write had been made: it is in memory, and is "
    "saved when there is one unless the server ends before",
    "the server's data directory was not there any more when the write had been made: it is in "
    "memory, and is saved when the directory is back unless the server ends before"};
constexpr Sentences kOfFlushes = {
    "the server's disk is full: what was written lately is in memory only, and is saved when there "
    "is room on it",
    "the server's disk is read-only: what was written lately is in memory only, and is saved when "
    "the server may write to it",
    "the server's disk has failed: what was written lately is in memory only, and is saved when "
    "the disk is well",
    "the server's database is damaged: what was written lately may be in memory only; the server's "
    "log says what to do",
    "the server has no free file descriptor: what was written lately is in memory only, and is "
    "saved when there is one",
    "the server's data directory is not there any more: what was written is in memory only, and is "
    "saved when the directory is back"};
constexpr Sentences kOfScans = {
    "the server's disk is full: scans miss the latest writes until there is room on it",
    "the server's disk is read-only: scans miss the latest writes until the server may write to it",
    "the server's disk has failed: scans miss the latest writes until it is well",
    "the server's database is damaged: scans miss the latest writes; the server's log says what to "
    "do",
    "the server has no free file descriptor: scans miss the latest writes until it has one",
    "the server's data directory is not there any more: scans miss the latest writes until it is "
    "back"};
constexpr Sentences kOfBackups = {
    "the server's disk is full: there is no backup until there is room on it",
    "the server's disk is read-only: there is no backup until the server may write to it",
    "the server's disk has failed: there is no backup until it is well",
    "the server's database is damaged: there is no backup of it; the server's log says what to do",
    "the server has no free file descriptor: there is no backup until it has",
    "the server's data directory is not there any more: there is no backup until it is back"};

const Sentences& sentences_of(Refused what) {
  switch (what) {
    case Refused::kWrite:
      return kOfWrites;
    case Refused::kMadeWrite:
      return kOfMadeWrites;
    case Refused::kFlush:
      return kOfFlushes;
    case Refused::kScan:
      return kOfScans;
    case Refused::kBackup:
      return kOfBackups;
  }
  return kOfWrites;
}

}  // namespace

Error refusal_of(Refused what, DiskState state) {
  static_assert(static_cast<int>(DiskState::kFull) == 1 &&
                static_cast<int>(DiskState::kMissing) == kDiskStates.size() - 1);
  if (state == DiskState::kWell) state = DiskState::kFailing;
  return {.code = Code::kIo, .text = sentences_of(what)[static_cast<std::size_t>(state) - 1]};
}

}  // namespace rkv::server
