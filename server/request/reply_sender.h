// ReplySender: encodes the replies of a worker into send buffers and posts them, one post per
// client and turn. It decides which client may use which send buffer.
//
// Invariants (numbered with the worker's, worker.h):
//  SERVE-4  A client's replies and READs in flight never exceed its connection's limit, so no post
//      is cut short.
//  SERVE-8  No client keeps send buffers from other clients. A client's replies occupy at most
//      kSmallRepliesPerClient small buffers, which the pool holds for each client. They occupy at
//      most kLargeRepliesPerClient large buffers: a client gets a further large buffer only while
//      more of them are free than it holds. If a client waits for a large buffer, the client that
//      has taken no large reply for the longest time is disconnected, if that is kLongestReply or
//      more. A client that waits for its own buffers to return blocks no other client. Replies that
//      were held for a mark or a page and requests that wait for large buffers take turns at them.
//
// In steady state it does not allocate.
//
// Thread safety: one owner, the worker.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/wire.h"
#include "rdma/transport/transport.h"
#include "server/request/message_buffers.h"
#include "server/request/request_handler.h"
#include "server/request/send_pool.h"
#include "server/request/session_table.h"
#include "server/request/timings.h"
#include "server/request/worker_counters.h"

namespace rkv::server {

// A client that takes no large reply for this long may be disconnected (SERVE-8).
inline constexpr Nanos kLongestReply = 2 * kNanosPerSecond;

// The requests that a reply answers.
struct Answered {
  // The writes among them, and the durability that they waited for.
  Durability level = Durability::kMemory;
  std::uint32_t writes = 1;
  std::span<const RequestHandler::Outcome> packed = {};  // of a pack
};

class ReplySender {
 public:
  // References must outlive the sender. `handler` supplies what every reply carries.
  struct Parts {
    const Clock& clock;
    const RequestHandler& handler;
    SessionTable& sessions;
    WorkerCounters& counters;
    Timings& timings;
  };
  // `clients`: how many may have replies in one turn.
  ReplySender(const Parts& parts, SendPool pool, std::uint32_t clients);
  ReplySender(const ReplySender&) = delete;
  ReplySender& operator=(const ReplySender&) = delete;

  // Whether a small reply to this client can be sent now, and there is room beside it for the
  // answers to the client's requests in long buffers (LONG-4).
  bool has_room(const Session& session) const {
    return session.in_flight + session.replies.size() + session.longs < kRepliesInFlight &&
           session.small_held + session.longs < kSmallRepliesPerClient && pool_.small_free() != 0;
  }
  // Whether a large reply to this client can be sent now. The client that has waited longest gets
  // the next large buffer. A client that already holds some makes no other client wait (SERVE-8).
  bool has_large(const Session& session);
  // Whether a reply whose value has this length can be sent now. REQUIRES: has_room().
  bool has_room_for_value(const Session& session, std::size_t bytes) {
    return kResponseHeaderBytes + bytes <= SendPool::kSmallBytes || has_large(session);
  }
  // Whether has_large() would be true. Claims nothing for the client.
  bool is_large_free(const Session& session) const {
    return session.large_held < kLargeRepliesPerClient && !large_wanted_ &&
           pool_.large_free() > session.large_held;
  }
  std::size_t large_free() const { return pool_.large_free(); }
  // Call it once per turn: from then on replies that already wait come first.
  void serve_waiting_first() { large_wanted_ = false; }

  // Encodes the reply, queues it for this turn's post and counts it. `taken`: when the request was
  // taken. Returns false if no large buffer is free; then nothing has happened. Always true for a
  // small reply, and right after has_large(). REQUIRES: has_room().
  bool send(Session& session, const Response& response, Nanos taken, const Answered& answered = {});
  // Posts the queued replies. Drops a client whose connection takes fewer.
  void post();
  // Forgets the session's queued replies. REQUIRES: session.ending.
  void discard(Session& session);
  void on_sent(const rdma::Completion& completion, Session& session);

  // From now on every reply is signaled, because the worker stops: the last replies must have
  // arrived before their connection ends.
  void signal_all() { signals_all_ = true; }
  // Whether a signaled reply of a connected client has not arrived yet.
  bool has_unsent() const;

 private:
  void post(Session& session);
  void drop_slow_taker();
  void give_back(Session& session, std::uint32_t buffer);
  void count(const Response& response, Nanos taken, const Answered& answered);

  const Parts parts_;
  SendPool pool_;
  std::vector<Session*> dirty_;  // sessions with queued replies
  bool large_wanted_ = false;    // an older reply of this turn or the last needs a large buffer
  bool signals_all_ = false;
};

}  // namespace rkv::server
