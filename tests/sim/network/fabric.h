// The simulated network: hosts, the links between them, and the faults that may occur. This file
// and the files beside it implement the required behaviour of a transport.h backend; faults decide
// the behaviour that transport.h leaves unspecified.
//
//   auto fabric = std::make_shared<Fabric>(seed);
//   auto server = open_sim(fabric, "server");  // a new host, and a Transport on it
//   auto client = open_sim(fabric, "client");
//   fabric->faults().cut_in = 200;              // 1 in 200 operations loses its connection
//   fabric->crash(*server);                     // the host stops; its memory is no longer READ
//
// Rules: README.md of this directory.
// Thread safety: none; one thread, many fibers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rdma/transport/transport.h"
#include "tests/sim/network/scheduler.h"

namespace rkv::rdma::sim {

class Link;
class SimListener;
class SimQueue;
class SimRegion;

// Times in nanoseconds, drawn for each operation between 0 (or `latency_least`) and the given
// number. A field that ends in _in is a probability: 1 in that many; 0 = never. The defaults are a
// network without failures.
struct Faults {
  Nanos latency_least = 500;  // one way
  Nanos latency = 3'000;      // on top of latency_least
  std::uint64_t slow_in = 0;  // an operation that takes up to `slow` longer
  Nanos slow = 0;
  std::uint32_t pieces = 1;         // most pieces in which a READ fetches memory, in any order
  Nanos piece_spread = 0;           // all pieces within this time
  std::uint64_t retransmit_in = 0;  // a READ whose pieces are up to `retransmit` apart
  Nanos retransmit = 0;
  std::uint64_t cut_in = 0;        // an operation whose connection is lost, half of the time
                                   // before it was carried out, half of the time after
  Nanos notice = 1'000;            // until an end detects the loss of its connection
  std::uint64_t refuse_in = 0;     // a READ that the peer's adapter refuses without reason
  std::uint64_t handshake_in = 0;  // a message of connection set-up that is lost
  // The adapter of the connecting side limits a connection to these numbers; 0 = as many as
  // requested.
  std::uint32_t sends_in_flight = 0;
  std::uint32_t reads_in_flight = 16;
  Nanos refill = 0;                 // until a receive buffer given back can take a message
  std::uint64_t short_poll_in = 0;  // a poll that returns only some of the completions
  std::uint64_t early_wake_in = 0;  // a wait that returns without cause
};

// Called for each READ whose bytes have arrived, before its completion. It may change the bytes in
// ways that no real network does. Tests use it to check that they detect wrong bytes.
using Tampering = std::function<void(MutableBytes landed, std::uint64_t remote_address)>;

// A machine with an adapter.
struct Host {
  explicit Host(std::string its_name) : name(std::move(its_name)) {}
  SimRegion* find(std::uint32_t remote_key) const {
    const auto found = regions.find(remote_key);
    return found == regions.end() ? nullptr : found->second;
  }
  const SimRegion* find_local(std::uint32_t local_key) const { return find(local_key | kLocalBit); }

  static constexpr std::uint32_t kLocalBit = 0x8000'0000U;  // marks the keys of local_key()
  std::string name;
  bool alive = true;
  std::uint32_t next_key = 1;
  // Keyed by remote key, and by local key with kLocalBit.
  std::map<std::uint32_t, SimRegion*> regions;
  std::vector<SimQueue*> queues;
  std::vector<SimListener*> listeners;
};

class Fabric {
 public:
  explicit Fabric(std::uint64_t seed);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  Scheduler& scheduler() { return scheduler_; }
  Faults& faults() { return faults_; }
  Tampering& tampering() { return tampering_; }

  // Stops the host of a transport of open_sim(): it sends nothing more, its memory is not READ any
  // more, its listeners are removed. Its own fibers may run to their ends; other hosts receive
  // nothing from them.
  void crash(Transport& transport);
  // Cuts every existing connection.
  void cut_all();

  // The number of times that each event has happened. Tests check that it has.
  struct Counts {
    std::uint64_t reads = 0;
    std::uint64_t reads_in_pieces = 0;
    std::uint64_t messages = 0;
    std::uint64_t cuts = 0;
    std::uint64_t connections = 0;
    std::uint64_t full_send_queues = 0;
    std::uint64_t waits_for_receives = 0;
  };
  Counts& counts() { return counts_; }

  // ---- for the parts of the backend
  Nanos latency() {
    Nanos time = faults_.latency_least + scheduler_.up_to(faults_.latency);
    if (scheduler_.chance(faults_.slow_in)) time += scheduler_.up_to(faults_.slow);
    return time;
  }
  Nanos notice() { return 1 + scheduler_.up_to(faults_.notice); }
  void bind(std::uint16_t port, SimListener* listener) { ports_[port] = listener; }
  SimListener* listener_at(std::uint16_t port) const {
    const auto found = ports_.find(port);
    return found == ports_.end() ? nullptr : found->second;
  }
  void unbind(std::uint16_t port) { ports_.erase(port); }
  std::uint16_t free_port();
  Link& add_link(std::unique_ptr<Link> link);

 private:
  Scheduler scheduler_;
  Faults faults_;
  Tampering tampering_;
  Counts counts_;
  std::map<std::uint16_t, SimListener*> ports_;
  std::uint16_t next_port_ = 40'000;
  // Kept until the fabric's end: events refer to links.
  std::vector<std::unique_ptr<Link>> links_;
};

// Creates a host on the fabric; the transport keeps it alive.
std::unique_ptr<Transport> open_sim(std::shared_ptr<Fabric> fabric, std::string host_name);

}  // namespace rkv::rdma::sim
