#include "server/clients/admission/challenges.h"

#include <algorithm>

#include "common/random.h"

namespace rkv::server {

namespace {

// A stamp is a time in milliseconds, and in its upper bits the end of the digest of its challenge.
constexpr unsigned kTimeBits = 40;
constexpr std::uint64_t kTimeMask = (std::uint64_t{1} << kTimeBits) - 1;
constexpr std::uint64_t kLifeMs = Challenges::kLife / kNanosPerMs;
// Another acceptor may have read the clock a little earlier, and still accept stamps as fresh.
constexpr std::uint64_t kSlackMs = 1000;

std::uint64_t stamp_of(std::uint64_t time, const Digest& digest) {
  return load_le<std::uint64_t>(digest.data() + kProofBytes) << kTimeBits | time;
}

Proof cookie_of(const Digest& digest) {
  Proof cookie;
  std::copy_n(digest.begin(), cookie.size(), cookie.begin());
  return cookie;
}

}  // namespace

Challenges::Challenges(const Limits& limits)
    : key_(Secret::draw().bytes),
      first_time_(1 + random_from_kernel() % (std::uint64_t{1} << (kTimeBits - 1))),
      limits_(limits) {}

// Fields of a fixed length come first. With the length of the first text, no two routes have the
// same bytes.
Digest Challenges::digest_of(std::uint64_t time, const ConnectRequest& request,
                             const Route& route) const {
  std::array<std::byte, 28> numbers{};
  store_le(numbers.data(), time);
  store_le(numbers.data() + 8, request.client_nonce);
  store_le(numbers.data() + 16, request.user);
  store_le(numbers.data() + 20, static_cast<std::uint64_t>(route.origin.size()));
  std::string message(as_text(numbers));
  message += route.origin;
  message += route.called;
  return hmac_sha256(key_, as_bytes(message));
}

std::uint64_t Challenges::time_at(Nanos now) const {
  return (first_time_ + static_cast<std::uint64_t>(std::max<Nanos>(now, 0) / kNanosPerMs)) &
         kTimeMask;
}

Challenge Challenges::challenge(const ConnectRequest& request, const Route& route,
                                Nanos now) const {
  const std::uint64_t time = time_at(now);
  const Digest digest = digest_of(time, request, route);
  return {.stamp = stamp_of(time, digest), .cookie = cookie_of(digest)};
}

std::optional<Claim> Challenges::claim_of(const ConnectRequest& request, const Route& route,
                                          Nanos now) const {
  const std::uint64_t present = time_at(now);
  const std::uint64_t time = request.stamp & kTimeMask;
  if (time > present || present - time > kLifeMs) return std::nullopt;
  const Digest digest = digest_of(time, request, route);
  if (request.stamp != stamp_of(time, digest)) return std::nullopt;
  return Claim{.stamp = request.stamp,
               .cookie = cookie_of(digest),
               .user = request.user,
               .nonce = request.client_nonce,
               .session_to_resume = request.session_to_resume,
               .credits_wanted = request.credits_field(),
               .server = route.called};
}

void Challenges::forget_used(std::uint64_t before) {
  while (!used_.empty() && std::get<0>(*used_.begin()) < before) {
    const auto by = used_by_.find(std::get<2>(*used_.begin()));
    if (--by->second == 0) used_by_.erase(by);
    used_.erase(used_.begin());
  }
}

Challenges::Use Challenges::use(const ConnectRequest& request, Nanos now) {
  const std::uint64_t present = time_at(now);
  const MutexLock lock(mutex_);
  if (present > kLifeMs + kSlackMs) forget_used(present - kLifeMs - kSlackMs);
  const std::tuple proof(request.stamp & kTimeMask, request.client_nonce, request.user);
  if (used_.contains(proof)) return Use::kAgain;
  const auto by = used_by_.find(request.user);
  const bool is_full = by != used_by_.end() && by->second >= limits_.most_used_by_one;
  if (is_full || used_.size() >= limits_.most_used) return Use::kFull;
  used_.insert(proof);
  ++used_by_[request.user];
  return Use::kFirst;
}

}  // namespace rkv::server
