// The note (StorageEngine::write_note) in which a replica of a group keeps the history of its log:
// 12 bytes for each term, term 4 and last version 8. group/replica/replica_storage.* writes it. The
// inspection reads it, because a backup's records have versions that another server gave out.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/bytes.h"

namespace rkv::server {

inline constexpr std::string_view kHistoryNote = "history";
inline constexpr std::size_t kHistoryTermBytes = 12;

// The version of the last entry; 0: there is none, or the note is invalid.
inline std::uint64_t last_version_of(Bytes history) {
  if (history.empty() || history.size() % kHistoryTermBytes != 0) return 0;
  return load_le<std::uint64_t>(history.last(8).data());
}

}  // namespace rkv::server
