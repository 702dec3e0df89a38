#include "server/admission/authentication.h"

#include <utility>

namespace rkv::server {

namespace {

// No proof fits: the secret is forgotten.
std::shared_ptr<const User> make_nobody() {
  return std::make_shared<const User>(
      User{.name = {}, .keys = ClientKeys::of(Secret::draw()).stored});
}

}  // namespace

Authentication::Authentication(std::shared_ptr<const Users> users, std::size_t most_used)
    : challenges_(most_used), nobody_(make_nobody()), users_(std::move(users)) {}

void Authentication::replace(std::shared_ptr<const Users> users) {
  const MutexLock lock(mutex_);
  users_ = std::move(users);
}

std::shared_ptr<const User> Authentication::find(std::uint32_t number) {
  const MutexLock lock(mutex_);
  return users_->find(number);
}

// An unknown user takes the same steps as a known one, and the same time, up to the same refusal.
Authentication::Answer Authentication::check(const ConnectRequest& request, std::string_view called,
                                             Nanos now) {
  if (request.user == 0) {
    return Refused{.text =
                       "the server has users: give a user and its secret (--user, --secret-file)"};
  }
  if (!Challenges::is_fresh(request, now)) {
    return Challenged{challenges_.challenge(request, called, now)};
  }
  const std::shared_ptr<const User> found = find(request.user);
  const std::shared_ptr<const User>& user = found != nullptr ? found : nobody_;
  Claim claim = challenges_.claim_of(request, called);
  if (!is_proved(user->keys, claim, request.proof) || found == nullptr) {
    return Refused{.text = "the user is unknown or the secret is wrong", .offends = true};
  }
  switch (challenges_.use(request, now)) {
    case Challenges::Use::kAgain:
      return Refused{.text = "the proof has been used before: connect again", .offends = true};
    case Challenges::Use::kFull:
      return Refused{.code = Code::kBusy,
                     .text = "too many clients have connected within seconds: try again"};
    case Challenges::Use::kFirst:
      break;
  }
  return Proved{.user = found, .claim = claim};
}

}  // namespace rkv::server
