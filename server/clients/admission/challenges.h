// Challenges: the numbers that a client's proof must cover, so that each proof is valid for one
// connection request only.
//
// Invariants:
//  CHALLENGE-1  A challenge costs the server no memory. Stamp and cookie are digests of the time,
//      the request and its origin, with a key that no one else has. The server does not accept a
//      stamp of another start of the server, of another request, or made by a client.
//  CHALLENGE-2  A proof is accepted once. The server remembers the stamp and the nonce of each
//      accepted proof for as long as the stamp is fresh. If it cannot, it accepts no proof.
//  CHALLENGE-3  A user with more proofs than can be remembered keeps out no other user, as long as
//      fewer than Limits::most_used / most_used_by_one users do so together.
//
// Thread safety: any thread; its own lock, which is innermost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "common/auth/digest.h"
#include "common/auth/proof.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/wire.h"

namespace rkv::server {

// Where a connection request comes from and which address it has called.
struct Route {
  std::string_view called;  // rdma::Incoming::called()
  std::string_view origin;  // the client's host; over shared memory its process
};

class Challenges {
 public:
  static constexpr Nanos kLife = 10 * kNanosPerSecond;
  struct Limits {
    std::size_t most_used = std::size_t{1} << 18;
    std::size_t most_used_by_one = 4096;  // user
  };

  // Draws the key of its challenges from the kernel.
  explicit Challenges(const Limits& limits);

  Challenge challenge(const ConnectRequest& request, const Route& route, Nanos now) const;
  // Returns the claim that the request's proof must cover, if its stamp was issued to this request
  // within kLife before now. The claim refers to `route.called`.
  std::optional<Claim> claim_of(const ConnectRequest& request, const Route& route, Nanos now) const;

  enum class Use : std::uint8_t { kFirst, kAgain, kFull };
  // Notes the use of a proof that was verified. REQUIRES: claim_of() has returned its claim.
  Use use(const ConnectRequest& request, Nanos now);

 private:
  Digest digest_of(std::uint64_t time, const ConnectRequest& request, const Route& route) const;
  std::uint64_t time_at(Nanos now) const;
  void forget_used(std::uint64_t before) RKV_REQUIRES(mutex_);

  const Digest key_;
  const std::uint64_t first_time_;  // hides for how long the host has run
  const Limits limits_;
  Mutex mutex_;
  // Time, nonce and user of each; the oldest first.
  std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>> used_ RKV_GUARDED_BY(mutex_);
  std::map<std::uint32_t, std::size_t> used_by_ RKV_GUARDED_BY(mutex_);  // by user
};

}  // namespace rkv::server
