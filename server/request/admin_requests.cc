#include "server/request/admin_requests.h"

#include <fmt/format.h>

#include "common/log.h"

namespace rkv::server {

Result<std::unique_ptr<Awaited>> AdminRequests::begin(Opcode opcode, std::string_view name,
                                                      const User* by) {
  if (opcode == Opcode::kRevoke) return revoke(name, by);
  if (opcode != Opcode::kSetLogLevel) return change_group(opcode, name, by);
  RKV_RETURN_IF_ERROR(set_level(name, by == nullptr ? std::string_view("a client") : by->name));
  return nullptr;
}

// Logged whatever the levels are.
Status AdminRequests::set_level(std::string_view level, std::string_view by) {
  const auto parsed = log_level_of(level);
  if (!parsed) return fail(Code::kInvalidArgument, "a log level is debug, info, warn or error");
  set_log_level(*parsed);
  log_event({.level = LogLevel::kWarn,
             .name = "log_level_set",
             .text = fmt::format("\"{}\" has set the log level to {}", by, level)});
  return {};
}

Result<std::unique_ptr<Awaited>> AdminRequests::revoke(std::string_view user, const User* by) {
  if (revocations_ == nullptr)
    return fail(Code::kUnsupported, "the server has no users: start it with --users");
  const std::string_view asking = by == nullptr ? std::string_view() : by->name;
  RKV_ASSIGN_OR_RETURN(auto revocation, revocations_->revoke(user, asking));
  log_warn(EventName("user_revoked"), "user \"{}\" is revoked by \"{}\": {}", field("user", user),
           field("by", asking),
           revocation->in_group()
               ? "remove its line from the users file of each replica, or give it another secret"
               : "remove its line from the users file, or it may connect after the next start");
  return await_revocation(std::move(revocation));
}

Result<std::unique_ptr<Awaited>> AdminRequests::change_group(Opcode opcode,
                                                             std::string_view replica,
                                                             const User* by) {
  if (!change_group_) return fail(Code::kUnsupported, "the server is in no replicated group");
  log_warn(EventName("group_change_asked"), "\"{}\" asks for {} of {}",
           field("by", by == nullptr ? std::string_view("a client") : by->name),
           field("change", to_string(opcode)), field("replica", replica));
  return await_group(change_group_(opcode, replica));
}

}  // namespace rkv::server
