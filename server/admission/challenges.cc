#include "server/admission/challenges.h"

#include <algorithm>
#include <string>

namespace rkv::server {

namespace {

constexpr std::uint64_t kLifeUs = Challenges::kLife / kNanosPerUs;

// Never 0, which would ask for a challenge.
std::uint64_t stamp_at(Nanos now) {
  return static_cast<std::uint64_t>(std::max<Nanos>(now / kNanosPerUs, 1));
}

}  // namespace

Challenges::Challenges(std::size_t most_used) : key_(Secret::draw().bytes), most_used_(most_used) {}

Proof Challenges::cookie_of(std::uint64_t stamp, const ConnectRequest& request,
                            std::string_view called) const {
  std::array<std::byte, 20> numbers{};
  store_le(numbers.data(), stamp);
  store_le(numbers.data() + 8, request.client_nonce);
  store_le(numbers.data() + 16, request.user);
  std::string message(as_text(numbers));
  message += called;
  const Digest digest = hmac_sha256(key_, as_bytes(message));
  Proof cookie;
  std::copy_n(digest.begin(), cookie.size(), cookie.begin());
  return cookie;
}

Challenge Challenges::challenge(const ConnectRequest& request, std::string_view called,
                                Nanos now) const {
  const std::uint64_t stamp = stamp_at(now);
  return {.stamp = stamp, .cookie = cookie_of(stamp, request, called)};
}

bool Challenges::is_fresh(const ConnectRequest& request, Nanos now) {
  const std::uint64_t present = stamp_at(now);
  return request.stamp != 0 && request.stamp <= present && present - request.stamp <= kLifeUs;
}

Claim Challenges::claim_of(const ConnectRequest& request, std::string_view called) const {
  return {.stamp = request.stamp,
          .cookie = cookie_of(request.stamp, request, called),
          .user = request.user,
          .nonce = request.client_nonce,
          .session_to_resume = request.session_to_resume,
          .credits_wanted = request.credits_wanted,
          .server = called};
}

Challenges::Use Challenges::use(const ConnectRequest& request, Nanos now) {
  const std::uint64_t present = stamp_at(now);
  const MutexLock lock(mutex_);
  // Twice the life: another acceptor's `now` may be a little earlier, and its stamps still fresh.
  while (!used_.empty() && used_.begin()->first + 2 * kLifeUs < present)
    used_.erase(used_.begin());
  const std::pair proof(request.stamp, request.client_nonce);
  if (used_.contains(proof)) return Use::kAgain;
  if (used_.size() >= most_used_) return Use::kFull;
  used_.insert(proof);
  return Use::kFirst;
}

}  // namespace rkv::server
