// Revocations: users that an administrator has shut out of the running server.
//
// Invariants:
//  REVOKE-1  When a Revocation is done, each worker has ended the sessions that it had of the user:
//      none of their requests begins any more, and over verbs their queue pairs are in the error
//      state, so that none of their READs succeeds. A connection of the user that is being accepted
//      at that moment ends as soon as its worker gets it.
//  REVOKE-2  A revoked user is refused until the users file is read without it, or with other keys
//      for it: only then is the revocation forgotten. A file that still has the user changes
//      nothing. Revocations are not on disk, so a start of the server forgets them too.
//
// Thread safety: any thread. revoke() and replace() do not wait for a disk or a worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/mutex.h"
#include "rkv/result.h"
#include "server/admission/authentication.h"
#include "server/admission/users.h"

namespace rkv::server {

// The end of one user's sessions, worker by worker.
class Revocation {
 public:
  // Calls `finished`, which must not block, when the last of the workers has ended its sessions.
  Revocation(std::string_view user, std::uint32_t workers, std::function<void()> finished)
      : user_(user), finished_(std::move(finished)), workers_left_(workers) {}
  const std::string& user() const { return user_; }
  bool done() const { return workers_left_.load(std::memory_order_acquire) == 0; }
  // How many sessions were ended. REQUIRES: done().
  std::uint64_t sessions() const { return sessions_.load(std::memory_order_relaxed); }

  // Called by each worker once, when it has ended so many.
  void ended(std::uint64_t sessions) {
    sessions_.fetch_add(sessions, std::memory_order_relaxed);
    if (workers_left_.fetch_sub(1, std::memory_order_acq_rel) == 1) finished_();
  }

 private:
  const std::string user_;
  const std::function<void()> finished_;
  std::atomic<std::uint64_t> sessions_{0};
  std::atomic<std::uint32_t> workers_left_;
};

class Revocations {
 public:
  // Ends the sessions of users that `users` does not have unchanged, at every worker. Each worker
  // reports to the revocation of `user`, which is returned. "" and nullptr: nobody waits.
  using EndSessions = std::function<std::shared_ptr<Revocation>(
      const std::shared_ptr<const Users>& users, std::string_view user)>;

  // `users`: as in the file.
  Revocations(std::shared_ptr<const Users> users, std::shared_ptr<Authentication> authentication,
              EndSessions end_sessions);

  // Shuts the user out and begins to end its sessions. `by`: the user that asks. kNotFound: nobody
  // has this name. kInvalidArgument: a user cannot revoke itself, because its session would end
  // before the answer. Revoking a user again is not an error.
  Result<std::shared_ptr<const Revocation>> revoke(std::string_view user, std::string_view by);
  // The file was read again. Sessions of users that it does not have unchanged are ended. Returns
  // the revoked users that it still has.
  std::vector<std::string> replace(std::shared_ptr<const Users> file);

 private:
  std::shared_ptr<const Users> allowed() const RKV_REQUIRES(mutex_);

  const std::shared_ptr<Authentication> authentication_;
  const EndSessions end_sessions_;
  Mutex mutex_;
  std::shared_ptr<const Users> file_ RKV_GUARDED_BY(mutex_);
  std::map<std::string, StoredKeys, std::less<>> revoked_ RKV_GUARDED_BY(mutex_);  // by name
};

}  // namespace rkv::server
