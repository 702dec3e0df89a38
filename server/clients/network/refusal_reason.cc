#include "server/clients/network/refusal_reason.h"

#include <array>

namespace rkv::server {

namespace {
constexpr std::array<std::string_view, kRefusalReasons> kNames = {
    "malformed", "version", "starting", "resuming", "offences",
    "full",      "failed",  "unproved", "backup"};
}  // namespace

std::string_view name_of(RefusalReason reason) {
  return kNames[static_cast<std::size_t>(reason)];
}

}  // namespace rkv::server
