// SessionTable: the clients of one worker. Acceptors bring them and end them; the worker's thread
// admits them, drops them and removes them.
//
// Acceptors only leave mail: each call notes a task, sets has_mail() and wakes the queue. The
// worker's thread does these tasks at the start of its next turn, in collect_mail().
//
// Thread safety:
//  - acceptors: reserve_client, cancel_client, adopt, end_session, give_up
//  - any thread: end_revoked, has_mail, clients
//  - worker's thread: all others
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "rdma/transport/transport.h"
#include "server/clients/admission/revocations.h"
#include "server/request/outcome_archive.h"
#include "server/request/session.h"
#include "server/request/worker_counters.h"

namespace rkv::server {

struct NewClient {
  std::unique_ptr<rdma::Connection> connection;
  std::uint64_t session = 0;
  std::uint16_t credits = 0;
  std::string name;
  std::shared_ptr<Place> place;
  std::shared_ptr<const User> user{};  // nullptr: the server has no users
};

class SessionTable {
 public:
  // Blocks until `done` returns true or the deadline passes.
  using WaitUntil = std::function<void(const std::function<bool()>& done, const Deadline&)>;

  // `wait_until`: how end_session() blocks; empty: on a condition variable. `outcomes`: where the
  // outcomes of ended sessions go; nullptr: none are kept. References must outlive the table.
  SessionTable(std::uint32_t capacity, rdma::Queue& queue, const Clock& clock,
               WorkerCounters& counters, WaitUntil wait_until, OutcomeArchive* outcomes);
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  // Reserves a place for one more client; call it before accepting on the worker's queue. Returns
  // false if the worker is full. cancel_client() gives the place back; after adopt(), remove()
  // does.
  bool reserve_client();
  void cancel_client() { clients_.fetch_sub(1, std::memory_order_relaxed); }
  void adopt(NewClient client);
  // Ends the session if this worker has it and it belongs to this user ("" without users). Returns
  // true if none of the session's requests will begin any more, and their outcomes are in the
  // archive. Blocks until the worker's thread has handled the call. Returns false if the deadline
  // passed first.
  bool end_session(std::uint64_t id, const Deadline& deadline, std::string_view user = {});
  // Ends the session, if this worker has it, so that another client gets its place. Never blocks.
  void give_up(std::uint64_t session);

  // Ends the sessions of users that `users` does not contain unchanged, and from now on each new
  // session of such a user. The worker reports to `revocation`, if there is one. Never blocks.
  void end_revoked(std::shared_ptr<const Users> users,
                   std::shared_ptr<Revocation> revocation = nullptr);

  bool has_mail() const { return mail_.load(std::memory_order_acquire); }
  // The clients with a place, connected or not.
  std::uint32_t clients() const { return clients_.load(std::memory_order_relaxed); }

  // Handles the mail of acceptors. Returns completions that arrived before their clients were
  // admitted, in order of arrival. Allocates if there is mail.
  std::vector<rdma::Completion> collect_mail();
  // Keeps a completion of an accepted client that collect_mail() has not admitted yet. At most the
  // client's credits plus its disconnect.
  void keep_early(const rdma::Completion& completion) { early_.push_back(completion); }

  std::span<const std::unique_ptr<Session>> all() const { return sessions_; }
  // Disconnects the client; its requests are not answered any more. The queue reports the end of
  // the connection later. `why`: nullopt if the client did nothing wrong; then nothing is logged.
  void drop(Session& session, std::optional<DropReason> why);
  // Destroys the session and gives its place back. REQUIRES: its connection was destroyed.
  void remove(Session& session);
  // Destroys all connections. Call it before the memory that they READ into and send from is
  // reused.
  void destroy_connections();
  // Destroys all sessions, without giving their places back: the worker has stopped.
  void clear() { sessions_.clear(); }

 private:
  struct OldSession {
    std::uint64_t id = 0;
    std::string user;
    bool is(const Session& session) const {
      return session.id == id && user == (session.user == nullptr ? "" : session.user->name);
    }
  };
  void admit(NewClient arrival);
  bool is_revoked(const Session& session) const;
  void drop_revoked(std::span<const std::shared_ptr<Revocation>> revocations);
  void end_old(const std::vector<OldSession>& to_end);
  void give_away_outcomes(Session& session);
  void give_up_all(const std::vector<std::uint64_t>& ids);
  void notify_worker();

  rdma::Queue& queue_;
  const Clock& clock_;
  WorkerCounters& counters_;
  const WaitUntil wait_until_;
  OutcomeArchive* const outcomes_;
  const std::uint32_t capacity_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<rdma::Completion> early_;
  std::shared_ptr<const Users> users_;  // of the last end_revoked(); nullptr: none yet

  std::atomic<std::uint32_t> clients_{0};
  std::atomic<bool> mail_{false};
  std::atomic<std::uint64_t> ends_done_{0};  // of ends_asked_; written under mutex_
  Mutex mutex_;
  ConditionVariable ended_;
  struct Mail {
    std::vector<NewClient> arrivals;
    std::vector<OldSession> to_end;
    std::vector<std::uint64_t> given_up;
    std::shared_ptr<const Users> users;
    std::vector<std::shared_ptr<Revocation>> revocations;
  } received_ RKV_GUARDED_BY(mutex_);
  std::uint64_t ends_asked_ RKV_GUARDED_BY(mutex_) = 0;
};

}  // namespace rkv::server
