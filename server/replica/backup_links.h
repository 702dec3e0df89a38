// BackupLinks: the connections that other replicas have made to this one. A primary sends its log
// through them, and copies of its database to those that its log does not reach. To each backup it
// offers a lane, by which their messages go faster.
//
//   BackupLinks links(around, engine, {.has_ended = ..., .happened = ..., .copied = ...});
//   links.accept(std::move(connection));               // of the listener
//   links.send();                                      // what the Primary has for each of them
//   links.step();                                      // in each turn
//
// What is received goes to the Membership's Primary, which decides what it means.
//
// Thread safety: none: the thread of the io_context, which calls `Outside` as well; it does so from
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

#include "server/persistence/storage_engine.h"
#include "server/replica/lane_pauses.h"
#include "server/replica/link_surroundings.h"
#include "server/replica/silent_peers.h"
#include "server/replication/copy/engine_copy_sender.h"
#include "server/replication/lane/lane_listener.h"

namespace rkv::server {

class BackupLinks {
 public:
  // A backup that answers nothing for so long, of ten heartbeats a second, is gone.
  static constexpr Nanos kSilence = 5 * kNanosPerSecond;

  enum class Event : std::uint8_t {
    kAnswer,  // a backup has answered, and nothing else has changed
    kOther,   // anything else: a backup has come, or a connection has room again
  };
  struct Outside {
    // Whether this replica has ended its part in the group, and serves nobody any more.
    std::function<bool()> has_ended;
    std::function<void(Event event)> happened;
    // The copy for `replica` is over. Empty: it was sent. Else a sentence: why not.
    std::function<void(const std::string& replica, const std::string& problem)> copied;
  };
  BackupLinks(const LinkSurroundings& around, StorageEngine& engine, Outside outside);
  BackupLinks(const BackupLinks&) = delete;
  BackupLinks& operator=(const BackupLinks&) = delete;

  void accept(std::unique_ptr<ReplicaConnection> connection);
  // Sends what the Primary has for each backup, as far as a connection takes it. REQUIRES: the
  // membership has a Primary.
  void send();
  // A backup of this number that is gone hears nothing.
  void tell(std::uint64_t number, const HandOver& message);
  // Ends the connections of those that have not said in time which replica they are. Offers lanes.
  void step();
  // Ends all connections and copies without a word. Blocks until a checkpoint, or a read of a copy,
  // is over, and for some seconds at most where lanes are made or end.
  void close();

  std::size_t count() const { return peers_.size(); }
  // nullptr: no copy has been sent yet.
  const EngineCopySender* copies() const { return copies_.get(); }
  // Whether this replica gets a copy, waits for one, or has got one less than half a minute ago and
  // not come back yet.
  bool is_copying_to(const std::string& name) const;
  // Whether a copy is under way, or was less than half a minute ago: what is behind it in the log
  // must still be there when it has arrived.
  bool log_is_awaited() const;
  // Whether this replica has got a copy and has not connected again.
  bool awaits_start(const std::string& name) const { return copied_at_.contains(name); }

 private:
  struct Peer {
    std::shared_ptr<ReplicaConnection> connection;
    std::string name{};  // as it has said
    bool has_said_hello = false;
    bool is_told_of_copy = false;
    bool awaits_room = false;  // in the connection's queue
    Nanos lane_since = 0;      // when it got one; 0: it has none
  };

  Nanos now() const { return around_.clock.now(); }
  void receive(std::uint64_t number, const std::vector<std::byte>& bytes);
  void delivered();
  bool greet(std::uint64_t number, Peer& peer, const Hello& hello);
  void sent(std::uint64_t number);
  void offer_lanes();
  void use_lane(std::uint64_t number, std::unique_ptr<ReplicaLane> lane);
  void send_copy(std::uint64_t number, const CopyRequest& request);
  void drop(std::uint64_t number, const std::string& why);

  const LinkSurroundings around_;
  StorageEngine& engine_;
  const Outside outside_;
  std::map<std::uint64_t, Peer> peers_;
  std::uint64_t next_peer_ = 1;
  std::optional<Event> received_;  // what delivered() will say
  SilentPeers silent_;
  std::unique_ptr<EngineCopySender> copies_;
  std::map<std::string, Nanos> copied_at_;  // by name, until it comes back
  Nanos log_kept_until_ = 0;
  std::optional<LaneListener> lanes_;  // nothing: all goes over TCP
  LanePauses lane_pauses_;
};

}  // namespace rkv::server
