// A worker: one thread, one queue, the clients bound to it. Turns received requests into replies.
//
// Invariants:
//  K1  Every received buffer is released exactly once: when its request has been answered or
//      dropped (one that says where the request lies: when that READ is posted), at the latest when
//      its client has gone.
//  K2  The shared receive queue holds clients x credits buffers and some to spare, so it never runs
//      dry as long as clients keep to their credits. One that does not is disconnected in the turn
//      that sees it. Until then, over verbs, it can have used up all buffers, which belong to all
//      connections: devices of others send again until that turn has given them back. Over shared
//      memory each connection has a ring of its own.
//  K3  A request is executed only when a small send buffer and room among the client's replies in
//      flight are there for its answer; else it waits in its receive buffer. Gets and statistics
//      may find the large buffers gone after the fact and are then executed again later: they
//      change nothing. A long request needs a buffer to be READ into, too; one turn long, nobody is
//      let in before those who wait for one.
//  K8  Nobody keeps send buffers from others. A client's replies lie in at most
//      kSmallRepliesPerClient small buffers, which the pool has for each client, and in at most
//      kLargeRepliesPerClient large ones, a further one only while more are free than it has. Who
//      has not taken one for kLongestReply is disconnected when somebody waits for one. Who waits
//      for his own to come back keeps nobody waiting.
//  K9  Making statistics takes at most the share of the time that kStatsParts says. Who asks beyond
//      that waits, at most kStatsParts * kStatsStretch; those who are answered in one turn are
//      answered the same.
//  K4  A client's replies and READs in flight never exceed what its connection takes, so a post is
//      never cut short.
//  K5  A flush, and a write asked to be durable, is answered when its mark has reached it. The
//      worker raises waiting_ before it looks at the marks, the applier moves a mark before it
//      takes waiting_ down: one of them sees the other (both by read-modify-write on waiting_). The
//      same holds for a backup, for a page of a scan, and for the sweep that a flush or a backup
//      begins with: done before waiting_ is taken down.
//  K6  A write that awaits a mark has been made, once: it is answered when the mark has passed it,
//      or "may have happened" when the disk fails first, or its client goes; it is never made
//      again. When the worker is stopped it is answered before its connection ends.
//  K7  A request that awaits a load keeps its buffer (a long one's is one of long_'s), and changes
//      nothing until it is handled again. Loads are done before waiting_ is taken down (K5).
//
// In steady state a turn allocates nothing, takes no lock but the store's and logs nothing, as long
// as its requests are PUTs, DELETEs, GETs and counters of records in memory, with values of up to
// 128 KiB. What goes to another thread takes that one's lock, and allocates: records on disk,
// scans, flushes, backups. So do the log's copy of a longer value, and a time to live, which is
// noted under one lock.
//
// Thread safety: reserve_client, cancel_client, adopt, end_session, give_up, queue (for accept):
// the acceptors.
// marks_changed, counters, timings: any thread. start, begin_stop, stop: the owner. poll_once: the
// worker's thread.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "rdma/transport.h"
#include "server/fetches.h"
#include "server/loads.h"
#include "server/long_requests.h"
#include "server/message_room.h"
#include "server/metrics.h"
#include "server/request_handler.h"
#include "server/send_pool.h"
#include "server/session.h"
#include "server/share.h"
#include "server/timings.h"

namespace rkv::server {

inline constexpr Nanos kLongestReply = 2 * kNanosPerSecond;
// Of a worker's time, for making statistics: less than one in a hundred, so that what is asked
// beside a flood of them is as fast as alone but for one in a hundred.
inline constexpr Nanos kStatsParts = 128;
inline constexpr Nanos kStatsStretch = 5 * kNanosPerMs;

struct WorkerOptions {
  std::uint32_t clients = 64;
  rdma::PollMode poll = rdma::PollMode::kAdaptive;
  std::optional<unsigned> cpu{};  // to stay on
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
  // References must outlive the worker. `durability` is that of writes that name none.
  // `make_durable` asks the applier (any thread), once a turn and level at most.
  struct Parts {
    rdma::Transport& transport;
    Store& store;
    const CommitLog& log;
    const Clock& clock;
    std::uint32_t boot;
    std::function<std::string()> stats;
    std::function<void(Durability level, std::uint64_t sequence)> make_durable;
    // Blocks end_session()'s caller until `done` says so or the deadline passes; empty = on a
    // condition variable. A simulation without threads waits in its own way.
    std::function<void(const std::function<bool()>& done, const Deadline& deadline)> wait_until{};
    Durability durability = Durability::kMemory;
    std::uint32_t network = RequestHandler::kNoNetwork;  // whose cells the clients can reach
    Backups* backups = nullptr;                          // nullptr: none are made
    Sweeper* sweeper = nullptr;                          // nullptr: no counter is one-sided
    Scans* scans = nullptr;                              // nullptr: there are none
    Loads* loads = nullptr;                              // nullptr: all records are in memory
  };
  static Result<std::unique_ptr<Worker>> create(const Parts& parts, const WorkerOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void start();
  // The thread ends as finish() says: asks for it; and waits until it has.
  void begin_stop();
  void stop();

  // A place for one more client, before it is accepted on queue(); given back by cancel_client()
  // or, after adopt(), by the end of the connection.
  bool reserve_client();
  void cancel_client();
  rdma::Queue& queue() { return *queue_; }
  rdma::ConnectionOptions connection_options() const;
  const MessageRoom& room() const { return room_; }
  void adopt(NewClient client);
  // Ends a session, if it is here: when this returns true, no request of it will begin any more.
  // Blocks until the worker's thread has seen to it; false when the deadline passed first.
  bool end_session(std::uint64_t id, const Deadline& deadline);
  // Ends a session, if it is here, because another client gets its place. Does not block.
  void give_up(std::uint64_t session);

  void marks_changed();
  const WorkerCounters& counters() const { return counters_; }
  const Timings& timings() const { return timings_; }
  std::uint64_t told_reads() const { return handler_.told_reads(); }
  // Whether something waits for the next turn besides completions.
  bool has_mail() const { return mail_.load(std::memory_order_acquire); }
  std::uint32_t clients() const { return clients_.load(std::memory_order_relaxed); }

  // One turn: polls a batch, answers it, posts the answers. How many completions there were.
  std::size_t poll_once();
  // Takes no more requests, gives the answers that await a mark - the applier runs - for as long as
  // an orderly stop may wait, then ends all connections. Requests that were not begun and backups
  // that are being made stay unanswered. Blocks.
  void finish();

 private:
  // A received request that waits for room for its answer.
  struct Waiting {
    Session* session;
    Bytes message;
    std::uint32_t receive_buffer;
    bool large;  // its answer has found no large buffer
    Nanos taken;
  };
  // An answer that awaits a mark (K6), a backup, or before either a sweep; or a page of a scan, and
  // a large buffer for it.
  struct Held {
    Session* session = nullptr;
    Response response{};  // its value, if it has one, is `number`
    Durability level = Durability::kSync;
    std::uint64_t through = 0;
    bool sweeping = false;  // `through` is the number of a sweep; `name` the request's value
    bool ready = false;     // `response` is the answer
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
    std::uint32_t rounds;  // how often it has been in vain
    bool large;            // as in Waiting
    Nanos taken;
  };

  using Why = std::optional<DropReason>;  // nothing: it is no fault, and the log need not say it
  Worker(const Parts& parts, const WorkerOptions& options, const MessageRoom& room,
         std::unique_ptr<rdma::Queue> queue, SendPool pool, LongRequests long_requests);
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
    kNoRoom,    // nothing has happened: to be served later
    kNoLarge,   // as well, when has_large_for()
    kLoading,   // the record is awaited; the receive buffer is in use until then
    kFetching,  // the receive buffer is in use until the value has come
  };
  Served serve(Session& session, Bytes message, std::uint32_t receive_buffer, DiskLook look = {},
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
  void drop_liar(Session& session);
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

  const MessageRoom room_;
  const WorkerOptions options_;
  const Clock& clock_;
  const CommitLog& log_;
  const std::function<void(Durability, std::uint64_t)> make_durable_;
  const std::function<void(const std::function<bool()>&, const Deadline&)> wait_until_;
  Sweeper* const sweeper_;
  const std::function<std::string()> stats_;
  RequestHandler handler_;
  Fetches fetches_;
  WorkerCounters counters_;
  Timings timings_;

  std::unique_ptr<rdma::Queue> queue_;  // outlives the sessions' connections
  SendPool pool_;
  LongRequests long_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::array<rdma::Completion, 64> completions_;
  std::vector<rdma::Completion> early_;  // of clients that adopt() has not yet brought
  std::vector<std::uint32_t> released_;  // receive buffers to give back at the end of the turn
  std::vector<Waiting> waiting_requests_;
  std::vector<Held> held_;
  Loads* const loads_;
  std::vector<Awaiting> awaiting_;
  std::vector<Awaiting> loading_;  // a turn's; empty between turns
  std::uint64_t wal_wanted_ = 0;   // by answers held in this turn
  std::uint64_t sync_wanted_ = 0;
  std::vector<Fetch*> fetched_;  // whole, and waiting for room for the answer
  std::vector<Session*> dirty_;  // with replies to post at the end of the turn
  bool taking_ = true;           // requests: until finish()
  Nanos turn_started_ = 0;
  Nanos taken_ = 0;            // when the request that is being served was taken
  bool large_wanted_ = false;  // an older answer of this turn or the last needs a large buffer
  Share stats_share_{kStatsParts, kStatsStretch};
  std::string stats_text_;  // made in the turn of this number
  std::uint64_t stats_turn_ = 0;
  bool stats_wanted_ = false;  // somebody waits for the share to grow
  bool long_wanted_ = false;   // an older long request needs one of long_'s

  std::atomic<std::uint32_t> clients_{0};
  std::atomic<bool> waiting_{false};  // K5
  std::atomic<bool> stopping_{false};
  std::atomic<bool> mail_{false};
  std::atomic<std::uint64_t> ends_done_{0};  // of ends_asked_; stored under mutex_
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
