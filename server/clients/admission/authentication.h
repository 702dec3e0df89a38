// Authentication: which user a connection request is from, on a server with users.
//
// Thread safety: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/wire.h"
#include "server/clients/admission/challenges.h"
#include "server/clients/admission/users.h"

namespace rkv::server {

class Authentication {
 public:
  // `advertised`: addresses besides the one that a client has called, under which clients reach
  // this server through others (NAT, a proxy). A proof may be about any of them.
  explicit Authentication(std::shared_ptr<const Users> users, const Challenges::Limits& limits = {},
                          std::vector<std::string> advertised = {});

  // From now on these are the users. Call SessionTable::end_revoked() first, which ends the
  // sessions of others: then it also ends a client that is checked with the earlier users and
  // admitted afterwards.
  void replace(std::shared_ptr<const Users> users);

  // The request has proved to be from `user`. `claim` refers to the address that check() was given,
  // or to an advertised one.
  struct Proved {
    std::shared_ptr<const User> user;
    Claim claim;
  };
  // The client must prove who it is. Nothing is wrong yet.
  struct Challenged {
    Challenge challenge;
  };
  struct Refused {
    Code code = Code::kUnauthenticated;
    const char* text = "";               // a sentence for a person
    bool is_wrong_proof = false;         // the client may also have called another address
    std::shared_ptr<const User> user{};  // the named one, or one without a name; or nullptr
  };
  using Answer = std::variant<Proved, Challenged, Refused>;
  // Answers a proof whose challenge is too old, or of another start of the server, with a
  // challenge.
  Answer check(const ConnectRequest& request, const Route& route, Nanos now);

 private:
  std::array<std::shared_ptr<const User>, 2> lines_of(std::uint32_t number);

  Challenges challenges_;
  const std::vector<std::string> advertised_;
  const std::shared_ptr<const User> nobody_;  // stands for users that do not exist
  Mutex mutex_;
  std::shared_ptr<const Users> users_ RKV_GUARDED_BY(mutex_);
};

}  // namespace rkv::server
