// The ways in: verbs, shared memory, or both. Each has a transport, a listener, workers and an
// acceptor of its own; all of them serve one store out of one memory.
//
// Thread safety: one owner; marks_changed, workers, refusals: any thread after create_workers().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "rdma/choose.h"
#include "server/acceptor.h"
#include "server/cells.h"
#include "server/facts.h"
#include "server/worker.h"

namespace rkv::server {

class Networks {
 public:
  explicit Networks(rdma::ServerTransports transports);
  ~Networks();  // stopped
  Networks(const Networks&) = delete;
  Networks& operator=(const Networks&) = delete;

  // Listens on every network, under one port, and tells clients "loading" from here on. Where a
  // second network beside verbs cannot listen, it is left out and the log says so.
  Status listen(const std::string& address, const Clock& clock);
  // Hint words for the clients of each network, and the store told of them.
  Status create_hints(Store& store);
  // `each` cells for one-sided counters on every network that has atomics, and the store told of
  // them. 0: none.
  Status create_cells(std::uint32_t each, Store& store);
  // Memory that clients of every network may READ, under one address and key.
  Result<std::unique_ptr<rdma::Region>> allocate(std::size_t bytes);
  // `threads` workers for every network. `parts.transport` is filled in.
  // `network`: what the store calls the network's cells.
  using MakeWorker =
      std::function<Result<std::unique_ptr<Worker>>(rdma::Transport&, std::uint32_t network)>;
  Status create_workers(std::uint32_t threads, const MakeWorker& make);
  // Starts the workers and lets clients in.
  void admit(const Acceptor::Admission& admission);
  void stop();  // acceptors, then workers

  void marks_changed();
  std::size_t message_bytes() const;  // of all workers' buffers
  std::vector<WorkerFacts> workers() const;
  RefusalCounts refusals() const;
  std::size_t count() const { return networks_.size(); }
  std::uint16_t port() const;
  std::string describe() const;  // "verbs: ... and shm: ..."

 private:
  // Destroyed from the bottom.
  struct Network {
    const char* name = "";
    std::unique_ptr<rdma::Transport> transport{};
    std::unique_ptr<rdma::Listener> listener{};
    std::unique_ptr<rdma::Region> hints{};
    std::unique_ptr<rdma::Region> cell_memory{};
    std::unique_ptr<Cells> cells{};
    std::uint32_t cells_number = RequestHandler::kNoNetwork;  // the store's for them
    std::vector<std::unique_ptr<Worker>> workers{};
    std::unique_ptr<Acceptor> acceptor{};
  };
  std::vector<Network> networks_;  // verbs first
};

}  // namespace rkv::server
