// How the disk of the data directory is, as far as writing to it has shown.
//
// Thread safety: values and pure functions.
#pragma once

#include <array>
#include <cstdint>

#include "rkv/result.h"

namespace rkv::server {

enum class DiskState : std::uint8_t {
  kWell,
  kFull,      // no room, or a quota or limit of the file system is reached
  kReadOnly,  // mounted read-only, or the process may not write there
  kFailing,   // reads or writes end with an error
  kDamaged,   // what was written can no longer be read: writing does not go on until the next start
  kNoFiles,   // the process, or the machine, has no file descriptor left
  kMissing,   // the data directory is not where it was opened: removed, or moved away
};
inline constexpr std::array kDiskStates = {
    DiskState::kWell,    DiskState::kFull,    DiskState::kReadOnly, DiskState::kFailing,
    DiskState::kDamaged, DiskState::kNoFiles, DiskState::kMissing};

// Of an error that the storage has answered.
DiskState disk_state_of(const Error& error);
// As the statistics show it: "well", "full", "read-only", "failing", "damaged", "no-files",
// "missing".
const char* to_string(DiskState state);

enum class Refused : std::uint8_t {
  kWrite,      // not done
  kMadeWrite,  // that waits to be durable: it is done, in memory
  kFlush,
  kScan,
  kBackup,
};
// What it is refused with, for its client: a sentence that names the state. A disk that has become
// well in the meantime had failed.
Error refusal_of(Refused what, DiskState state);

}  // namespace rkv::server
