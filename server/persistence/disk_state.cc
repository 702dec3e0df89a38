#include "server/persistence/disk_state.h"

#include <cerrno>

#include "common/check.h"

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
  }
  return "failing";
}

Error write_refusal(DiskState state) {
  const auto refusal = [](const char* text) { return Error{.code = Code::kIo, .text = text}; };
  switch (state) {
    case DiskState::kWell:
      break;
    case DiskState::kFull:
      return refusal("the server's disk is full: no write is taken until there is room on it");
    case DiskState::kReadOnly:
      return refusal(
          "the server's disk is read-only: no write is taken until the server may write to it");
    case DiskState::kFailing:
      return refusal("the server's disk has failed: no write is taken until it is well");
    case DiskState::kDamaged:
      return refusal(
          "the server's database is damaged: no write is taken, and reads go on until it is "
          "stopped; its log says what to do");
  }
  RKV_CHECK(false, "a disk that is well refuses nothing");
}

}  // namespace rkv::server
