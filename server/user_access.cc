#include "server/user_access.h"

#include <string>
#include <utility>

#include "common/log.h"
#include "server/clients/admission/users.h"

namespace rkv::server {

namespace {

void warn_if_empty(const Users& users, const std::string& path) {
  if (users.count() != 0) return;
  log_warn(EventName("no_users"),
           "the users file {} has no users: nobody can connect until it has one and is read again",
           path);
}

void warn_of_kept_out(const std::vector<std::string>& names, const Options& options) {
  for (const std::string& name : names) {
    log_warn(
        EventName("user_kept_out"),
        "user \"{}\" was revoked and stays out, although {} still has its line: remove the "
        "line, or {}",
        field("user", name), options.users,
        options.is_in_group() ? "give it another secret" : "it may connect after the next start");
  }
}

}  // namespace

std::optional<Failure> UserAccess::load(Revocations::EndSessions end_sessions,
                                        Revocations::Store store) {
  if (options_.users.empty()) return std::nullopt;
  std::string problem;
  auto users = Users::load(options_.users, &problem);
  if (!users) return Failure{exit_code_of_file(users.error()), problem};
  warn_if_empty(**users, options_.users);
  authentication_ =
      std::make_shared<Authentication>(*users, Challenges::Limits{}, options_.advertise);
  revocations_ = std::make_unique<Revocations>(*users, authentication_, std::move(end_sessions),
                                               std::move(store));
  return std::nullopt;
}

void UserAccess::read_again() {
  if (authentication_ == nullptr) return;
  std::string problem;
  auto users = Users::load(options_.users, &problem);
  if (!users) {
    log_error(EventName("users_wrong"), "the users were not read again, nothing changes: {}",
              problem);
    return;
  }
  const std::vector<std::string> kept_out = revocations_->replace(*users);
  log_info(EventName("users_read"), "the users were read again: {} in {}", (*users)->count(),
           options_.users);
  warn_of_kept_out(kept_out, options_);
  warn_if_empty(**users, options_.users);
}

void UserAccess::follow(const std::shared_ptr<const std::vector<RevokedSecret>>& revoked) {
  if (revocations_ == nullptr || revoked == revoked_) return;
  revoked_ = revoked;
  warn_of_kept_out(revocations_->follow(*revoked_), options_);
}

}  // namespace rkv::server
