// BackCalls: whether the backups of a primary can be called at their own ports for replicas. One
// that cannot, such as behind a firewall, works as a backup, because backups call. As the primary
// it would hear nobody, leave the others out and go on alone.
//
//   BackCalls calls(around, [&](std::uint64_t peer, bool is_reachable) { ... });
//   calls.begin(peer, hello.replica);                  // of a backup that has connected
//   calls.step();                                      // in each turn
//   calls.forget(peer);                                // its connection has ended
//
// A call ends with the handshake, which proves that the other end knows the group's secret. The
// success of a call holds for as long as the backup's connection. A call that fails is repeated.
//
// Thread safety: none: only the thread of the io_context. `known` is called on that thread, from
// handlers, and never from within a call of this class.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "server/group/connection/replica_connector.h"
#include "server/group/replica/call_pauses.h"
#include "server/group/replica/link_surroundings.h"

namespace rkv::server {

class BackCalls {
 public:
  // Time limit of a call: the same as the other end's for a handshake. Emulated machines need more
  // than a second.
  static constexpr std::chrono::milliseconds kLimit{2000};
  // This many failed calls in a row are not an accident of a busy machine.
  static constexpr std::size_t kFailures = 2;
  // Names of replicas come from peers.
  static constexpr std::size_t kMostTold = 64;

  using Known = std::function<void(std::uint64_t peer, bool is_reachable)>;
  BackCalls(const LinkSurroundings& around, Known known)
      : around_(around), known_(std::move(known)) {}
  BackCalls(const BackCalls&) = delete;
  BackCalls& operator=(const BackCalls&) = delete;

  // `peer` is a number of the caller.
  void begin(std::uint64_t peer, const Replica& replica);
  // After this, `known` is not called for this peer any more.
  void forget(std::uint64_t peer) { calls_.erase(peer); }
  // Repeats calls that have failed.
  void step();
  void close() { calls_.clear(); }

 private:
  struct Call {  // until it has succeeded
    Replica replica;
    std::unique_ptr<ReplicaConnector> connector{};  // nullptr: it has failed, and is repeated
    CallPauses pauses{};
    std::size_t failures = 0;
  };

  void call(std::uint64_t peer, Call& call);
  void ended(std::uint64_t peer, const ReplicaConnector::Outcome& made);
  void failed(std::uint64_t peer, Call& call, const std::string& why);

  const LinkSurroundings around_;
  const Known known_;
  std::map<std::uint64_t, Call> calls_;
  std::set<std::string> told_;  // names of replicas that the log calls unreachable
};

}  // namespace rkv::server
