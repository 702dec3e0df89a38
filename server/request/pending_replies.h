// PendingReplies: replies held back until what they promise has happened: a mark, a
// backup, a page of a scan, a round of the replicator, or the sweep of counters before a flush or a
// backup.
//
// Invariants (numbered with the worker's, worker.h):
//  SERVE-6  A write that awaits a mark has been executed, exactly once, and is never repeated. It
//      is answered when the mark has passed it, or with "may have happened" if the disk fails
//      first. It stays unanswered if its client disconnects. When the worker is stopped, the
//      connection ends only after the answer, or after kAnswersMs, or at once if a replica has
//      ended its part in the group.
//
//  SERVE-10  In a replicated log no reply shows what is above the replicated mark.
//
// Replies of single writes that await a mark do not allocate. Those of packs do, and those of GETs
// that await the replicated mark with more than a number. The others take another thread's lock and
// allocate.
//
// Thread safety: one owner, the worker.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/background/counter_flusher.h"
#include "server/persistence/commit_log.h"
#include "server/request/reply_sender.h"
#include "server/request/request_handler.h"

namespace rkv::server {

class PendingReplies {
 public:
  // References must outlive this object. `make_durable` asks the applier to advance a mark; at most
  // two calls per turn and level.
  struct Parts {
    RequestHandler& handler;
    ReplySender& replies;
    const CommitLog& log;
    CounterFlusher* counter_flusher;  // nullptr: no counter is one-sided
    std::function<void(Durability level, std::uint64_t sequence)> make_durable;
  };
  // `capacity`: replies held at a time.
  PendingReplies(Parts parts, std::size_t capacity);
  PendingReplies(const PendingReplies&) = delete;
  PendingReplies& operator=(const PendingReplies&) = delete;

  // Holds the reply of a request that was taken at `taken`. Copies what outlives this call.
  // REQUIRES: the answer awaits something.
  void add(Session& session, const RequestHandler::Answer& answer, Nanos taken);
  // Asks for the marks that replies held since the last call await.
  void ask_for_marks();
  // Sends the replies whose wait is over, if there is room for them.
  void answer();
  void drop(const Session& session);

  bool empty() const { return held_.empty(); }
  // Whether the last answer() found no large buffer for a reply whose wait is over.
  bool some_for_buffers() const { return some_for_buffers_; }
  // Whether a reply is held that an orderly stop waits for. It does not wait for backups: one may
  // take as long as the disk needs. Nor for what a group may be unable to do: rounds, changes of
  // itself.
  bool delays_stop() const;

 private:
  struct Held {
    Session* session = nullptr;
    Response response{};  // its value, if it awaits a mark, lies in `number` or `results`
    std::optional<RequestHandler::Awaited> awaited{};  // nullopt: `response` is the reply
    Nanos taken = 0;
    std::array<std::byte, kCounterBytes> number{};
    std::vector<std::byte> results{};               // of a pack
    std::vector<RequestHandler::Outcome> packed{};  // likewise
    std::string name{};                             // the request's value, during a sweep
  };
  void await(Held& held, const RequestHandler::Answer& answer);
  void continue_after_sweep(Held& held, const RequestHandler::AwaitSweep& sweep);
  bool is_over(const Held& held, bool disk_failed) const;
  Response answer_to(Held& held) const;
  static Answered answered(const Held& held);

  const Parts parts_;
  std::vector<Held> held_;
  bool some_for_buffers_ = false;
  std::uint64_t wal_wanted_ = 0;  // highest sequence awaited since the last ask_for_marks()
  std::uint64_t sync_wanted_ = 0;
};

}  // namespace rkv::server
