// RefusalReason: why a connection request is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rkv::server {

enum class RefusalReason : std::uint8_t {
  kMalformed,  // its private data is not a connection request
  kVersion,    // it speaks another version
  kStarting,   // the server is not ready yet
  kResuming,   // its last connection is still being ended
  kOffences,   // its host's clients were disconnected for misbehaviour too often (Offences)
  kFull,       // --max-clients
  kFailed,     // the connection could not be established, e.g. the device is out of resources
  kUnproved,   // it has not proved to be a user of the server
  kBackup,     // the server is a backup of its group
};
inline constexpr std::size_t kRefusalReasons = 9;
std::string_view name_of(RefusalReason reason);  // "malformed", ...: a static label

}  // namespace rkv::server
