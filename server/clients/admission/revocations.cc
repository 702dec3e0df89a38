#include "server/clients/admission/revocations.h"

#include <algorithm>
#include <utility>

namespace rkv::server {

namespace {

// Returns the lines of this name: two names may have the same number.
std::vector<std::shared_ptr<const User>> lines_of(const Users& users, std::string_view name) {
  const std::uint32_t number = number_of_user(name);
  std::vector<std::shared_ptr<const User>> lines;
  for (const auto& line : {users.find(number), users.find_newer(number)}) {
    if (line != nullptr && line->name == name) lines.push_back(line);
  }
  return lines;
}

}  // namespace

Revocations::Revocations(std::shared_ptr<const Users> users,
                         std::shared_ptr<Authentication> authentication, EndSessions end_sessions,
                         Store store)
    : authentication_(std::move(authentication)),
      end_sessions_(std::move(end_sessions)),
      store_(std::move(store)),
      file_(std::move(users)) {}

// A new role does not end a revocation; a new key does.
bool Revocations::is_revoked(const User& line) const {
  const RevokedSecret secret = RevokedSecret::of(line.name, line.keys);
  return here_.contains(secret) || std::ranges::binary_search(in_group_, secret);
}

// One revoked line of two is enough: the user would have the other secret, too.
bool Revocations::is_kept_out(std::string_view user) const {
  for (const auto& line : lines_of(*file_, user)) {
    if (is_revoked(*line)) return true;
  }
  return false;
}

std::set<std::string> Revocations::kept_out() const {
  std::set<std::string> names;
  for (const RevokedSecret& secret : here_) {
    if (is_kept_out(secret.user)) names.insert(secret.user);
  }
  for (const RevokedSecret& secret : in_group_) {
    if (is_kept_out(secret.user)) names.insert(secret.user);
  }
  return names;
}

// Tells the workers first, then the Authentication: see Authentication::replace().
std::shared_ptr<Revocation> Revocations::apply(std::string_view user) {
  std::shared_ptr<const Users> left = file_;
  for (const std::string& name : kept_out())
    left = left->without(name);
  auto revocation = end_sessions_(left, user);
  authentication_->replace(left);
  return revocation;
}

Result<std::shared_ptr<const Revocation>> Revocations::revoke(std::string_view user,
                                                              std::string_view by) {
  const MutexLock lock(mutex_);
  const auto lines = lines_of(*file_, user);
  if (lines.empty()) {
    return fail(Code::kNotFound, "there is no such user");
  }
  if (user == by) {
    return fail(Code::kInvalidArgument,
                "a user cannot revoke itself: ask as another user of the role admin, or remove its "
                "line from the users file and send the server SIGHUP");
  }
  std::vector<RevokedSecret> secrets;
  for (const auto& line : lines)
    secrets.push_back(RevokedSecret::of(line->name, line->keys));
  here_.insert(secrets.begin(), secrets.end());
  const std::shared_ptr<Revocation> revocation = apply(user);
  if (store_)
    store_(std::move(secrets), [revocation](const Status& status) { revocation->stored(status); });
  return std::shared_ptr<const Revocation>(revocation);
}

std::vector<std::string> Revocations::replace(std::shared_ptr<const Users> file) {
  const MutexLock lock(mutex_);
  file_ = std::move(file);
  const std::set<std::string> names = kept_out();
  // Secrets that the group's list does not have yet will be on it, whatever the file says now.
  if (!store_)
    std::erase_if(here_, [&](const RevokedSecret& each) { return !names.contains(each.user); });
  (void)apply({});
  return {names.begin(), names.end()};
}

std::vector<std::string> Revocations::follow(std::vector<RevokedSecret> in_group) {
  const MutexLock lock(mutex_);
  in_group_ = std::move(in_group);
  for (const RevokedSecret& each : in_group_)
    here_.erase(each);
  (void)apply({});
  const std::set<std::string> names = kept_out();
  return {names.begin(), names.end()};
}

}  // namespace rkv::server
