// Session: a worker's state for one client. A plain struct: SessionTable makes and ends it. The
// worker and its parts in this folder change it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/auth/role.h"
#include "common/clock.h"
#include "rdma/transport/transport.h"
#include "server/clients/admission/places.h"
#include "server/clients/admission/users.h"
#include "server/log/write_tag.h"

namespace rkv::server {

class Outcomes;

// Requests that a client may have unanswered.
inline constexpr std::uint16_t kMaxCredits = 4;

struct Session {
  std::unique_ptr<rdma::Connection> connection;
  std::uint64_t id = 0;
  std::uint32_t credits = 0;  // requests the client may have unanswered
  std::string name;           // the client's own name for itself: for log lines, not trusted
  std::shared_ptr<Place> place;
  Role role = Role::kAdmin;          // without users, every client may do everything
  std::shared_ptr<const User> user;  // nullptr: the server has no users
  // The outcomes of the client's writes. nullptr: the client is a reader, the table was given away,
  // or the server keeps none.
  std::shared_ptr<Outcomes> outcomes;
  std::uint64_t user_digest = 0;  // for the tags of a replicated log
  // Returns the tag of the client's writes in a replicated log.
  WriteTag tag() const { return {.session = outcomes == nullptr ? 0 : id, .user = user_digest}; }

  std::uint32_t unanswered = 0;     // received, reply not posted; more than credits: disconnected
  std::uint32_t in_flight = 0;      // replies posted whose completion is not known yet
  std::uint32_t unsignaled = 0;     // of those, posted after the last signaled one
  std::uint32_t fetches = 0;        // large values being READ from its memory
  std::uint32_t longs = 0;          // its requests in long buffers, for whose answers room is kept
  std::uint32_t small_held = 0;     // small send buffers that its replies occupy
  std::uint32_t large_held = 0;     // likewise large ones
  Nanos large_since = 0;            // since when it has held large buffers without returning one
  std::uint64_t pack_turn = 0;      // the worker's last turn that executed a pack of the client
  std::uint32_t packs_waiting = 0;  // packs that wait for their turn: a newer one goes behind them
  bool ending = false;              // aborted or disconnected: no request is answered any more
  // Replies of this turn that are not posted yet. Never grows past its first capacity.
  std::vector<rdma::Operation> replies;

  // The first digits of the id, for log lines. Knowing the full id would let a peer end the session
  // by naming it as its last one (WIRE.md).
  std::string shown_id() const { return fmt::format("{:06x}", id >> 40); }
};

}  // namespace rkv::server
