// Acceptor: one thread that answers connection requests. It checks a request and its sender, picks
// a worker and sends the client the windows to READ, or refuses the request with the reason as
// text.
//
// Thread safety: start, stop: the owner. admit, refuse_as_backup, close, change_windows, refused:
// any thread. step: the acceptor's thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/wire.h"
#include "rdma/transport/transport.h"
#include "server/clients/admission/authentication.h"
#include "server/clients/network/refusal_reason.h"
#include "server/request/worker.h"
#include "server/request/worker_counters.h"

namespace rkv::server {

class Acceptor {
 public:
  // The workers, memory and rules for newcomers. References must outlive the acceptor.
  struct Admission {
    std::vector<Worker*> workers;      // of this network
    std::vector<Worker*> all_workers;  // of all networks: they share max_clients and sessions
    std::uint64_t epoch = 0;
    RemoteWindow root;  // of this network; so are `hints` and `counters`
    RemoteWindow hints = {};
    RemoteWindow counters = {};  // the network's counter cells
    bool in_group = false;       // the primary of a group: clients must check the group line
    std::uint32_t store = 0;     // ConnectAccept::store
    std::uint32_t max_clients = 0;
    std::uint32_t max_offences = 0;    // per second and origin; 0: no limit
    std::shared_ptr<Places> places{};  // shared by all networks; nullptr: admit() creates one
    std::shared_ptr<Authentication> authentication{};  // likewise; nullptr: there are no users
  };
  struct Windows {
    RemoteWindow root;
    RemoteWindow hints;
    RemoteWindow counters;
  };
  // References must outlive the acceptor.
  Acceptor(rdma::Listener& listener, const Clock& clock) : listener_(listener), clock_(clock) {}
  ~Acceptor();  // REQUIRES: stopped
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Starts the thread. Until admit(), clients are refused as "the server is loading".
  void start();
  // Until admit(), clients are refused as by a backup, and directed to HOST:PORT of the group's
  // primary; empty: it is not known. Call it again when that changes.
  void refuse_as_backup(std::string primary);
  // Opens the server to clients. Call it once.
  void admit(Admission admission);
  // Closes the server to newcomers again, for good: they are refused as by a backup of this
  // primary.
  void close(std::string primary);
  // Replaces the windows for all later clients: reopening the network's device changed the keys.
  void change_windows(const Windows& windows);
  void stop();

  // Waits at most `wait_ms` for a connection request and answers it.
  void step(std::int64_t wait_ms);
  // Number of clients refused so far for this reason.
  std::uint64_t refused(RefusalReason reason) const {
    return refused_[static_cast<std::size_t>(reason)].load(std::memory_order_relaxed);
  }
  // Number of clients that were asked to prove which user they are.
  std::uint64_t challenged() const { return challenged_.load(std::memory_order_relaxed); }
  // Number of turns of the acceptor's thread, ten a second at least. Any thread.
  std::uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }

 private:
  // The sender of a connection request.
  struct Identity {
    std::shared_ptr<const User> user{};  // nullptr: the server has no users
    Claim claim{};                       // what the user has proved
    Role role() const { return user == nullptr ? Role::kAdmin : user->role; }
  };
  void answer(rdma::Incoming& incoming);
  // nullopt: the request was rejected. `called` must outlive the identity.
  std::optional<Identity> identify(rdma::Incoming& incoming, const ConnectRequest& request,
                                   const std::string& called);
  void challenge(rdma::Incoming& incoming, const Challenge& challenge);
  void refuse(rdma::Incoming& incoming, RefusalReason why, Code code, std::string_view text,
              std::string_view primary = {}, std::string_view user = {});
  void refuse_unopened(rdma::Incoming& incoming, const ConnectRequest& request);
  void accept(rdma::Incoming& incoming, const ConnectRequest& request, const Identity& identity,
              Worker& worker);
  ConnectAccept accept_of(const ConnectRequest& request, const Identity& identity,
                          const Worker& worker);
  // A session's number modulo the number of all workers is its worker's place among them. Ending a
  // session therefore asks no other worker, and a stalled worker delays only its own clients.
  std::uint64_t new_session(const Worker& worker) const;
  bool end_old_session(std::uint64_t session, const Identity& identity);
  Worker* reserve_place();
  Windows windows();

  rdma::Listener& listener_;
  const Clock& clock_;
  // Written before open_ is set. After that only the windows change, under windows_mutex_.
  Admission admission_;
  Mutex windows_mutex_;
  Mutex primary_mutex_;
  std::optional<std::string> primary_ RKV_GUARDED_BY(primary_mutex_);  // if set, this is a backup
  std::atomic<bool> open_{false};
  std::size_t next_worker_ = 0;                                        // round robin
  std::array<std::atomic<std::uint64_t>, kRefusalReasons> refused_{};  // step()'s thread writes
  std::atomic<std::uint64_t> challenged_{0};                           // likewise
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> turns_{0};
  std::thread thread_;
};

}  // namespace rkv::server
