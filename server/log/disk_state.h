// State of the data directory's disk, as far as writes have shown it.
//
// Thread safety: values and pure functions.
#pragma once

#include <array>
#include <cstdint>

#include "rkv/result.h"

namespace rkv::server {

enum class DiskState : std::uint8_t {
  kOk,
  kFull,      // no space, or a quota or limit of the file system is reached
  kReadOnly,  // mounted read-only, or the process may not write there
  kFailing,   // reads or writes end with an error
  kDamaged,   // written data is unreadable: writes stay refused until the next start
  kNoFiles,   // the process or the machine has no free file descriptor
  kMissing,   // the data directory is not where it was opened: removed or moved
};
inline constexpr std::array kDiskStates = {
    DiskState::kOk,      DiskState::kFull,    DiskState::kReadOnly, DiskState::kFailing,
    DiskState::kDamaged, DiskState::kNoFiles, DiskState::kMissing};

// The state that an error of the storage stands for.
DiskState disk_state_of(const Error& error);
// The name used in statistics: "ok", "full", "read-only", "failing", "damaged", "no-files",
// "missing".
const char* to_string(DiskState state);

enum class Refused : std::uint8_t {
  kWrite,      // not done
  kMadeWrite,  // the write is in memory and waits to be durable
  kFlush,
  kScan,
  kBackup,
};
// The error for the client: a sentence that names the state. kOk reads as kFailing: the disk had
// failed and works again by now.
Error refusal_of(Refused what, DiskState state);

}  // namespace rkv::server
