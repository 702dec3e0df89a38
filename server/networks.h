// The ways in: verbs, shared memory, or both. Each has a transport, a listener, workers and an
// acceptor of its own; all of them serve one store out of one memory.
//
// A network whose device is lost loses its clients and waits for a device, on a thread of its own;
// with the next one it serves again (rdma/reopening/transport.h). The other network goes on.
//
// Thread safety: one owner; marks_changed, workers, refusals, endpoints: any thread after
// create_workers().
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "rdma/choose.h"
#include "server/acceptor.h"
#include "server/cells.h"
#include "server/facts.h"
#include "server/memory.h"
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
  // Memory that clients of every network may READ, under one address and a key of each.
  Result<std::unique_ptr<rdma::Region>> allocate(std::size_t bytes);
  // A root region for the clients of each network, out of allocate()d memory. `memory` must outlive
  // this.
  Status create_roots(StoreMemory& memory);
  // `threads` workers for every network. `parts.transport` is filled in.
  // `network`: what the store calls the network's cells.
  using MakeWorker =
      std::function<Result<std::unique_ptr<Worker>>(rdma::Transport&, std::uint32_t network)>;
  Status create_workers(std::uint32_t threads, const MakeWorker& make);
  // Starts the workers and lets clients in.
  // `admission` but for workers and windows.
  void admit(const Acceptor::Admission& admission);
  void stop();  // acceptors, then workers
  // REQUIRES: stopped. Destroys the workers, and with them their unfinished writes. The store keeps
  // using the hint words and the cells.
  void end_workers();

  void marks_changed();
  std::size_t message_bytes() const;  // of all workers' buffers
  std::vector<WorkerFacts> workers() const;
  RefusalCounts refusals() const;
  // How each network fares.
  std::vector<EndpointFacts> endpoints() const;
  std::size_t count() const { return networks_.size(); }
  std::uint16_t port() const;
  std::string describe() const;  // "verbs: ... and shm: ..."

 private:
  // Destroyed from the bottom.
  struct Network {
    const char* name = "";
    std::unique_ptr<rdma::Transport> transport{};
    rdma::ReopeningTransport* device = nullptr;  // `transport`, where it has a device
    std::unique_ptr<rdma::Listener> listener{};
    std::size_t root = 0;    // the store memory's number of it
    std::uint64_t keys = 0;  // the keeper's: which keys are published
    bool admitted = false;   // guarded by keys_mutex_
    std::unique_ptr<rdma::Region> hints{};
    std::unique_ptr<rdma::Region> cell_memory{};
    std::unique_ptr<Cells> cells{};
    std::uint32_t cells_number = RequestHandler::kNoNetwork;  // the store's for them
    std::vector<std::unique_ptr<Worker>> workers{};
    std::unique_ptr<Acceptor> acceptor{};
  };
  static void keep_device(Network& network, rdma::OpenTransport reopen);
  void start_keeper(std::size_t network);
  void device_changed(std::size_t network, const rdma::DeviceReport& now);
  void publish_keys(Network& network);
  Acceptor::Windows windows_of(const Network& network) const;

  std::vector<Network> networks_;  // verbs first
  StoreMemory* memory_ = nullptr;
  std::mutex keys_mutex_;  // windows are told by the one who admits, or by the keeper
  std::atomic<bool> stopping_{false};
  std::thread keeper_;  // of the device
};

}  // namespace rkv::server
