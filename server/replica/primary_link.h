// PrimaryLink: a backup's connection to the primary of its group, and the copy of the primary's
// database that it fetches where the primary's log does not lead to where its own ends.
//
//   PrimaryLink link(around, {.has_ended = ..., .received = ..., .copied = ...});
//   link.step(true);                                   // in each turn of a backup
//   link.end("this replica is the primary");
//
// What is received goes to the Membership's Backup, which decides what it means.
//
// Thread safety: none: the thread of the io_context, which calls `Outside` as well; it does so from
// handlers, and never from within a call of this class.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/replica/call_pauses.h"
#include "server/replica/link_surroundings.h"
#include "server/replication/connection/replica_connector.h"
#include "server/replication/copy/engine_copy_receiver.h"
#include "server/replication/lane/lane_caller.h"

namespace rkv::server {

class PrimaryLink {
 public:
  struct Outside {
    // Whether this replica has ended its part in the group, and obeys nobody any more.
    std::function<bool()> has_ended;
    // The primary has sent something, and all that has come so far is in the log: it wants these
    // versions on this replica's disk. Nothing is wanted by the message of a hand-over.
    std::function<void(const Wanted& wanted)> received;
    // Empty: a copy of the primary's database is there. Else a sentence: why not.
    std::function<void(const std::string& problem)> copied;
  };
  PrimaryLink(const LinkSurroundings& around, Outside outside);
  PrimaryLink(const PrimaryLink&) = delete;
  PrimaryLink& operator=(const PrimaryLink&) = delete;

  // Leaves a primary that is replaced or silent; connects to the one there is, if this replica may;
  // answers what was received. REQUIRES: the membership has a Backup and no Primary.
  void step(bool may_connect);
  // Ends the connection and says why in the log. Without a connection it does nothing.
  void drop(const std::string& why);
  // Ends the connection and the copy. Blocks until the disk has finished a write of the copy.
  void end(const std::string& why);
  // As end(), without a word; and blocks for some seconds at most while a lane is made or ends.
  void close();

  bool is_connected() const { return connection_ != nullptr; }
  // The copy under way; nullptr: none.
  const EngineCopyReceiver* copy() const { return copy_.get(); }

 private:
  Nanos now() const { return around_.clock.now(); }
  void answer(Backup& backup);
  void connect(const Member& primary);
  void not_connected(const Member& primary, const std::string& why);
  void begin(std::unique_ptr<ReplicaConnection> connection, const Member& primary);
  void receive(const std::vector<std::byte>& bytes);
  void delivered();
  void receive_copy();
  void make_lane(const LaneOffer& offer);
  void forget_connection();

  const LinkSurroundings around_;
  const Outside outside_;
  std::unique_ptr<ReplicaConnection> connection_;
  std::string name_;                 // of the primary at the other end
  std::string host_;                 // likewise
  std::optional<LaneCaller> lanes_;  // nothing: all goes over TCP
  std::unique_ptr<ReplicaConnector> connector_;
  std::optional<Wanted> received_;  // what delivered() will say
  bool is_connecting_ = false;
  CallPauses pauses_;
  std::uint64_t received_bytes_ = 0;  // as far as it was looked at
  Nanos connected_at_ = 0;
  Nanos copy_again_at_ = 0;             // a copy that failed
  Nanos copy_pause_ = kNanosPerSecond;  // twice as long after each, as for lack of space
  std::unique_ptr<EngineCopyReceiver> copy_;
};

}  // namespace rkv::server
