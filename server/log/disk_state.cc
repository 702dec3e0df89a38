#include "server/log/disk_state.h"

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
    case DiskState::kOk:
      return "ok";
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

// One sentence for each state except kOk, in the order of DiskState.
using Sentences = std::array<const char*, kDiskStates.size() - 1>;

constexpr Sentences kOfWrites = {
    "the server's disk is full: writes are refused until space is freed",
    "the server's disk is read-only: writes are refused until it is writable",
    "the server's disk has failed: writes are refused until the disk works",
    "the server's database is damaged: writes are refused, reads go on until the server stops; its "
    "log says what to do",
    "the server has no free file descriptor: writes are refused until it has one; raise its limit "
    "of open files (ulimit -n)",
    "the server's data directory is missing: writes are refused until it is back"};
constexpr Sentences kOfMadeWrites = {
    "the server's disk was full after the write was made: it is in memory, and is saved once space "
    "is freed unless the server ends before",
    "the server's disk was read-only after the write was made: it is in memory, and is saved once "
    "the disk is writable unless the server ends before",
    "the server's disk failed after the write was made: it is in memory, and is saved once the "
    "disk works unless the server ends before",
    "the server's database was damaged after the write was made: it is in memory, and is saved if "
    "the disk allows; the server's log says what to do",
    "the server had no free file descriptor after the write was made: it is in memory, and is "
    "saved once there is one unless the server ends before",
    "the server's data directory was missing after the write was made: it is in memory, and is "
    "saved once the directory is back unless the server ends before"};
constexpr Sentences kOfFlushes = {
    "the server's disk is full: the latest writes are in memory only, and are saved once space is "
    "freed",
    "the server's disk is read-only: the latest writes are in memory only, and are saved once the "
    "disk is writable",
    "the server's disk has failed: the latest writes are in memory only, and are saved once the "
    "disk works",
    "the server's database is damaged: the latest writes may be in memory only; the server's log "
    "says what to do",
    "the server has no free file descriptor: the latest writes are in memory only, and are saved "
    "once there is one",
    "the server's data directory is missing: the latest writes are in memory only, and are saved "
    "once it is back"};
constexpr Sentences kOfScans = {
    "the server's disk is full: scans miss the latest writes until space is freed",
    "the server's disk is read-only: scans miss the latest writes until it is writable",
    "the server's disk has failed: scans miss the latest writes until the disk works",
    "the server's database is damaged: scans miss the latest writes; the server's log says what to "
    "do",
    "the server has no free file descriptor: scans miss the latest writes until it has one",
    "the server's data directory is missing: scans miss the latest writes until it is back"};
constexpr Sentences kOfBackups = {
    "the server's disk is full: backups are refused until space is freed",
    "the server's disk is read-only: backups are refused until it is writable",
    "the server's disk has failed: backups are refused until the disk works",
    "the server's database is damaged: backups are refused; the server's log says what to do",
    "the server has no free file descriptor: backups are refused until it has one",
    "the server's data directory is missing: backups are refused until it is back"};

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
  if (state == DiskState::kOk) state = DiskState::kFailing;
  return {.code = Code::kIo, .text = sentences_of(what)[static_cast<std::size_t>(state) - 1]};
}

}  // namespace rkv::server
