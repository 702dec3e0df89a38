// BackupLinks: the connections that other replicas have made to this one. A primary sends its log
// through them, and a copy of its database to a replica that is too far behind for the log. It
// offers each backup a lane, by which messages go faster. It also calls each backup (back_calls.h).
//
//   BackupLinks links(around, engine, {.has_ended = ..., .happened = ..., .copied = ...});
//   links.accept(std::move(connection));               // of the listener
//   links.send();                                      // what the Primary has for each of them
//   links.step();                                      // in each turn
//
// Received messages go to the Membership's Primary, which interprets them.
//
// Thread safety: none: only the thread of the io_context. `Outside` is called on that thread, from
// handlers, and never from within a call of this class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/log.h"
#include "server/group/copy/engine_copy_sender.h"
#include "server/group/lane/lane_listener.h"
#include "server/group/replica/back_calls.h"
#include "server/group/replica/lane_pauses.h"
#include "server/group/replica/link_surroundings.h"
#include "server/group/replica/silent_peers.h"
#include "server/persistence/storage_engine.h"

namespace rkv::server {

class BackupLinks {
 public:
  // A backup that answers none of ten heartbeats a second for this long is gone.
  static constexpr Nanos kSilence = 5 * kNanosPerSecond;

  enum class Event : std::uint8_t {
    kAnswer,  // a backup has answered, and nothing else has changed
    // Anything else: a backup connected, a call to it ended, or a connection has room again.
    kOther,
  };
  struct Outside {
    // Whether this replica has ended its part in the group.
    std::function<bool()> has_ended;
    std::function<void(Event event)> happened;
    // The copy for `replica` is over. `problem`: empty if it was sent, else a sentence that says
    // why not.
    std::function<void(const std::string& replica, const std::string& problem)> copied;
  };
  BackupLinks(const LinkSurroundings& around, StorageEngine& engine, Outside outside);
  BackupLinks(const BackupLinks&) = delete;
  BackupLinks& operator=(const BackupLinks&) = delete;

  void accept(std::unique_ptr<ReplicaConnection> connection);
  // Sends each backup the Primary's messages for it, as far as its connection takes them. REQUIRES:
  // the membership has a Primary.
  void send();
  // Does nothing if the backup of this number is gone.
  void tell(std::uint64_t number, const HandOver& message);
  // Ends connections whose other end has not said in time which replica it is. Offers lanes, and
  // repeats calls.
  void step();
  // Ends all connections and copies without logging it. Blocks until a checkpoint or a read of a
  // copy is over. Where lanes are made or end, it blocks for some seconds at most.
  void close();

  std::size_t count() const { return peers_.size(); }
  // nullptr: no copy has been sent yet.
  const EngineCopySender* copies() const { return copies_.get(); }
  // Whether the replica of this name gets a copy or waits for one. Also true for half a minute
  // after its copy, until it connects again.
  bool is_copying_to(const std::string& name) const;
  // Whether replicas need the log's end: a copy is under way or was less than half a minute ago, or
  // a backup's connection ended less than 3 s ago.
  bool log_is_awaited() const;
  // Whether the replica of this name has got a copy and has not connected again.
  bool awaits_start(const std::string& name) const { return copied_at_.contains(name); }

 private:
  struct Peer {
    std::shared_ptr<ReplicaConnection> connection;
    std::string name{};  // as it has said
    bool has_said_hello = false;
    bool is_told_of_copy = false;
    bool awaits_room = false;  // in the connection's queue
    Nanos lane_since = 0;      // when it got one; 0: it has none, or its end is noted
  };

  Nanos now() const { return around_.clock.now(); }
  void receive(std::uint64_t number, const std::vector<std::byte>& bytes);
  void delivered();
  bool greet(std::uint64_t number, Peer& peer, const Hello& hello);
  void sent(std::uint64_t number);
  void offer_lanes();
  void use_lane(std::uint64_t number, std::unique_ptr<ReplicaLane> lane);
  void leave_lane(std::uint64_t number);
  void lane_ended(std::uint64_t number, const std::string& why);
  void note_lane_end(Peer& peer);
  void send_copy(std::uint64_t number, const CopyRequest& request);
  void called(std::uint64_t number, bool is_reachable);
  void ended(std::uint64_t number, const std::string& why);
  void drop(std::uint64_t number, const std::string& why, LogLevel level = LogLevel::kInfo);

  const LinkSurroundings around_;
  StorageEngine& engine_;
  const Outside outside_;
  std::map<std::uint64_t, Peer> peers_;
  std::uint64_t next_peer_ = 1;
  std::optional<Event> received_;  // what delivered() will report
  SilentPeers silent_;
  BackCalls calls_;
  std::unique_ptr<EngineCopySender> copies_;
  std::map<std::string, Nanos> copied_at_;  // by name, until it comes back
  Nanos log_kept_until_ = 0;
  std::optional<LaneListener> lanes_;  // nothing: all goes over TCP
  LanePauses lane_pauses_;
};

}  // namespace rkv::server
