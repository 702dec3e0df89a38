// Endpoints: the transports that clients connect over - verbs, shared memory, or both. Each network
// has its own transport, listener, workers and acceptor. All of them serve one store in one memory.
//
// A network whose device is lost loses its clients. A keeper thread waits for a device; with the
// next device the network serves again (rdma/transport/reopening/transport.h). The other network is
// not affected.
//
// Thread safety: one owner; wake_workers, end_revoked, workers, refusals, endpoints, are_quiet: any
// thread after create_workers().
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "rdma/choose.h"
#include "server/clients/network/acceptor.h"
#include "server/clients/network/facts.h"
#include "server/memory/memory.h"
#include "server/request/worker.h"
#include "server/store/cells.h"

namespace rkv::server {

class Endpoints {
 public:
  explicit Endpoints(rdma::ServerTransports transports);
  ~Endpoints();  // stops
  Endpoints(const Endpoints&) = delete;
  Endpoints& operator=(const Endpoints&) = delete;

  // Listens on every network, all under one port. From then on clients are refused as "loading". If
  // a second network beside verbs cannot listen, it is left out and logged. `clock`: the workers'
  // clock, since clients compare the times in accepts and answers.
  Status listen(const std::string& address, const Clock& clock);
  // Allocates hint words for the clients of each network and adds them to the store.
  Status create_hints(Store& store);
  // Allocates `each` cells for one-sided counters on every network that supports atomics, and adds
  // them to the store. 0: no cells.
  Status create_cells(std::uint32_t each, Store& store);
  // Allocates memory that clients of every network may READ: one address, one key per network.
  Result<std::unique_ptr<rdma::Region>> allocate(std::size_t bytes);
  // Creates a root region for the clients of each network, in memory from allocate(). `memory` must
  // outlive this.
  Status create_roots(StoreMemory& memory);
  // Creates `threads` workers for every network. `make` gets the network's transport and the
  // store's number for the network's cells.
  using MakeWorker =
      std::function<Result<std::unique_ptr<Worker>>(rdma::Transport&, std::uint32_t network)>;
  Status create_workers(std::uint32_t threads, const MakeWorker& make);
  // Until admit() clients are refused as by a backup of a group (Acceptor::refuse_as_backup).
  // REQUIRES: listen() has returned. Any thread.
  void refuse_as_backup(const std::string& primary);
  // Starts the workers and admits clients. `admission` gives everything except workers and windows.
  void admit(const Acceptor::Admission& admission);
  // Refuses all requests and newcomers from now on, as a backup of this primary. Does not block.
  // Any thread. REQUIRES: admit() has returned.
  void leave(const std::string& primary);
  // Whether all requests that were begun before leave() are answered.
  bool are_quiet() const;
  // The group's marks will not rise any more: stop() waits for no reply. Before stop().
  void give_up_replies();
  // Stops the acceptors, then the workers; blocks. From then on the processor changes cells, so
  // that their numbers can be read although a device is lost.
  void stop();
  // Destroys the workers, and with them their unfinished writes. The store keeps using the hint
  // words and the cells. REQUIRES: stopped.
  void end_workers();

  // Calls SessionTable::end_revoked() of every worker. The workers report to a revocation of
  // `user`, which is returned; "": to none. `in_group`: as for the revocation.
  std::shared_ptr<Revocation> end_revoked(const std::shared_ptr<const Users>& users,
                                          std::string_view user, bool in_group);
  void wake_workers();                // wakes those with waiting answers
  std::size_t message_bytes() const;  // of all workers' message buffers
  std::vector<WorkerFacts> workers() const;
  // How many turns the acceptors have taken, 10 a second at least.
  std::vector<std::uint64_t> acceptor_turns() const;
  bool has_way_in() const;  // a network has a working device, or needs none
  RefusalCounts refusals() const;
  std::uint64_t challenges() const;  // clients that were asked to prove which user they are
  // The state of each network and its device.
  std::vector<EndpointFacts> endpoints() const;
  std::size_t count() const { return endpoints_.size(); }
  // Returns the transport of this name ("verbs", "tcp" or "shm"), so that others can use it as
  // well; nullptr: there is none. Valid until this object is destroyed. REQUIRES: listen() has
  // returned.
  rdma::Transport* transport(std::string_view name) const;
  std::uint16_t port() const;
  std::string describe() const;  // "verbs: ... and shm: ..."

 private:
  // Members are destroyed from the last to the first.
  struct Endpoint {
    const char* name = "";
    std::unique_ptr<rdma::Transport> transport{};
    rdma::ReopeningTransport* device = nullptr;  // `transport`, if it has a device; else nullptr
    std::unique_ptr<rdma::Listener> listener{};
    std::size_t root = 0;    // this network's root number in the store memory
    std::uint64_t keys = 0;  // which keys are published (DeviceReport::keys); the keeper thread's
    bool admitted = false;   // guarded by keys_mutex_
    std::unique_ptr<rdma::Region> hints{};
    std::unique_ptr<rdma::Region> cell_memory{};
    std::unique_ptr<Cells> cells{};
    std::uint32_t cells_number = RequestHandler::kNoNetwork;  // the store's number for `cells`
    std::vector<std::unique_ptr<Worker>> workers{};
    std::unique_ptr<Acceptor> acceptor{};
  };
  static void keep_device(Endpoint& network, rdma::OpenTransport reopen);
  void start_keeper(std::size_t network);
  void device_changed(std::size_t network, const rdma::DeviceReport& now);
  void publish_keys(Endpoint& network);
  Acceptor::Windows windows_of(const Endpoint& network) const;

  std::vector<Endpoint> endpoints_;  // verbs first
  StoreMemory* memory_ = nullptr;
  Mutex keys_mutex_;  // windows change both in admit() and on the keeper thread
  std::atomic<bool> stopping_{false};
  std::thread keeper_;  // reopens the device
};

}  // namespace rkv::server
