// Worker: one thread that polls one queue and answers the requests of the clients bound to it.
//
// Invariants:
//  K1  Every received buffer is released exactly once: when its request has been answered or
//      dropped, at the latest when its client is disconnected. The buffer of a message that
//      announces a long request is released as soon as the READ of that request is posted.
//  K2  The shared receive queue holds clients x credits buffers plus some to spare. It never runs
//      dry while clients keep to their credits. A client that exceeds its credits is disconnected
//      in the turn that sees it. Over verbs all connections share the buffers, so this client may
//      use up all of them before that turn. The devices of the other clients then retransmit until
//      the turn has released buffers. Over shared memory each connection has its own ring.
//  K3  A request is executed only if a small send buffer is free and its reply fits into the
//      client's limit of replies in flight. Otherwise the request waits in its receive buffer.
//      GETs and statistics may find no large buffer after they were executed. They are executed
//      again later, which is safe because they change nothing. A long request also needs a buffer
//      to be READ into. For the rest of the turn, requests already waiting go first.
//  K8  No client keeps send buffers from other clients. A client's replies occupy at most
//      kSmallRepliesPerClient small buffers, which the pool holds for each client. They occupy at
//      most kLargeRepliesPerClient large buffers: a client gets a further large buffer only while
//      more of them are free than it holds. If a client waits for a large buffer, the client that
//      has taken no large reply for the longest time is disconnected, if that is kLongestReply or
//      more. A client that waits for its own buffers to return blocks no other client.
//  K9  Making statistics takes at most one part in kStatsParts of the time. A request beyond that
//      share waits at most kStatsParts * kStatsStretch. All statistics requests of one turn get the
//      same text.
//  K4  A client's replies and READs in flight never exceed its connection's limit, so no post is
//      cut short.
//  K5  A flush or a durable write is answered when its mark has reached it. The worker sets
//      waiting_ before it reads the marks; the applier advances a mark before it clears waiting_.
//      Both are read-modify-writes on waiting_, so one of the two sees the other. The same holds
//      for a backup, for a page of a scan, and for the sweep that starts a flush or a backup: each
//      is done before waiting_ is cleared.
//  K6  A write that awaits a mark has been executed, exactly once, and is never repeated. It is
//      answered when the mark has passed it, or with "may have happened" if the disk fails first.
//      It stays unanswered if its client disconnects. When the worker is stopped, the connection
//      ends only after the answer, or after kAnswersMs.
//  K7  A request that awaits a load keeps its buffer (for a long request, one of long_'s) and
//      changes nothing until it is handled again. A load is done before waiting_ is cleared (K5).
//
// In steady state a turn does not allocate, does not log and takes no lock except the store's. This
// holds for PUTs, DELETEs, GETs and counters of records in memory, with values up to 128 KiB.
// Records on disk, scans, flushes and backups go to another thread: they take its lock and
// allocate. The log's copy of a longer value allocates too. A time to live is noted under one lock
// and allocates.
//
// Thread safety:
//  - acceptors: reserve_client, cancel_client, adopt, end_session, give_up, queue (to accept on)
//  - any thread: marks_changed, counters, timings
//  - owner: start, begin_stop, stop
//  - worker's thread: poll_once
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "rdma/transport/transport.h"
#include "server/background/disk_fetcher.h"
#include "server/request/large_put_receiver.h"
#include "server/request/long_request_reader.h"
#include "server/request/message_buffers.h"
#include "server/request/request_handler.h"
#include "server/request/send_pool.h"
#include "server/request/session.h"
#include "server/request/share.h"
#include "server/request/timings.h"
#include "server/request/worker_counters.h"

namespace rkv::server {

// A client that takes no large reply for this long may be disconnected (K8).
inline constexpr Nanos kLongestReply = 2 * kNanosPerSecond;
// Statistics get 1 in 128 of a worker's time (K9). A flood of statistics requests therefore slows
// other requests by less than 1 %.
inline constexpr Nanos kStatsParts = 128;
// Unused statistics time that a worker saves up, at most.
inline constexpr Nanos kStatsStretch = 5 * kNanosPerMs;

struct WorkerOptions {
  std::uint32_t clients = 64;
  rdma::PollMode poll = rdma::PollMode::kAdaptive;
  std::optional<unsigned> cpu{};  // the CPU to pin the thread to
};

struct NewClient {
  std::unique_ptr<rdma::Connection> connection;
  std::uint64_t session = 0;
  std::uint16_t credits = 0;
  std::string name;
  std::shared_ptr<Place> place;
};

class Worker {
 public:
  // References must outlive the worker. `durability` applies to writes that do not specify one.
  // `make_durable` asks the applier to advance a mark; at most one call per turn and level.
  struct Parts {
    rdma::Transport& transport;
    Store& store;
    const CommitLog& log;
    const Clock& clock;
    std::uint32_t boot;
    std::function<std::string()> stats;
    std::function<void(Durability level, std::uint64_t sequence)> make_durable;
    // Blocks end_session()'s caller until `done` returns true or the deadline passes. Empty: waits
    // on a condition variable. A simulation without threads supplies its own wait.
    std::function<void(const std::function<bool()>& done, const Deadline& deadline)> wait_until{};
    Durability durability = Durability::kMemory;
    std::uint32_t network = RequestHandler::kNoNetwork;  // whose cells the clients can reach
    Backups* backups = nullptr;                          // nullptr: backups are disabled
    CounterFlusher* counter_flusher = nullptr;           // nullptr: no counter is one-sided
    Scans* scans = nullptr;                              // nullptr: scans are not supported
    DiskFetcher* loads = nullptr;                        // nullptr: all records are in memory
  };
  static Result<std::unique_ptr<Worker>> create(const Parts& parts, const WorkerOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void start();
  // begin_stop() asks the thread to end by finish(); stop() also waits until it has ended.
  void begin_stop();
  void stop();

  // Reserves a place for one more client; call it before accepting on queue(). False: the worker is
  // full. cancel_client() gives the place back; after adopt(), the end of the connection does.
  bool reserve_client();
  void cancel_client();
  rdma::Queue& queue() { return *queue_; }
  rdma::ConnectionOptions connection_options() const;
  const MessageBuffers& room() const { return room_; }
  void adopt(NewClient client);
  // Ends the session if this worker has it. True: none of the session's requests will begin any
  // more. Blocks until the worker's thread has handled the call; false if the deadline passed
  // first.
  bool end_session(std::uint64_t id, const Deadline& deadline);
  // Ends the session, if this worker has it, so that another client gets its place. Never blocks.
  void give_up(std::uint64_t session);

  // Wakes the worker if answers wait (K5). Call it after a mark has advanced.
  void marks_changed();
  const WorkerCounters& counters() const { return counters_; }
  const Timings& timings() const { return timings_; }
  std::uint64_t reported_reads() const { return handler_.reported_reads(); }
  // Whether the next turn has work besides completions.
  bool has_mail() const { return mail_.load(std::memory_order_acquire); }
  std::uint32_t clients() const { return clients_.load(std::memory_order_relaxed); }

  // One turn: polls a batch, serves it and posts the replies. Returns the number of completions.
  std::size_t poll_once();
  // Stops taking requests, answers those that await a mark for as long as an orderly stop may wait,
  // then ends all connections. REQUIRES: the applier runs. Requests that were not begun and
  // backups that are not done stay unanswered. Blocks.
  void finish();

 private:
  // A received request that waits for buffers for its reply (K3).
  struct Waiting {
    Session* session;
    Bytes message;
    std::uint32_t receive_buffer;
    bool large;  // it was executed, but found no large buffer for its reply
    Nanos taken;
  };
  // A reply that awaits a mark (K6), a backup, the sweep before either, or a page of a scan and a
  // large buffer for it.
  struct Held {
    Session* session = nullptr;
    Response response{};  // its value, if it has one, lies in `number`
    Durability level = Durability::kSync;
    std::uint64_t through = 0;
    bool sweeping = false;  // `through` is a sweep's number; `name` is the request's value
    bool ready = false;     // `response` is the reply
    Nanos taken = 0;
    std::array<std::byte, kCounterBytes> number{};
    std::string name{};
    std::shared_ptr<const Backup> backup{};
    std::shared_ptr<const ScanPage> page{};
  };

  // A request that awaits a record (K7).
  struct Awaiting {
    Session* session;
    Bytes message;
    std::uint32_t receive_buffer;
    std::shared_ptr<const Load> load;
    std::uint32_t rounds;  // how many loads it has waited for
    bool large;            // as in Waiting
    Nanos taken;
  };

  using Why = std::optional<DropReason>;  // empty: no fault, not worth a log line
  Worker(const Parts& parts, const WorkerOptions& options, const MessageBuffers& room,
         std::unique_ptr<rdma::Queue> queue, SendPool pool, LongRequestReader long_requests);
  void run();
  void begin_turn();
  void collect_mail();
  void admit(NewClient arrival);
  void end_sessions(const std::vector<std::uint64_t>& ids, Why why);
  void on_completion(const rdma::Completion& completion);
  void on_receive(const rdma::Completion& completion, Session& session);
  void take(Session& session, Bytes message, std::uint32_t receive_buffer);
  void release(std::uint32_t receive_buffer);
  void on_sent(const rdma::Completion& completion, Session& session);
  void on_disconnected(Session& session);
  enum class Served : std::uint8_t {
    kDone,
    kNoRoom,    // nothing was executed: serve it later
    kNoLarge,   // likewise, once has_large_for() is true
    kLoading,   // the record is being loaded; the receive buffer is in use until then
    kFetching,  // the value is being READ; the receive buffer is in use until then
  };
  Served serve(Session& session, Bytes message, std::uint32_t receive_buffer, DiskLookup look = {},
               std::uint32_t rounds = 0);
  bool has_room_for(const Session& session, Bytes message);
  bool has_room_for_reply(const Session& session) const;
  bool has_large_for(const Session& session);
  void drop_slow_taker();
  void give_back(Session& session, std::uint32_t buffer);
  bool has_room_for_long();
  bool has_time_for_stats();
  std::string make_stats();
  void on_read(const rdma::Completion& completion, Session& session);
  void on_long_read(const rdma::Completion& completion, Session& session);
  void read_failed(const rdma::Completion& completion, Session& session);
  bool begin_long(Session& session, const RequestHandler::Answer& answer);
  void drop_bad_long_request(Session& session);
  void end_fetch(Fetch& fetch);
  void finish_fetches();
  bool reply(Session& session, const Response& response);
  void hold(Session& session, const RequestHandler::Answer& answer);
  void ask_for_marks();
  void count(const Response& response, Durability level = Durability::kMemory);
  void drop(Session& session, Why why);
  void retry_waiting();
  void retry_waiting_once();
  void answer_held();
  void go_on_after_sweep(Held& held);
  void await(Held& held, const RequestHandler::Answer& answer);
  void await_load(Session& session, Bytes message, std::uint32_t receive_buffer, Bytes key,
                  std::uint32_t rounds);
  void answer_loaded();
  bool try_loaded(Awaiting& awaiting);
  void answer_waiters();
  bool is_over(const Held& held, bool disk_failed) const;
  Response answer_to(Held& held) const;
  void post_replies();
  void post_replies(Session& session);
  bool has_held() const;
  bool has_unsent() const;
  template <class Condition>
  void turn_while(Condition condition, std::int64_t at_most_ms);

  const MessageBuffers room_;
  const WorkerOptions options_;
  const Clock& clock_;
  const CommitLog& log_;
  const std::function<void(Durability, std::uint64_t)> make_durable_;
  const std::function<void(const std::function<bool()>&, const Deadline&)> wait_until_;
  CounterFlusher* const counter_flusher_;
  const std::function<std::string()> stats_;
  RequestHandler handler_;
  LargePutReceiver large_put_receiver_;
  WorkerCounters counters_;
  Timings timings_;

  std::unique_ptr<rdma::Queue> queue_;  // must outlive the sessions' connections
  SendPool pool_;
  LongRequestReader long_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::array<rdma::Completion, 64> completions_;
  std::vector<rdma::Completion> early_;  // of accepted clients that adopt() has not delivered yet
  std::vector<std::uint32_t> released_;  // receive buffers to release at the end of the turn
  std::vector<Waiting> waiting_requests_;
  std::vector<Held> held_;
  DiskFetcher* const disk_fetcher_;
  std::vector<Awaiting> awaiting_;
  std::vector<Awaiting> loading_;  // used during answer_loaded(); empty otherwise
  std::uint64_t wal_wanted_ = 0;   // highest sequence that this turn's held replies await
  std::uint64_t sync_wanted_ = 0;
  std::vector<Fetch*> fetched_;  // complete; they wait for room for the reply
  std::vector<Session*> dirty_;  // with replies to post at the end of the turn
  bool taking_ = true;           // accepts requests: until finish()
  Nanos turn_started_ = 0;
  Nanos taken_ = 0;            // arrival time of the request that is being served
  bool large_wanted_ = false;  // an older reply of this turn or the last needs a large buffer
  Share stats_share_{kStatsParts, kStatsStretch};
  std::string stats_text_;  // made in turn number stats_turn_
  std::uint64_t stats_turn_ = 0;
  bool stats_wanted_ = false;  // a statistics request waits for the share to grow
  bool long_wanted_ = false;   // an older long request needs one of long_'s buffers

  std::atomic<std::uint32_t> clients_{0};
  std::atomic<bool> waiting_{false};  // K5
  std::atomic<bool> stopping_{false};
  std::atomic<bool> mail_{false};
  std::atomic<std::uint64_t> ends_done_{0};  // of ends_asked_; written under mutex_
  std::mutex mutex_;
  std::condition_variable ended_;
  // Guarded by mutex_.
  std::vector<NewClient> arrivals_;
  std::vector<std::uint64_t> to_end_;
  std::uint64_t ends_asked_ = 0;
  std::vector<std::uint64_t> given_up_;
  std::thread thread_;
};

}  // namespace rkv::server
