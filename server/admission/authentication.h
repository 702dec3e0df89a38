// Authentication: which user a connection request is from, on a server with users.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/wire.h"
#include "server/admission/challenges.h"
#include "server/admission/users.h"

namespace rkv::server {

class Authentication {
 public:
  explicit Authentication(std::shared_ptr<const Users> users,
                          const Challenges::Limits& limits = {});

  // From now on these are the users. The sessions of others are ended by
  // SessionTable::end_revoked(), which comes first: a client that is checked with the users of
  // before, and admitted after that, is then ended too.
  void replace(std::shared_ptr<const Users> users);

  // The request has proved to be from `user`. `claim` refers to the address that check() was given.
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
    const char* text = "";  // a sentence for a person
  };
  using Answer = std::variant<Proved, Challenged, Refused>;
  // Answers a proof whose challenge is too old, or of another start of the server, with a
  // challenge.
  Answer check(const ConnectRequest& request, const Route& route, Nanos now);

 private:
  std::shared_ptr<const User> find(std::uint32_t number);

  Challenges challenges_;
  const std::shared_ptr<const User> nobody_;  // stands for users that do not exist
  Mutex mutex_;
  std::shared_ptr<const Users> users_ RKV_GUARDED_BY(mutex_);
};

}  // namespace rkv::server
