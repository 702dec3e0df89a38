// Session: a client's state for one server: the connection, the map, the caches of places, and the
// counts. Connector, Requester, Getter and CounterOps share it.
//
// Thread safety: none.
#pragma once

#include <memory>
#include <string>

#include "client/engine/acknowledged.h"
#include "client/engine/read_reports.h"
#include "client/get/group_cache.h"
#include "client/get/remote_map.h"
#include "client/get/slot_cache.h"
#include "client/get/trust.h"
#include "client/link/arena.h"
#include "client/link/group_clock.h"
#include "client/link/home.h"
#include "client/link/large_buffers.h"
#include "client/link/link.h"
#include "client/link/map_loader.h"
#include "client/link/servers.h"
#include "rkv/client_stats.h"
#include "rkv/options.h"
#include "rkv/values.h"

namespace rkv::client {

struct Session {
  // `clock` must outlive the session. `home`: shared by the sessions of one client.
  Session(const ClientOptions& options, std::shared_ptr<rdma::Transport> transport,
          const Clock& clock, Arena arena, std::optional<Credentials> credentials,
          std::shared_ptr<Home> home);
  ~Session() { link.close(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Returns true if the connection is alive, as far as is known without polling it.
  bool usable() const { return link.alive() && map.ready(); }
  Durability durability_of(Version version) const { return map.marks().of(version); }
  Durability durability_of(const Response& response) const {
    return (response.flags & Response::kInCell) != 0 ? Durability::kMemory
                                                     : durability_of(response.version);
  }
  // Returns the counter in the answer to an addition. The decoder has checked its length.
  Counter counter_in(const Response& response) const;
  void learn_marks(const Response& response) {
    map.learn_marks(response.wal_mark, response.sync_mark);
  }
  // Caches the slot of a GET's answer as a hint (GET-5), so that the next GET is a READ. That also
  // serves keys that no group leads to.
  void learn_slot(KeyHash hash, const Response& response) {
    if (response.slot.fingerprint() == hash.fingerprint()) slots.put(hash, response.slot);
  }
  // Caches the place that a write's answer names.
  void learn_place(Bytes key, const Response& response);
  void forget_places();

  std::shared_ptr<rdma::Transport> transport;
  const Clock& clock;
  const std::unique_ptr<const GroupClock> group_clock;
  const ClientOptions options;  // without the secret
  Arena arena;
  LargeBuffers large;
  RemoteMap map;
  GroupCache groups;
  SlotCache slots;
  Link link;
  MapLoader loader;
  Servers servers;
  const std::shared_ptr<Home> home;
  Trust trust;  // in the present connection's server
  Acknowledged acknowledged;
  ReadReports reports;
  ClientStats stats;
  std::string refusal;  // the server's message with the last request or connection it refused
};

}  // namespace rkv::client
