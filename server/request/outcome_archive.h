// OutcomeArchive: the outcomes of ended sessions, kept for clients that ask for them. All workers
// share one archive, since a client may return to any of them.
//
// A worker puts the table of a session here when it ends the session. If the client has come back,
// that happens before the client is accepted (ONCE-2). The table stays for kKeptFor. A client names
// the session of its write, not its last one, so it may lose further connections before it has
// asked.
//
// Memory is bounded: when the archive is full, the oldest table is dropped. So a client that
// connects and disconnects very often can push out tables of clients that have not asked yet. Those
// clients then report that their writes may have happened, as if the server had restarted.
//
// Thread safety: any thread. Sessions come and go under a mutex; requests do not take it, except
// kOutcome.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>

#include "common/clock.h"
#include "common/mutex.h"
#include "server/clients/admission/users.h"
#include "server/request/outcomes.h"

namespace rkv::server {

class OutcomeArchive {
 public:
  static constexpr Nanos kKeptFor = 300 * kNanosPerSecond;

  // `capacity`: tables at a time. `clock` must outlive the archive.
  OutcomeArchive(const Clock& clock, std::size_t capacity) : clock_(clock), capacity_(capacity) {}
  virtual ~OutcomeArchive() = default;
  OutcomeArchive(const OutcomeArchive&) = delete;
  OutcomeArchive& operator=(const OutcomeArchive&) = delete;

  // Keeps the table of an ended session of this user (nullptr: the server has no users). REQUIRES:
  // nothing changes the table any more (ONCE-2).
  void put(std::uint64_t session, std::shared_ptr<const User> user,
           std::shared_ptr<const Outcomes> outcomes);
  // Returns the table of a session of this very user: same name, role and keys. nullptr: the
  // session has not ended, is forgotten, or is another user's. Virtual for tests that show the
  // effect of a wrong answer.
  virtual std::shared_ptr<const Outcomes> find(std::uint64_t session, const User* user) const;
  std::size_t size() const;

 private:
  struct Ended {
    std::shared_ptr<const User> user;
    std::shared_ptr<const Outcomes> outcomes;
    Nanos since = 0;
  };
  bool is_too_old(const Ended& ended) const { return clock_.now() - ended.since > kKeptFor; }
  void drop_oldest() RKV_REQUIRES(mutex_);

  const Clock& clock_;
  const std::size_t capacity_;
  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, Ended> ended_ RKV_GUARDED_BY(mutex_);
  std::deque<std::uint64_t> in_order_ RKV_GUARDED_BY(mutex_);  // the sessions in ended_
};

}  // namespace rkv::server
