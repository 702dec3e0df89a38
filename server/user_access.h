// UserAccess: the users of a server (--users): read at the start, read again, and revoked.
//
// Thread safety: the main thread. Authentication and Revocations say what holds for them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/auth/revoked_secret.h"
#include "server/clients/admission/authentication.h"
#include "server/clients/admission/revocations.h"
#include "server/program/failure.h"
#include "server/program/options.h"

namespace rkv::server {

class UserAccess {
 public:
  // `options` must outlive it.
  explicit UserAccess(const Options& options) : options_(options) {}

  // Reads the users file, if one is given. `end_sessions` and `store` are called when users are
  // revoked (Revocations). Blocks on the disk.
  std::optional<Failure> load(Revocations::EndSessions end_sessions, Revocations::Store store);
  // Reads the file again. Ends the sessions of users that were removed or changed. If the file is
  // invalid, nothing changes and an error is logged.
  void read_again();
  // Takes the group's list of revoked secrets, if it is another object than the last one.
  void follow(const std::shared_ptr<const std::vector<RevokedSecret>>& revoked);

  // nullptr: no users file is given.
  const std::shared_ptr<Authentication>& authentication() const { return authentication_; }
  Revocations* revocations() const { return revocations_.get(); }

 private:
  const Options& options_;
  std::shared_ptr<Authentication> authentication_;
  std::unique_ptr<Revocations> revocations_;
  std::shared_ptr<const std::vector<RevokedSecret>> revoked_;  // nullptr: none was taken yet
};

}  // namespace rkv::server
