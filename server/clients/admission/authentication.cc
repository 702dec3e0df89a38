#include "server/clients/admission/authentication.h"

#include <optional>
#include <utility>

namespace rkv::server {

namespace {

// Makes a user that no proof fits: its secret is forgotten.
std::shared_ptr<const User> make_nobody() {
  return std::make_shared<const User>(
      User{.name = {}, .keys = ClientKeys::of(Secret::draw()).stored});
}

}  // namespace

Authentication::Authentication(std::shared_ptr<const Users> users, const Challenges::Limits& limits,
                               std::vector<std::string> advertised)
    : challenges_(limits),
      advertised_(std::move(advertised)),
      nobody_(make_nobody()),
      users_(std::move(users)) {}

void Authentication::replace(std::shared_ptr<const Users> users) {
  const MutexLock lock(mutex_);
  users_ = std::move(users);
}

std::array<std::shared_ptr<const User>, 2> Authentication::lines_of(std::uint32_t number) {
  const MutexLock lock(mutex_);
  return {users_->find(number), users_->find_newer(number)};
}

// All users take the same steps, and the same time, up to the same refusal, whether they are
// unknown or have one line or two. Wrong proofs are not counted against their origin: a secret
// cannot be found by trying, and a count would let one client keep out others of its host.
Authentication::Answer Authentication::check(const ConnectRequest& request, const Route& route,
                                             Nanos now) {
  if (request.user == 0) {
    return Refused{.text =
                       "the server has users: give a user and its secret (--user, --secret-file)"};
  }
  std::optional<Claim> claim = challenges_.claim_of(request, route, now);
  if (!claim) return Challenged{challenges_.challenge(request, route, now)};
  const auto lines = lines_of(request.user);
  Proved proved;
  const auto try_address = [&](std::string_view address) {
    claim->server = address;
    for (const auto& line : lines) {
      const auto& user = line != nullptr ? line : nobody_;
      if (is_proved(user->keys, *claim, request.proof) && line != nullptr) proved = {line, *claim};
    }
  };
  try_address(route.called);
  for (const std::string& address : advertised_)
    try_address(address);
  if (proved.user == nullptr) {
    return Refused{.text = "the user is unknown or the secret is wrong",
                   .is_wrong_proof = true,
                   .user = lines.front() != nullptr ? lines.front() : nobody_};
  }
  switch (challenges_.use(request, now)) {
    case Challenges::Use::kAgain:
      return Refused{.text = "the proof has been used before: connect again", .user = proved.user};
    case Challenges::Use::kFull:
      return Refused{.code = Code::kBusy,
                     .text = "the user has connected too often within seconds: try again",
                     .user = proved.user};
    case Challenges::Use::kFirst:
      break;
  }
  return proved;
}

}  // namespace rkv::server
