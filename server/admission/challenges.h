// Challenges: the numbers that a client's proof must be about, so that each proof is good for one
// connection request only.
//
// Invariants:
//  CHALLENGE-1  A challenge costs the server no memory: its cookie is a digest of its stamp and of
//      the request, by a key that no one else has. A stamp of another start of the server, or of a
//      client's making, has a cookie that the client cannot know.
//  CHALLENGE-2  A proof is accepted once. The server remembers the stamp and the nonce of each
//      accepted proof for as long as the stamp is fresh, and accepts none if it cannot.
//
// Thread safety: any thread; its own lock, which is innermost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "common/auth/digest.h"
#include "common/auth/proof.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/wire.h"

namespace rkv::server {

class Challenges {
 public:
  static constexpr Nanos kLife = 10 * kNanosPerSecond;
  static constexpr std::size_t kMostUsed = std::size_t{1} << 16;

  // Draws the key of its cookies from the kernel.
  explicit Challenges(std::size_t most_used = kMostUsed);

  // `called`: rdma::Incoming::called().
  Challenge challenge(const ConnectRequest& request, std::string_view called, Nanos now) const;
  // Whether the request has a stamp that was issued within kLife before now.
  static bool is_fresh(const ConnectRequest& request, Nanos now);
  // What the request's proof must be about. The claim refers to `called`.
  Claim claim_of(const ConnectRequest& request, std::string_view called) const;

  enum class Use : std::uint8_t { kFirst, kAgain, kFull };
  // Notes the use of a proof that was verified. REQUIRES: is_fresh().
  Use use(const ConnectRequest& request, Nanos now);

 private:
  Proof cookie_of(std::uint64_t stamp, const ConnectRequest& request,
                  std::string_view called) const;

  Digest key_{};
  const std::size_t most_used_;
  Mutex mutex_;
  // Stamps and nonces; the oldest first.
  std::set<std::pair<std::uint64_t, std::uint64_t>> used_ RKV_GUARDED_BY(mutex_);
};

}  // namespace rkv::server
