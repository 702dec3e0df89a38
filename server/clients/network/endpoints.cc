#include "server/clients/network/endpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "common/thread.h"
#include "server/clients/network/shared_region.h"

namespace rkv::server {

namespace {

constexpr std::int64_t kStepMs = 1000;

RemoteWindow window_of(const rdma::Region& region, std::size_t length) {
  return {.address = region.address(),
          .remote_key = region.remote_key(),
          .length = static_cast<std::uint32_t>(length)};
}

}  // namespace

Endpoints::Endpoints(rdma::ServerTransports transports) {
  if (transports.verbs != nullptr) {
    Endpoint& network = endpoints_.emplace_back();
    network.name = "verbs";
    network.transport = std::move(transports.verbs);
    if (transports.reopen_verbs) keep_device(network, std::move(transports.reopen_verbs));
  }
  if (transports.tcp != nullptr) {
    endpoints_.push_back({.name = "tcp", .transport = std::move(transports.tcp)});
  }
  if (transports.shm != nullptr) {
    endpoints_.push_back({.name = "shm", .transport = std::move(transports.shm)});
  }
}

void Endpoints::keep_device(Endpoint& network, rdma::OpenTransport reopen) {
  auto kept = rdma::ReopeningTransport::wrap(std::move(network.transport), std::move(reopen));
  if (!kept) {
    log_warn(EventName("device_not_watched"), "{} is not watched: {}",
             network.transport->describe(), to_string(kept.error()));
    return;
  }
  network.device = kept->get();
  network.transport = std::move(*kept);
}

Endpoints::~Endpoints() {
  stop();
}

Status Endpoints::listen(const std::string& address, const Clock& clock) {
  std::string where = address;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    Endpoint& network = endpoints_[i];
    auto listener = network.transport->listen(where);
    if (!listener && i > 0) {
      log_warn(EventName("transport_left_out"), "not listening on {}: {}",
               network.transport->describe(), to_string(listener.error()));
      endpoints_.resize(i);
      break;
    }
    if (!listener) return std::unexpected(listener.error());
    network.listener = std::move(*listener);
    network.acceptor = std::make_unique<Acceptor>(*network.listener, clock);
    network.acceptor->start();
    where = fmt::format("{}:{}", address.substr(0, address.rfind(':')), network.listener->port());
  }
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    if (endpoints_[i].device != nullptr) start_keeper(i);
  }
  return {};
}

// Called at most once: shared memory has no device.
void Endpoints::start_keeper(std::size_t network) {
  rdma::ReopeningTransport& device = *endpoints_[network].device;
  device.observe([this, network](const rdma::DeviceReport& now) { device_changed(network, now); });
  keeper_ = std::thread([this, &device] {
    name_thread("rkv-device");
    const SteadyClock clock;
    while (!stopping_.load(std::memory_order_acquire))
      device.step(Deadline::after_ms(clock, kStepMs));
  });
}

void Endpoints::device_changed(std::size_t number, const rdma::DeviceReport& now) {
  Endpoint& network = endpoints_[number];
  switch (now.state) {
    case rdma::DeviceState::kServing:
      if (now.keys != network.keys) {
        network.keys = now.keys;
        publish_keys(network);
      }
      return log_info(EventName("device_serving"), "{} serves: {}", network.name, now.why);
    case rdma::DeviceState::kPortDown:
      return log_warn(EventName("device_down"),
                      "{} carries no traffic: {}: clients are served again when it does",
                      network.name, now.why);
    case rdma::DeviceState::kGone:
      return log_error(EventName("device_gone"),
                       "{} has lost its device: {}: all of its clients are disconnected",
                       network.name, now.why);
    case rdma::DeviceState::kWaiting:
      return log_warn(EventName("device_awaited"), "{} waits for a device: {}", network.name,
                      now.why);
  }
}

// No client can READ the root region at this moment (MEMORY-5): none is admitted before this
// returns.
void Endpoints::publish_keys(Endpoint& network) {
  const MutexLock lock(keys_mutex_);
  if (!network.admitted) return;  // admit() will publish them
  memory_->rewrite_keys(network.root);
  network.acceptor->change_windows(windows_of(network));
}

Acceptor::Windows Endpoints::windows_of(const Endpoint& network) const {
  Acceptor::Windows windows{};
  const rdma::Region& root = memory_->root(network.root);
  windows.root = window_of(root, root.bytes().size());
  windows.root.remote_key = memory_->root_key(network.root);
  if (network.hints != nullptr) {
    windows.hints = window_of(*network.hints, kHintWords * sizeof(std::uint64_t));
  }
  if (network.cells != nullptr) {
    windows.counters =
        window_of(*network.cell_memory, network.cells->count() * sizeof(std::uint64_t));
  }
  return windows;
}

// The store memory's first root belongs to the first network.
Status Endpoints::create_roots(StoreMemory& memory) {
  memory_ = &memory;
  for (std::size_t i = 1; i < endpoints_.size(); ++i) {
    RKV_ASSIGN_OR_RETURN(endpoints_[i].root, memory.add_root([i](const rdma::Region& region) {
      return static_cast<const SharedRegion&>(region).of(i).remote_key();
    }));
  }
  return {};
}

// Each network has its own hint words: atomics of an adapter and of a processor on the same word
// are not atomic with respect to each other. A network without atomics has none, so its clients
// cannot ask for pins.
Status Endpoints::create_hints(Store& store) {
  for (Endpoint& network : endpoints_) {
    if (!network.transport->has_atomics()) continue;
    RKV_ASSIGN_OR_RETURN(network.hints,
                         network.transport->allocate(kHintWords * sizeof(std::uint64_t),
                                                     rdma::Access::kRemoteReadAtomic));
    store.records().add_hint_words(
        reinterpret_cast<const std::uint64_t*>(network.hints->bytes().data()));
  }
  return {};
}

Status Endpoints::create_cells(std::uint32_t each, Store& store) {
  if (each == 0) return {};
  for (Endpoint& network : endpoints_) {
    RKV_ASSIGN_OR_RETURN(
        network.cell_memory,
        network.transport->allocate(each * sizeof(std::uint64_t), rdma::Access::kRemoteReadAtomic));
    auto cells = Cells::create(*network.transport, *network.cell_memory, each);
    if (!cells && cells.error().code == Code::kUnsupported) {
      log_info(EventName("no_one_sided_counters"), "no one-sided counters over {}: {}",
               network.transport->describe(), to_string(cells.error()));
      network.cell_memory.reset();
      continue;
    }
    if (!cells) return std::unexpected(cells.error());
    network.cells = std::move(*cells);
    network.cells_number = store.counter_cells().add_network(*network.cells);
  }
  return {};
}

Result<std::unique_ptr<rdma::Region>> Endpoints::allocate(std::size_t bytes) {
  // The last network is shared memory if there is one: clients can map only memory it allocated.
  RKV_ASSIGN_OR_RETURN(auto memory,
                       endpoints_.back().transport->allocate(bytes, rdma::Access::kRemoteRead));
  if (endpoints_.size() == 1) return memory;
  std::vector<std::unique_ptr<rdma::Region>> registrations;
  for (std::size_t i = 0; i + 1 < endpoints_.size(); ++i) {
    RKV_ASSIGN_OR_RETURN(auto registration, endpoints_[i].transport->attach(
                                                memory->bytes(), rdma::Access::kRemoteRead));
    registrations.push_back(std::move(registration));
  }
  return std::unique_ptr<rdma::Region>(
      new SharedRegion(std::move(memory), std::move(registrations)));
}

Status Endpoints::create_workers(std::uint32_t threads, const MakeWorker& make) {
  for (Endpoint& network : endpoints_) {
    for (std::uint32_t i = 0; i < threads; ++i) {
      RKV_ASSIGN_OR_RETURN(auto worker, make(*network.transport, network.cells_number));
      network.workers.push_back(std::move(worker));
    }
  }
  return {};
}

void Endpoints::refuse_as_backup(const std::string& primary) {
  for (const Endpoint& network : endpoints_) {
    if (network.acceptor != nullptr) network.acceptor->refuse_as_backup(primary);
  }
}

void Endpoints::admit(const Acceptor::Admission& admission) {
  std::vector<Worker*> everybody;
  for (const Endpoint& network : endpoints_) {
    for (const auto& worker : network.workers) {
      worker->start();
      everybody.push_back(worker.get());
    }
  }
  const auto places = std::make_shared<Places>(admission.max_clients, admission.max_offences);
  for (Endpoint& network : endpoints_) {
    Acceptor::Admission own = admission;
    own.all_workers = everybody;
    own.places = places;
    for (const auto& worker : network.workers)
      own.workers.push_back(worker.get());
    const MutexLock lock(keys_mutex_);
    memory_->rewrite_keys(network.root);
    const Acceptor::Windows windows = windows_of(network);
    own.root = windows.root;
    own.hints = windows.hints;
    own.counters = windows.counters;
    network.acceptor->admit(std::move(own));
    network.admitted = true;
  }
}

void Endpoints::leave(const std::string& primary) {
  for (const Endpoint& network : endpoints_) {
    network.acceptor->close(primary);
    for (const auto& worker : network.workers)
      worker->leave();
  }
}

bool Endpoints::are_quiet() const {
  return std::ranges::all_of(endpoints_, [](const Endpoint& network) {
    return std::ranges::all_of(network.workers,
                               [](const auto& worker) { return worker->is_quiet(); });
  });
}

void Endpoints::give_up_replies() {
  for (const Endpoint& network : endpoints_)
    for (const auto& worker : network.workers)
      worker->give_up_replies();
}

void Endpoints::stop() {
  stopping_.store(true, std::memory_order_release);
  for (const Endpoint& network : endpoints_) {
    if (network.device != nullptr) network.device->wake();
  }
  if (keeper_.joinable()) keeper_.join();
  for (Endpoint& network : endpoints_) {
    if (network.acceptor != nullptr) network.acceptor->stop();
  }
  for (Endpoint& network : endpoints_) {  // begin all stops first: each may wait for the disk
    for (const auto& worker : network.workers)
      worker->begin_stop();
  }
  for (Endpoint& network : endpoints_) {
    for (const auto& worker : network.workers)
      worker->stop();
  }
  // The final numbers of one-sided counters must not depend on a device that may be lost.
  for (const Endpoint& network : endpoints_) {
    if (network.device != nullptr) network.device->end_registrations();
  }
}

void Endpoints::end_workers() {
  for (Endpoint& network : endpoints_) {
    network.acceptor.reset();  // it refers to the workers
    network.workers.clear();
  }
}

std::shared_ptr<Revocation> Endpoints::end_revoked(const std::shared_ptr<const Users>& users,
                                                   std::string_view user, bool in_group) {
  std::shared_ptr<Revocation> revocation;
  if (!user.empty()) {
    std::size_t workers = 0;
    for (const Endpoint& network : endpoints_)
      workers += network.workers.size();
    revocation = std::make_shared<Revocation>(
        user, static_cast<std::uint32_t>(workers), [this] { wake_workers(); }, in_group);
  }
  for (const Endpoint& network : endpoints_) {
    for (const auto& worker : network.workers)
      worker->sessions().end_revoked(users, revocation);
  }
  return revocation;
}

void Endpoints::wake_workers() {
  for (const Endpoint& network : endpoints_) {
    for (const auto& worker : network.workers)
      worker->wake_for_answers();
  }
}

std::size_t Endpoints::message_bytes() const {
  std::size_t bytes = 0;
  for (const Endpoint& network : endpoints_) {
    for (const auto& worker : network.workers)
      bytes += worker->room().bytes();
  }
  return bytes;
}

std::vector<WorkerFacts> Endpoints::workers() const {
  std::vector<WorkerFacts> facts;
  for (const Endpoint& network : endpoints_) {
    for (std::uint32_t i = 0; i < network.workers.size(); ++i) {
      const Worker& worker = *network.workers[i];
      facts.push_back({.transport = network.name,
                       .number = i,
                       .counters = &worker.counters(),
                       .timings = &worker.timings(),
                       .room = &worker.room(),
                       .clients = worker.sessions().clients(),
                       .reported_reads = worker.reported_reads()});
    }
  }
  return facts;
}

RefusalCounts Endpoints::refusals() const {
  RefusalCounts counts{};
  for (const Endpoint& network : endpoints_) {
    for (std::size_t i = 0; network.acceptor != nullptr && i < counts.size(); ++i)
      counts[i] += network.acceptor->refused(static_cast<RefusalReason>(i));
  }
  return counts;
}

std::uint64_t Endpoints::challenges() const {
  std::uint64_t count = 0;
  for (const Endpoint& network : endpoints_)
    count += network.acceptor != nullptr ? network.acceptor->challenged() : 0;
  return count;
}

std::vector<EndpointFacts> Endpoints::endpoints() const {
  std::vector<EndpointFacts> facts;
  for (const Endpoint& network : endpoints_) {
    EndpointFacts& one = facts.emplace_back();
    one.transport = network.name;
    one.device = network.transport->describe();
    if (network.device == nullptr) continue;
    const rdma::DeviceReport now = network.device->report();
    one.state = now.state;
    one.why = now.why;
    one.losses = now.losses;
  }
  return facts;
}

std::vector<std::uint64_t> Endpoints::acceptor_turns() const {
  std::vector<std::uint64_t> turns;
  for (const Endpoint& network : endpoints_)
    turns.push_back(network.acceptor->turns());
  return turns;
}

bool Endpoints::has_way_in() const {
  return std::ranges::any_of(endpoints_, [](const Endpoint& network) {
    return network.device == nullptr ||
           network.device->report().state == rdma::DeviceState::kServing;
  });
}

rdma::Transport* Endpoints::transport(std::string_view name) const {
  const auto at = std::ranges::find(endpoints_, name, &Endpoint::name);
  return at == endpoints_.end() ? nullptr : at->transport.get();
}

std::uint16_t Endpoints::port() const {
  if (endpoints_.empty() || endpoints_.front().listener == nullptr) return 0;
  return endpoints_.front().listener->port();
}

std::string Endpoints::describe() const {
  std::string text;
  for (const Endpoint& network : endpoints_)
    text += (text.empty() ? "" : " and ") + network.transport->describe();
  return text;
}

}  // namespace rkv::server
