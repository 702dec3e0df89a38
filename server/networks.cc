#include "server/networks.h"

#include <fmt/format.h>

#include <utility>

#include "common/log.h"

namespace rkv::server {

Networks::Networks(rdma::ServerTransports transports) {
  const auto add = [this](const char* name, std::unique_ptr<rdma::Transport>& transport) {
    if (transport == nullptr) return;
    networks_.push_back({.name = name, .transport = std::move(transport)});
  };
  add("verbs", transports.verbs);
  add("shm", transports.shm);
}

Networks::~Networks() {
  stop();
}

Status Networks::listen(const std::string& address, const Clock& clock) {
  std::string where = address;
  for (std::size_t i = 0; i < networks_.size(); ++i) {
    Network& network = networks_[i];
    auto listener = network.transport->listen(where);
    if (!listener && i > 0) {
      log_warn(EventName("transport_left_out"), "not listening on {}: {}",
               network.transport->describe(), to_string(listener.error()));
      networks_.resize(i);
      break;
    }
    if (!listener) return std::unexpected(listener.error());
    network.listener = std::move(*listener);
    network.acceptor = std::make_unique<Acceptor>(*network.listener, clock);
    network.acceptor->start();
    where = fmt::format("{}:{}", address.substr(0, address.rfind(':')), network.listener->port());
  }
  return {};
}

// Each its own: words that an adapter and a processor both swap are not atomic.
Status Networks::create_hints(Store& store) {
  for (Network& network : networks_) {
    RKV_ASSIGN_OR_RETURN(network.hints,
                         network.transport->allocate(kHintWords * sizeof(std::uint64_t),
                                                     rdma::Access::kRemoteReadAtomic));
    store.add_hint_words(reinterpret_cast<const std::uint64_t*>(network.hints->bytes().data()));
  }
  return {};
}

Status Networks::create_cells(std::uint32_t each, Store& store) {
  if (each == 0) return {};
  for (Network& network : networks_) {
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
    network.cells_number = store.add_cells(*network.cells);
  }
  return {};
}

Result<std::unique_ptr<rdma::Region>> Networks::allocate(std::size_t bytes) {
  // The last is shared memory where there is any: it can share what it has allocated.
  RKV_ASSIGN_OR_RETURN(auto region,
                       networks_.back().transport->allocate(bytes, rdma::Access::kRemoteRead));
  if (networks_.size() == 1) return region;
  return networks_.front().transport->adopt(std::move(region), rdma::Access::kRemoteRead);
}

Status Networks::create_workers(std::uint32_t threads, const MakeWorker& make) {
  for (Network& network : networks_) {
    for (std::uint32_t i = 0; i < threads; ++i) {
      RKV_ASSIGN_OR_RETURN(auto worker, make(*network.transport, network.cells_number));
      network.workers.push_back(std::move(worker));
    }
  }
  return {};
}

void Networks::admit(const Acceptor::Admission& admission) {
  std::vector<Worker*> everybody;
  for (const Network& network : networks_) {
    for (const auto& worker : network.workers) {
      worker->start();
      everybody.push_back(worker.get());
    }
  }
  const auto places = std::make_shared<Places>(admission.max_clients);
  for (Network& network : networks_) {
    Acceptor::Admission own = admission;
    own.all_workers = everybody;
    own.places = places;
    if (network.hints != nullptr) {
      own.hints = {.address = network.hints->address(),
                   .remote_key = network.hints->remote_key(),
                   .length = kHintWords * sizeof(std::uint64_t)};
    }
    if (network.cells != nullptr) {
      own.counters = {.address = network.cell_memory->address(),
                      .remote_key = network.cell_memory->remote_key(),
                      .length = network.cells->count() * std::uint32_t{sizeof(std::uint64_t)}};
    }
    for (const auto& worker : network.workers)
      own.workers.push_back(worker.get());
    network.acceptor->admit(std::move(own));
  }
}

void Networks::stop() {
  for (Network& network : networks_) {
    if (network.acceptor != nullptr) network.acceptor->stop();
  }
  for (Network& network : networks_) {  // all at once: each may wait for the disk
    for (const auto& worker : network.workers)
      worker->begin_stop();
  }
  for (Network& network : networks_) {
    for (const auto& worker : network.workers)
      worker->stop();
  }
}

void Networks::marks_changed() {
  for (const Network& network : networks_) {
    for (const auto& worker : network.workers)
      worker->marks_changed();
  }
}

std::size_t Networks::message_bytes() const {
  std::size_t bytes = 0;
  for (const Network& network : networks_) {
    for (const auto& worker : network.workers)
      bytes += worker->room().bytes();
  }
  return bytes;
}

std::vector<WorkerFacts> Networks::workers() const {
  std::vector<WorkerFacts> facts;
  for (const Network& network : networks_) {
    for (std::uint32_t i = 0; i < network.workers.size(); ++i) {
      const Worker& worker = *network.workers[i];
      facts.push_back({.transport = network.name,
                       .number = i,
                       .counters = &worker.counters(),
                       .timings = &worker.timings(),
                       .room = &worker.room(),
                       .clients = worker.clients(),
                       .told_reads = worker.told_reads()});
    }
  }
  return facts;
}

RefusalCounts Networks::refusals() const {
  RefusalCounts counts{};
  for (const Network& network : networks_) {
    for (std::size_t i = 0; network.acceptor != nullptr && i < counts.size(); ++i)
      counts[i] += network.acceptor->refused(static_cast<RefusalReason>(i));
  }
  return counts;
}

std::uint16_t Networks::port() const {
  if (networks_.empty() || networks_.front().listener == nullptr) return 0;
  return networks_.front().listener->port();
}

std::string Networks::describe() const {
  std::string text;
  for (const Network& network : networks_)
    text += (text.empty() ? "" : " and ") + network.transport->describe();
  return text;
}

}  // namespace rkv::server
