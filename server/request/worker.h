// Worker: one thread that polls one queue and answers the requests of the clients bound to it.
//
// Invariants:
//  SERVE-1  Every received buffer is released exactly once: when its request has been answered or
//      dropped, at the latest when its client is disconnected. The buffer of a message that
//      announces a long request is released as soon as the READ of that request is posted.
//  SERVE-2  The shared receive queue holds clients x credits buffers, one per client for a message
//      of which only a part has come (message_buffers.cc), and some to spare. It never runs dry
//      while clients keep to their credits. A client that exceeds its credits is
//      disconnected in the turn that sees it. Over verbs all connections share the buffers, so this
//      client may use up all of them before that turn. The devices of the other clients then
//      retransmit until the turn has released buffers. Over shared memory each connection has its
//      own ring.
//  SERVE-3  A request is executed only if a small send buffer is free and its reply fits into the
//      client's limit of replies in flight. Otherwise the request waits in its receive buffer.
//      GETs, statistics and outcomes may find no large buffer after they were executed. They are
//      executed again later, which is safe because they change nothing. A long request also needs a
//      buffer to be READ into. From then on it waits for no room (LONG-4). A pack is executed once,
//      and only if all of its results have room. A turn executes at most one pack of a client.
//      Waiting packs are served oldest first. For the rest of the turn, requests already waiting go
//      first.
//  SERVE-5  A flush or a durable write is answered when its mark has reached it. The worker sets
//      waiting_ before it reads the marks; the applier (in a group: the replicator, for the
//      group's marks) advances a mark before it clears waiting_.
//      Both are read-modify-writes on waiting_, so one of the two sees the other. The same holds
//      for the work of each Awaited (awaited.h), and for the sweep that starts a flush or a backup:
//      each is done before waiting_ is cleared.
//      Likewise a load is done before waiting_ is cleared (SERVE-7). A large value that has arrived
//      and waits for the queue to the disk is in it, too: the applier frees the queue's space
//      before it clears waiting_.
//  SERVE-11  After leave() no request is begun. Each is refused with a code that says so, also
//      during a stop, until its connection ends.
// Further SERVE invariants: SERVE-4 and SERVE-8 (reply_sender.h), SERVE-6 and SERVE-10
// (pending_replies.h), SERVE-7 (waiting_requests.h) and SERVE-9 (stats_ration.h).
//
// In steady state a turn does not allocate, does not log and takes no lock except the store's. This
// holds for PUTs, DELETEs, GETs and counters of records in memory, with values up to 128 KiB.
// A client's first pack in a lane allocates once (Outcomes). Records on disk, scans, flushes and
// backups go to another thread: they take its lock and allocate. The log's copy of a longer value
// allocates too. A time to live is noted under one lock and allocates.
//
// Thread safety:
//  - acceptors: queue (to accept on), sessions (session_table.h)
//  - any thread: wake_for_answers, leave, is_quiet, counters, timings, reported_reads
//  - owner: start, begin_stop, stop
//  - worker's thread: poll_once
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "rdma/transport/transport.h"
#include "server/background/disk_fetcher.h"
#include "server/request/admin_requests.h"
#include "server/request/large_put_receiver.h"
#include "server/request/long_request_reader.h"
#include "server/request/message_buffers.h"
#include "server/request/outcome_archive.h"
#include "server/request/pending_replies.h"
#include "server/request/reply_sender.h"
#include "server/request/request_handler.h"
#include "server/request/session_table.h"
#include "server/request/stats_ration.h"
#include "server/request/timings.h"
#include "server/request/waiting_requests.h"
#include "server/request/worker_counters.h"

namespace rkv::server {

struct WorkerOptions {
  std::uint32_t clients = 64;
  rdma::PollMode poll = rdma::PollMode::kAdaptive;
  std::optional<unsigned> cpu{};  // the CPU to pin the thread to
};

class Worker {
 public:
  // References must outlive the worker. `clock`: in a group a RawClock. The group line has its
  // time, too, and clients compare it with the time in answers. `durability` applies to writes that
  // do not specify one. `make_durable` asks the applier to advance a mark; at most one call per
  // turn and level.
  struct Parts {
    rdma::Transport& transport;
    Store& store;
    const CommitLog& log;
    const Clock& clock;
    std::uint32_t boot;
    std::function<std::string()> stats;
    std::function<void(Durability level, std::uint64_t sequence)> make_durable;
    // How SessionTable::end_session() blocks. Empty: it waits on a condition variable. A simulation
    // without threads supplies its own wait.
    SessionTable::WaitUntil wait_until{};
    Durability durability = Durability::kMemory;
    std::uint32_t network = RequestHandler::kNoNetwork;  // whose cells the clients can reach
    Backups* backups = nullptr;                          // nullptr: backups are disabled
    CounterFlusher* counter_flusher = nullptr;           // nullptr: no counter is one-sided
    Scans* scans = nullptr;                              // nullptr: scans are not supported
    DiskFetcher* disk_fetcher = nullptr;                 // nullptr: all records are in memory
    Revocations* revocations = nullptr;                  // nullptr: the server has no users
    OutcomeArchive* outcomes = nullptr;                  // nullptr: no outcome is kept
    ReplicationRounds* rounds = nullptr;                 // nullptr: the log is not replicated
    // Outcomes of writes under the group's earlier primaries; nullptr: the log is not replicated.
    const LoggedOutcomes* earlier_outcomes = nullptr;
    const std::atomic<bool>* lacks_copies = nullptr;  // as RequestHandler
    AdminRequests::ChangeGroup change_group{};        // nullptr: in no group
  };
  static Result<std::unique_ptr<Worker>> create(const Parts& parts, const WorkerOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void start();
  // begin_stop() asks the thread to call finish() and end; stop() also waits until it has ended.
  void begin_stop();
  void stop();
  // The group's marks will not rise any more: finish() waits for no reply. Any thread.
  void give_up_replies() { given_up_.store(true, std::memory_order_release); }

  // The sessions, for acceptors.
  SessionTable& sessions() { return sessions_; }
  const SessionTable& sessions() const { return sessions_; }
  rdma::Queue& queue() { return *queue_; }
  rdma::ConnectionOptions connection_options(Role role) const;
  const MessageBuffers& room() const { return room_; }

  // From now on requests are refused: another replica of the group is to be the primary. Any
  // thread.
  void leave();
  // After leave(): whether all requests that were begun before are answered. Any thread.
  bool is_quiet() const { return quiet_.load(std::memory_order_acquire); }

  // Wakes the worker if answers wait (SERVE-5). Call it after an event that answers await.
  void wake_for_answers();
  const WorkerCounters& counters() const { return counters_; }
  const Timings& timings() const { return timings_; }
  std::uint64_t reported_reads() const { return handler_.reported_reads(); }

  // One turn: polls a batch, serves it and posts the replies. Returns the number of completions.
  std::size_t poll_once();
  // Stops taking requests, answers those that await a mark for as long as an orderly stop may wait,
  // then ends all connections. REQUIRES: the applier runs. Requests that were not begun and
  // backups that are not done stay unanswered. Blocks.
  void finish();

 private:
  Worker(const Parts& parts, const WorkerOptions& options, const MessageBuffers& room,
         std::unique_ptr<rdma::Queue> queue, SendPool pool, LongRequestReader long_requests);
  void run();
  void begin_turn();
  void collect_mail();
  void on_completion(const rdma::Completion& completion);
  void on_receive(const rdma::Completion& completion, Session& session);
  void on_disconnected(Session& session);
  void take(const ReceivedRequest& request);
  Served serve(const ReceivedRequest& request, DiskLookup look = {}, std::uint32_t rounds = 0);
  Served execute(const ReceivedRequest& request, DiskLookup look, std::uint32_t rounds);
  bool has_room_for(const ReceivedRequest& request);
  bool has_room_for_small(const ReceivedRequest& request) const;
  void refuse(const ReceivedRequest& request, const Error& error);
  bool is_refused_on_leaving(Bytes message) const;
  void note_quiet();
  void begin_admin_request(const ReceivedRequest& request, RequestHandler::Answer answer);
  void keep(Session& session, const RequestHandler::Answer& answer);
  Served answer_outcome(const ReceivedRequest& request, const RequestHandler::FindOutcome& asked);
  bool has_had_its_pack(const Session& session) const {
    return session.pack_turn == counters_.get(WorkerCounters::kTurns);
  }
  void release(std::uint32_t receive_buffer);
  void on_malformed(Session& session, DropReason why);

  void await_load(const ReceivedRequest& request, Bytes key, std::uint32_t rounds);
  Served serve_waiting(const WaitingRequests::Waiting& waiting);
  void serve_those_that_wait();
  void retry_loaded();
  void retry_waiting();
  void answer_waiters();

  void on_read(const rdma::Completion& completion, Session& session);
  void on_long_read(const rdma::Completion& completion, Session& session);
  void read_failed(const rdma::Completion& completion, Session& session);
  bool has_room_for_long();
  bool has_room_for_large(const Session& session);
  void drop_overdue(Session* late);  // nullptr: nobody (LONG-5, PUTLARGE-5)
  void drop_slow_writers();
  bool begin_long(Session& session, const MessageSource& source, std::uint64_t sequence);
  void end_fetch(Fetch& fetch);
  void finish_fetches();

  template <class Condition>
  void turn_while(Condition condition, std::int64_t at_most_ms);

  const MessageBuffers room_;
  const std::optional<unsigned> cpu_;
  const Clock& clock_;
  WorkerCounters counters_;
  Timings timings_;
  std::unique_ptr<rdma::Queue> queue_;  // must outlive the sessions' connections
  StatsRation stats_;
  RequestHandler handler_;
  LargePutReceiver large_put_receiver_;
  LongRequestReader long_;
  DiskFetcher* const disk_fetcher_;
  AdminRequests admin_;
  const OutcomeArchive* const outcomes_;
  const LoggedOutcomes* const earlier_outcomes_;
  SessionTable sessions_;
  ReplySender replies_;
  PendingReplies pending_;
  WaitingRequests waiting_requests_;

  std::array<rdma::Completion, 64> completions_;
  std::vector<std::uint32_t> released_;  // receive buffers to release at the end of the turn
  std::vector<Fetch*> fetched_;          // complete; they wait for room for the reply, or for
  bool await_disk_ = false;              // the queue to the disk: one of them does
  std::uint64_t large_refused_ = 0;      // the store's count when drop_slow_writers() looked last
  bool taking_ = true;                   // accepts requests: until finish()
  bool has_seen_all_ = false;            // has seen all that had arrived when this turn began
  bool long_wanted_ = false;             // an older long request waits for one of long_'s buffers
  bool packs_wait_ = false;              // packs wait for the next turn
  bool held_first_ = true;               // held replies come before requests that wait (SERVE-8)
  Nanos turn_started_ = 0;
  std::atomic<bool> waiting_{false};  // SERVE-5
  std::atomic<bool> stopping_{false};
  std::atomic<bool> leaving_{false};
  std::atomic<bool> quiet_{false};
  std::atomic<bool> given_up_{false};
  std::thread thread_;
};

}  // namespace rkv::server
