#include "rkv/durability.h"

namespace rkv {

const char* to_string(Durability level) {
  switch (level) {
    case Durability::kDefault:
      return "default";
    case Durability::kMemory:
      return "memory";
    case Durability::kWal:
      return "wal";
    case Durability::kSync:
      return "sync";
  }
  return "unknown";
}

std::optional<Durability> parse_durability(std::string_view text) {
  for (const Durability level : {Durability::kMemory, Durability::kWal, Durability::kSync}) {
    if (text == to_string(level)) return level;
  }
  return std::nullopt;
}

}  // namespace rkv
