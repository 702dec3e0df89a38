// PendingReplies: replies held back until their promise is fulfilled. They await a mark, the sweep
// of counters before a flush or a backup, or the work of another thread (awaited.h).
//
// Invariants (numbered with the worker's, worker.h):
//  SERVE-6  A write that awaits a mark has been executed, exactly once, and is never repeated. It
//      is answered when the mark has passed it, or with "may have happened" if the disk fails
//      first. It stays unanswered if its client disconnects. When the worker is stopped, the
//      connection ends only after the answer, or after kAnswersMs, or at once if a replica has
//      ended its part in the group.
//
//  SERVE-10  In a replicated log no reply shows data above the replicated mark.
//
// Replies of single writes that await a mark do not allocate. Replies of packs do, and so do those
// of GETs that await the replicated mark with a value longer than a number. All other replies
// allocate, and most take another thread's lock.
//
// Thread safety: one owner, the worker.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "server/background/counter_flusher.h"
#include "server/log/commit_log.h"
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

  // Whether the answer must be held back.
  static bool is_for(const RequestHandler::Answer& answer) {
    return std::holds_alternative<RequestHandler::AwaitMark>(answer.next) ||
           std::holds_alternative<RequestHandler::AwaitSweep>(answer.next) ||
           std::holds_alternative<std::unique_ptr<Awaited>>(answer.next);
  }
  // Holds the reply of a request that was taken at `taken`. Copies all that must outlive this call.
  // REQUIRES: is_for(answer).
  void add(Session& session, RequestHandler::Answer&& answer, Nanos taken);
  // Asks for the marks that replies held since the last call await.
  void ask_for_marks();
  // Sends the replies whose wait is over, if there is room for them.
  void answer();
  void drop(const Session& session);

  bool empty() const { return held_.empty(); }
  // Whether the last answer() found no large buffer for a reply whose wait is over.
  bool some_for_buffers() const { return some_for_buffers_; }
  // Whether a reply is held that an orderly stop waits for.
  bool delays_stop() const;

 private:
  struct Held {
    Session* session = nullptr;
    Response response{};  // while it awaits a mark, of its value only the size is valid
    // The work or mark that the reply waits for. Reply: `response` is sent.
    std::variant<RequestHandler::Reply, RequestHandler::AwaitMark, RequestHandler::AwaitSweep,
                 std::unique_ptr<Awaited>>
        awaited{};
    Nanos taken = 0;
    std::array<std::byte, kCounterBytes> number{};  // the value, if it is not longer
    std::vector<std::byte> results{};               // else the value, such as a pack's results
    std::vector<RequestHandler::Outcome> packed{};  // of a pack
    std::string name{};                             // the request's value, during a sweep
  };
  void await(Held& held, RequestHandler::Answer&& answer);
  void await_mark(Held& held, const RequestHandler::Answer& answer);
  void continue_after_sweep(Held& held);
  bool is_over(const Held& held, bool disk_failed) const;
  Response answer_to(const Held& held) const;
  Response answer_at_mark(const Held& held, const RequestHandler::AwaitMark& mark) const;
  static Answered answered(const Held& held);

  const Parts parts_;
  std::vector<Held> held_;
  bool some_for_buffers_ = false;
  std::uint64_t wal_wanted_ = 0;  // highest sequence awaited since the last ask_for_marks()
  std::uint64_t sync_wanted_ = 0;
};

}  // namespace rkv::server
