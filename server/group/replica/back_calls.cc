#include "server/group/replica/back_calls.h"

#include <utility>

#include "common/log.h"

namespace rkv::server {

void BackCalls::begin(std::uint64_t peer, const Replica& replica) {
  Call& begun = calls_[peer];
  begun = {.replica = replica};
  call(peer, begun);
}

void BackCalls::step() {
  const Nanos now = around_.clock.now();
  for (auto& [peer, each] : calls_)
    if (each.connector == nullptr && each.pauses.are_over(now)) call(peer, each);
}

void BackCalls::call(std::uint64_t peer, Call& call) {
  call.connector = ReplicaConnector::connect(
      around_.io, replica_address(call.replica.address), around_.secret, kLimit,
      [this, peer](const ReplicaConnector::Outcome& made) { ended(peer, made); });
}

// The new connection ends when this callback of the connector returns.
void BackCalls::ended(std::uint64_t peer, const ReplicaConnector::Outcome& made) {
  const auto at = calls_.find(peer);
  if (!made) return failed(peer, at->second, made.error().why);
  if (is_to_itself(**made, replica_port(around_.me.address)))
    return failed(peer, at->second, "that is an address of the primary itself");
  const Replica replica = std::move(at->second.replica);
  calls_.erase(at);
  if (told_.erase(replica.name) != 0) {
    log_info(EventName("backup_reachable"), "this replica reaches {} at {} again",
             field("replica", replica.name), field("address", replica_address(replica.address)));
  }
  known_(peer, true);
}

void BackCalls::failed(std::uint64_t peer, Call& call, const std::string& why) {
  call.connector.reset();
  (void)call.pauses.failed(why, around_.clock.now());
  if (++call.failures != kFailures) return;
  if (told_.size() >= kMostTold) told_.clear();
  if (told_.insert(call.replica.name).second) {
    log_warn(EventName("backup_not_reachable"),
             "{} is connected, but cannot be reached at {}, so it is not added to the replicas in "
             "sync: {}. Open this port to the other replicas",
             field("replica", call.replica.name),
             field("address", replica_address(call.replica.address)), field("why", why));
  }
  known_(peer, false);
}

}  // namespace rkv::server
