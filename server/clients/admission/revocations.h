// Revocations: users that an administrator has shut out of the running server, or of its group.
//
// Invariants:
//  REVOKE-1  When a Revocation is done, each worker has ended the sessions that it had of the user:
//      none of their requests begins any more, and over verbs their queue pairs are in the error
//      state, so that none of their READs succeeds. A connection of the user that is being accepted
//      at that moment ends as soon as its worker gets it.
//  REVOKE-2  A revoked user is refused as long as the users file has a line of the user with
//      revoked keys. A server outside of a group forgets the revocation when it reads a file
//      without such a line. The revocation is not on disk, so a start of the server forgets it too.
//  REVOKE-3  In a group, revoked keys are on the group's list: they are refused by each primary,
//      until a person takes them off the list. A revocation is done when the list has it, or when
//      the administrator has got the reason why not. It holds at this server in either case.
//
// Thread safety: any thread. Nothing here waits for a disk, a worker or another server.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/auth/revoked_secret.h"
#include "common/mutex.h"
#include "rkv/result.h"
#include "server/clients/admission/authentication.h"
#include "server/clients/admission/users.h"

namespace rkv::server {

// The end of one user's sessions, worker by worker, and its place on the group's list.
class Revocation {
 public:
  // Calls `finished`, which must not block, when the last of the workers has ended its sessions
  // and, if `in_group`, stored() was called.
  Revocation(std::string_view user, std::uint32_t workers, std::function<void()> finished,
             bool in_group = false)
      : user_(user),
        finished_(std::move(finished)),
        in_group_(in_group),
        left_(workers + (in_group ? 1 : 0)) {}
  const std::string& user() const { return user_; }
  bool in_group() const { return in_group_; }
  bool done() const { return left_.load(std::memory_order_acquire) == 0; }
  // How many sessions were ended. REQUIRES: done().
  std::uint64_t sessions() const { return sessions_.load(std::memory_order_relaxed); }
  // The reason why the user is shut out here, but not on the group's list. REQUIRES: done().
  const Status& status() const { return status_; }

  // Called by each worker once, with the number of sessions that it has ended.
  void ended(std::uint64_t sessions) {
    sessions_.fetch_add(sessions, std::memory_order_relaxed);
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) finished_();
  }
  // In a group, called once. An error's text must be static.
  void stored(const Status& status) {
    status_ = status;
    ended(0);
  }

 private:
  const std::string user_;
  const std::function<void()> finished_;
  const bool in_group_;
  Status status_;
  std::atomic<std::uint64_t> sessions_{0};
  std::atomic<std::uint32_t> left_;
};

class Revocations {
 public:
  // Ends the sessions of users that `users` does not contain unchanged, at every worker. Each
  // worker reports to the revocation of `user`, which is returned. If nobody waits, `user` is ""
  // and nullptr is returned.
  using EndSessions = std::function<std::shared_ptr<Revocation>(
      const std::shared_ptr<const Users>& users, std::string_view user)>;

  // Puts secrets on the group's list; must not block. `done` is called once, or never if the server
  // ends its part in the group.
  using Store = std::function<void(std::vector<RevokedSecret> secrets,
                                   std::function<void(const Status&)> done)>;

  // `users`: those of the file. `store`: nullptr if the server is in no group.
  Revocations(std::shared_ptr<const Users> users, std::shared_ptr<Authentication> authentication,
              EndSessions end_sessions, Store store = nullptr);

  // Shuts the user out and begins to end its sessions. `by`: the user that asks. kNotFound: no user
  // has this name. kInvalidArgument: a user cannot revoke itself, because its session would end
  // before the answer. Revoking a user again is not an error.
  Result<std::shared_ptr<const Revocation>> revoke(std::string_view user, std::string_view by);
  // Takes the users file, read again. Ends sessions of users that it does not contain unchanged.
  // Returns the revoked users that it still contains.
  std::vector<std::string> replace(std::shared_ptr<const Users> file);
  // Takes the group's list, ascending. Ends sessions of users that it shuts out. Returns the
  // revoked users that the file contains.
  std::vector<std::string> follow(std::vector<RevokedSecret> in_group);

 private:
  bool is_revoked(const User& line) const RKV_REQUIRES(mutex_);
  bool is_kept_out(std::string_view user) const RKV_REQUIRES(mutex_);
  std::set<std::string> kept_out() const RKV_REQUIRES(mutex_);
  std::shared_ptr<Revocation> apply(std::string_view user) RKV_REQUIRES(mutex_);

  const std::shared_ptr<Authentication> authentication_;
  const EndSessions end_sessions_;
  const Store store_;
  Mutex mutex_;
  std::shared_ptr<const Users> file_ RKV_GUARDED_BY(mutex_);
  // Secrets revoked by this process, and not on the group's list yet.
  std::set<RevokedSecret> here_ RKV_GUARDED_BY(mutex_);
  std::vector<RevokedSecret> in_group_ RKV_GUARDED_BY(mutex_);  // ascending
};

}  // namespace rkv::server
