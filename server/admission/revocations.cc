#include "server/admission/revocations.h"

#include <utility>

namespace rkv::server {

Revocations::Revocations(std::shared_ptr<const Users> users,
                         std::shared_ptr<Authentication> authentication, EndSessions end_sessions)
    : authentication_(std::move(authentication)),
      end_sessions_(std::move(end_sessions)),
      file_(std::move(users)) {}

std::shared_ptr<const Users> Revocations::allowed() const {
  std::shared_ptr<const Users> users = file_;
  for (const auto& [name, keys] : revoked_)
    users = users->without(name);
  return users;
}

Result<std::shared_ptr<const Revocation>> Revocations::revoke(std::string_view user,
                                                              std::string_view by) {
  const MutexLock lock(mutex_);
  const auto found = file_->find(number_of_user(user));
  if (found == nullptr || found->name != user) {
    return fail(Code::kNotFound, "there is no such user");
  }
  if (user == by) {
    return fail(Code::kInvalidArgument,
                "a user cannot revoke itself: ask as another user of the role admin, or remove its "
                "line from the users file and send the server SIGHUP");
  }
  revoked_.insert_or_assign(found->name, found->keys);
  const std::shared_ptr<const Users> left = allowed();
  auto revocation = end_sessions_(left, user);  // first: see Authentication::replace()
  authentication_->replace(left);
  return std::shared_ptr<const Revocation>(std::move(revocation));
}

std::vector<std::string> Revocations::replace(std::shared_ptr<const Users> file) {
  const MutexLock lock(mutex_);
  file_ = std::move(file);
  std::vector<std::string> kept_out;
  std::erase_if(revoked_, [&](const auto& one) {
    const auto found = file_->find(number_of_user(one.first));
    const bool is_there = found != nullptr && found->name == one.first && found->keys == one.second;
    if (is_there) kept_out.push_back(one.first);
    return !is_there;
  });
  const std::shared_ptr<const Users> left = allowed();
  (void)end_sessions_(left, {});  // first: see Authentication::replace()
  authentication_->replace(left);
  return kept_out;
}

}  // namespace rkv::server
