// The acceptor: one thread that answers connection requests - checks them, picks a worker, tells
// the client where to READ - or says in a sentence why not.
//
// Thread safety: start, stop: the owner. admit, change_windows, refused: any thread. step: the
// acceptor's thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/wire.h"
#include "rdma/transport.h"
#include "server/metrics.h"
#include "server/worker.h"

namespace rkv::server {

class Acceptor {
 public:
  // What clients are let in to; references must outlive the acceptor.
  struct Admission {
    std::vector<Worker*> workers;      // of this network
    std::vector<Worker*> all_workers;  // of all: they share max_clients and sessions
    std::uint64_t epoch = 0;
    RemoteWindow root;  // of this network, as are the next two
    RemoteWindow hints = {};
    RemoteWindow counters = {};  // its cells
    std::uint32_t max_clients = 0;
    std::uint32_t max_offences = 0;    // a second, from one origin; 0: without limit
    std::shared_ptr<Places> places{};  // of all workers
  };
  struct Windows {
    RemoteWindow root;
    RemoteWindow hints;
    RemoteWindow counters;
  };
  // References must outlive the acceptor.
  Acceptor(rdma::Listener& listener, const Clock& clock) : listener_(listener), clock_(clock) {}
  ~Acceptor();  // stopped
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Until admit() clients are told that the server is loading.
  void start();
  void admit(Admission admission);  // once
  // Their keys are other ones from the next client on: the network's device has been opened again.
  void change_windows(const Windows& windows);
  void stop();

  // Waits for one request, at most `wait_ms`, and answers it.
  void step(std::int64_t wait_ms);
  // Clients that were not let in so far.
  std::uint64_t refused(RefusalReason reason) const {
    return refused_[static_cast<std::size_t>(reason)].load(std::memory_order_relaxed);
  }

 private:
  void answer(rdma::Incoming& incoming);
  void refuse(rdma::Incoming& incoming, RefusalReason why, Code code, std::string_view text);
  void accept(rdma::Incoming& incoming, const ConnectRequest& request, Worker& worker);
  // The number of a session says which worker has it: to end one nobody else is asked, so that a
  // worker that is held up holds up its own clients alone.
  std::uint64_t new_session(const Worker& worker) const;
  bool end_old_session(std::uint64_t session);
  Worker* reserve_place();
  Windows windows();

  rdma::Listener& listener_;
  const Clock& clock_;
  Admission admission_;  // written before open_, then never again but for the windows
  std::mutex windows_mutex_;
  std::atomic<bool> open_{false};
  std::size_t next_worker_ = 0;                                        // round robin
  std::array<std::atomic<std::uint64_t>, kRefusalReasons> refused_{};  // the thread counts
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace rkv::server
