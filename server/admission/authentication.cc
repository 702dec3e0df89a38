#include "server/admission/authentication.h"

#include <optional>
#include <utility>

namespace rkv::server {

namespace {

// No proof fits: the secret is forgotten.
std::shared_ptr<const User> make_nobody() {
  return std::make_shared<const User>(
      User{.name = {}, .keys = ClientKeys::of(Secret::draw()).stored});
}

}  // namespace

Authentication::Authentication(std::shared_ptr<const Users> users, const Challenges::Limits& limits)
    : challenges_(limits), nobody_(make_nobody()), users_(std::move(users)) {}

void Authentication::replace(std::shared_ptr<const Users> users) {
  const MutexLock lock(mutex_);
  users_ = std::move(users);
}

std::shared_ptr<const User> Authentication::find(std::uint32_t number) {
  const MutexLock lock(mutex_);
  return users_->find(number);
}

// An unknown user takes the same steps as a known one, and the same time, up to the same refusal.
// Wrong proofs are not counted against their origin: a secret cannot be found by trying, and a
// count would let one client keep out others of its host.
Authentication::Answer Authentication::check(const ConnectRequest& request, const Route& route,
                                             Nanos now) {
  if (request.user == 0) {
    return Refused{.text =
                       "the server has users: give a user and its secret (--user, --secret-file)"};
  }
  const std::optional<Claim> claim = challenges_.claim_of(request, route, now);
  if (!claim) return Challenged{challenges_.challenge(request, route, now)};
  const std::shared_ptr<const User> found = find(request.user);
  const std::shared_ptr<const User>& user = found != nullptr ? found : nobody_;
  if (!is_proved(user->keys, *claim, request.proof) || found == nullptr) {
    return Refused{.text = "the user is unknown or the secret is wrong"};
  }
  switch (challenges_.use(request, now)) {
    case Challenges::Use::kAgain:
      return Refused{.text = "the proof has been used before: connect again"};
    case Challenges::Use::kFull:
      return Refused{.code = Code::kBusy,
                     .text = "the user has connected too often within seconds: try again"};
    case Challenges::Use::kFirst:
      break;
  }
  return Proved{.user = found, .claim = *claim};
}

}  // namespace rkv::server
