// PrimaryLink: a backup's connection to the primary of its group. If the primary's log does not
// continue from the end of the backup's own, it also fetches a copy of the primary's database.
//
//   PrimaryLink link(around, {.has_ended = ..., .received = ..., .copied = ...});
//   link.step(true);                                   // in each turn of a backup
//   link.end("this replica is the primary");
//
// Received messages go to the Membership's Backup, which interprets them.
//
// Thread safety: none: only the thread of the io_context. `Outside` is called on that thread, from
// handlers, and never from within a call of this class.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/group/connection/replica_connector.h"
#include "server/group/copy/engine_copy_receiver.h"
#include "server/group/lane/lane_caller.h"
#include "server/group/replica/call_pauses.h"
#include "server/group/replica/link_surroundings.h"

namespace rkv::server {

class PrimaryLink {
 public:
  struct Outside {
    // Whether this replica has ended its part in the group.
    std::function<bool()> has_ended;
    // Messages of the primary have come, and all their entries are in the log. The primary wants
    // the versions `wanted` on this replica's disk. A HandOver wants none.
    std::function<void(const Wanted& wanted)> received;
    // `problem`: empty if a copy of the primary's database is there, else a sentence that says why
    // not.
    std::function<void(const std::string& problem)> copied;
  };
  PrimaryLink(const LinkSurroundings& around, Outside outside);
  PrimaryLink(const PrimaryLink&) = delete;
  PrimaryLink& operator=(const PrimaryLink&) = delete;

  // Leaves a primary that was replaced or is silent. Connects to the current primary, if
  // `may_connect`. Answers received messages. REQUIRES: the membership has a Backup and no Primary.
  void step(bool may_connect);
  // Ends the connection and says why in the log. Without a connection it does nothing.
  void drop(const std::string& why);
  // Ends the connection and the copy. Blocks until the disk has finished a write of the copy.
  void end(const std::string& why);
  // Like end(), but logs nothing, and blocks for some seconds at most while a lane is made or ends.
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
  std::optional<Wanted> received_;  // what delivered() will report
  bool is_connecting_ = false;
  CallPauses pauses_;
  std::uint64_t received_bytes_ = 0;  // at the last look
  Nanos connected_at_ = 0;
  Nanos copy_again_at_ = 0;             // when to repeat a copy that failed
  Nanos copy_pause_ = kNanosPerSecond;  // doubles after each failure, such as lack of space
  std::unique_ptr<EngineCopyReceiver> copy_;
};

}  // namespace rkv::server
