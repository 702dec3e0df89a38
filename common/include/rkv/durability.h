// How safe a write is when it is answered, and how safe a version is known to be when it is read.
//
// Each level includes those before it. The numbers are sent on the wire (common/WIRE.md).
#pragma once

#include <optional>
#include <string_view>

#include "rkv/export.h"

namespace rkv {

enum class Durability : unsigned char {
  kDefault = 0,  // a write: the server's default (kvserver --durability)
  kMemory = 1,   // published in the server's memory: lost with the server's process
  kWal = 2,      // in the write-ahead log: survives the end of the process
  kSync = 3,     // synced to the disk: survives the end of the machine
};
inline constexpr Durability kLastDurability = Durability::kSync;

RKV_EXPORT const char* to_string(Durability level);  // "memory"; static
// "memory", "wal" or "sync".
RKV_EXPORT std::optional<Durability> parse_durability(std::string_view text);

}  // namespace rkv
