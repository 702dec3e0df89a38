// Link: one connection to the server, reconnected as often as needed. It has READs, requests, and
// the events that answer them. handshake.h has what the two sides say when they connect.
//
// Invariants:
//  LINK-1  After close() nothing posted before can touch a local buffer: the connection is aborted,
//      drained and destroyed. A READ or request whose deadline passes closes the link, so that its
//      buffers are quarantined until the close has finished.
//  LINK-2  Every received message is released exactly once, by Reply's destructor or by the caller
//      of poll(). If its queue was destroyed before, it is not released at all.
//  LINK-3  A link that saw any error stays dead: alive() is false until the next connect().
//  LINK-4  A server that hands over to another one of its group refuses requests with a code that
//      says so. The answer is treated as "busy", no further request is begun, and the link ends
//      when all answers have come.
//  LINK-5  An event of pipelined use that arrives while a blocking call waits is kept for poll().
//      Only close() drops it, with its operation.
//  LINK-6  With a watch, no call waits for longer than LinkWatch::kEvery without asking the watch,
//      whatever the call's deadline. A connection that the watch gives up ends like a lost one.
//
// Thread safety: none; one thread at a time.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/link/arena.h"
#include "client/link/credentials.h"
#include "client/link/handshake.h"
#include "client/link/requests.h"
#include "client/link/server_time.h"
#include "common/clock.h"
#include "rdma/transport/transport.h"

namespace rkv::client {

struct LinkOptions {
  std::string address;
  std::string name;
  std::uint32_t reads_in_flight = 32;
  std::uint16_t requests_in_flight = 16;
  rdma::PollMode poll = rdma::PollMode::kAdaptive;
  std::optional<Credentials> credentials{};
};

struct Event {
  enum class Kind : std::uint8_t { kRead, kReply };
  Kind kind = Kind::kRead;
  std::uint64_t context = 0;  // context of the READ's operation, or tag of the request
  Response response;          // kReply: valid until release(buffer)
  std::uint32_t buffer = 0;
};

// Asked while a call waits for its server, as the server may have been replaced.
class LinkWatch {
 public:
  static constexpr Nanos kEvery = kNanosPerSecond / 10;
  virtual ~LinkWatch() = default;
  // Returns false if the client must leave the server. Does not block.
  virtual bool may_wait() = 0;
};

class Link;

// An answer, which owns its receive buffer.
class Reply {
 public:
  Reply(Link& link, const Event& event);
  Reply(Reply&& other) noexcept
      : link_(std::exchange(other.link_, nullptr)),
        response_(other.response_),
        buffer_(other.buffer_),
        queue_(other.queue_) {}
  // The same answer, with another response. The response's value, if any, lies in the answer.
  Reply(Reply&& other, const Response& response) : Reply(std::move(other)) { response_ = response; }
  Reply& operator=(Reply&&) = delete;
  ~Reply();
  const Response& response() const { return response_; }

 private:
  Link* link_;
  Response response_;
  std::uint32_t buffer_;
  std::uint64_t queue_;  // Link::queue_number() when the answer came
};

class Link {
 public:
  static constexpr std::size_t kEvents = 64;
  static constexpr std::uint32_t kInlineBytes = 256;
  // How long close() waits for the adapter to return all that was posted. A working adapter takes
  // microseconds. If it takes longer, the connection and its queue are destroyed. That is safe: the
  // connection's destructor waits by itself (2 s over verbs), then ends the queue pair, after which
  // the adapter touches no buffer. It costs a new queue.
  static constexpr std::int64_t kDrainMs = 200;
  // Number of receive buffers: enough for the answers to all requests in flight, and some late
  // answers.
  static constexpr std::uint32_t receive_buffers(std::uint16_t requests_in_flight) {
    return requests_in_flight + 4U;
  }

  // The arguments must outlive the link.
  Link(rdma::Transport& transport, const Clock& clock, Arena& arena, LinkOptions options);
  ~Link() { close(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Sets the watch that is asked during waits over the present connection. nullptr: none, as after
  // close().
  void set_watch(LinkWatch* watch) { watch_ = watch; }
  // Sets the server of the next connect().
  void set_address(const std::string& address) { options_.address = address; }
  // Connects. Blocks until the deadline at most. Fails as Transport::connect(). kVersionMismatch,
  // kCorrupt: the peer is not a compatible kvserver. kRejected, kBusy: refusal() has the reason.
  // kNotPrimary: the server is a backup; named_primary() may have the primary of its group.
  // kUnauthenticated: the server does not accept the credentials, or has not proved to know them.
  // REQUIRES a closed link.
  Status connect(const Deadline& deadline);
  // Blocks for kDrainMs at most, and as long as the connection's destructor does. No deadline can
  // shorten the destructor's wait: the adapter may still write into buffers, and these may be the
  // caller's own.
  void close();
  bool alive() const { return alive_; }
  // Ends the connection to a server that breaks the protocol, with a log line. Does not block.
  void break_off(const char* why);
  // Returns true if the peer refused a READ: this client's view of its memory is wrong.
  bool read_refused() const { return read_refused_; }
  const ConnectAccept& accept() const { return accept_; }
  // The server's message when it refused the connection.
  const std::string& refusal() const { return handshake_.refusal(); }
  // Handshake::named_primary().
  const std::string& named_primary() const { return handshake_.named_primary(); }

  // Returns when the server must have begun a request that ends at the deadline (server_time.h).
  // REQUIRES: connect() succeeded once.
  std::uint64_t begin_by_us(const Deadline& deadline) {
    return server_time_.begin_by_us(deadline.at(), clock_->now());
  }

  // ---- pipelined use. The contexts of READs do not have Requests' send bit.
  Requests& requests() { return requests_; }
  std::uint32_t local_key() const { return arena_->local_key(); }
  Result<std::size_t> post(std::span<const rdma::Operation> batch) {
    if (!alive_) return fail(Code::kDisconnected, "the connection to the server is lost");
    auto taken = connection_->post(batch);
    if (!taken) [[unlikely]]
      alive_ = false;  // LINK-3
    return taken;
  }
  // Returns the events that have arrived, up to kEvents, valid until the next call. Notices the end
  // of the connection.
  std::span<const Event> poll() { return kept_.empty() ? take() : take_kept(); }
  // Waits for events until the deadline. Returns at once if the last poll() took completions that
  // are not events: they may have freed the send queue entries that the caller waits for.
  void wait(const Deadline& deadline) {
    if (take_room()) return;
    if (watch_ == nullptr) [[likely]]
      return queue_->wait(deadline);
    wait_watched(deadline, clock_->now());
  }
  bool is_watched() const { return watch_ != nullptr; }
  // Asks the watch if that is due (LINK-6). Returns until when the caller may wait. REQUIRES:
  // is_watched().
  Nanos ask_watch(Nanos now);
  // Whether poll() has events that arrived during a blocking call, perhaps of a connection that has
  // ended since.
  bool has_kept_events() const { return !kept_.empty(); }
  // Takes the completions that have arrived and keeps their events for poll() (LINK-5). Notices the
  // end of the connection.
  void keep_events();
  // Queue::waits_asleep().
  bool waits_asleep() const { return queue_->waits_asleep(); }
  // The queue that wait() waits on; null before the first connect().
  rdma::Queue* queue() const { return queue_.get(); }
  rdma::PollMode poll_mode() const { return options_.poll; }
  // Returns true, once, if wait() would return at once without checking the queue.
  bool take_room() { return std::exchange(made_room_, false) || !kept_.empty(); }
  void release(std::uint32_t buffer) { queue_->release({&buffer, 1}); }
  // Number of the present queue. If a connection cannot be drained, its queue is destroyed with it.
  std::uint64_t queue_number() const { return queue_number_; }
  // Blocks until the given time. Events that arrive are kept for poll().
  void sleep_until(Nanos at);

  // ---- a ping beside other operations, for which nobody waits; one at a time.

  // Returns false, and sends nothing, if the connection has ended, a ping is under way, no slot is
  // free for a request, or the server granted a single credit, which other requests need.
  bool ping_in_background();
  bool pings_in_background() const { return pings_; }
  // The server's time in the answer, once it has come.
  std::optional<std::uint64_t> take_ping_answer() {
    return std::exchange(ping_answer_, std::nullopt);
  }

  // ---- a READ of a few bytes beside other operations, for which nobody waits; one at a time.

  static constexpr std::size_t kLookBytes = Arena::kLookBytes;
  // Returns false if the READ could not be posted, or one is under way.
  bool look_in_background(const RemoteRange& from);
  // Returns the bytes once the READ has landed.
  std::optional<Bytes> take_look();
  // rdma::Connection::bytes_passed().
  std::uint64_t bytes_passed() const { return connection_->bytes_passed(); }

  // ---- blocking use. Other operations may be in flight: their events are kept for poll(). But
  // read_at_once() and run_atomics() need the link to themselves, apart from a ping in the
  // background.

  // Converts a GET's READ into an operation.
  static rdma::Operation operation_of(const ReadRequest& read, std::uint32_t local_key,
                                      std::uint64_t context);
  // reads_at_once(): READs may complete within the call. read_at_once() performs one READ that way,
  // or returns false: then use read(). REQUIRES: alive().
  bool reads_at_once() const { return reads_at_once_; }
  bool read_at_once(MutableBytes to, const RemoteRange& from) {
    return connection_->read_at_once(to, from.address, from.remote_key);
  }
  // Announces a read_at_once().
  void prefetch(const RemoteRange& from, std::size_t length) {
    connection_->prefetch(from.address, from.remote_key, length);
  }
  // READs and waits until all have landed. Fails with kDisconnected or kTimeout; after kTimeout the
  // link is closed.
  Status read(std::span<const ReadRequest> reads, const Deadline& deadline);
  // Runs atomics on the server's memory in the given order, all signaled. The first `landed` have
  // completed. If `ended` is an error, those after them, up to `posted`, may or may not have
  // happened: kDisconnected, or kTimeout (the link is then closed).
  struct Atomics {
    std::size_t posted = 0;
    std::size_t landed = 0;
    Status ended;
  };
  Atomics run_atomics(std::span<const rdma::Operation> operations, const Deadline& deadline);
  // Sends a request and returns its answer, whatever its code. kDisconnected, kTimeout (the link is
  // then closed): the error's write outcome says whether the request was sent.
  Result<Reply> call(const Request& request, const Deadline& deadline);

 private:
  // The tag of the ping and the context of the READ in the background; callers use smaller ones
  // than these two.
  static constexpr std::uint64_t kBackgroundTag = std::uint64_t{1} << 62;
  // The tag of call(), and the context of read()'s operations.
  static constexpr std::uint64_t kBlockingTag = std::uint64_t{1} << 61;
  // A GET has at most two READs in flight.
  std::uint32_t operations() const {
    return 2 * options_.reads_in_flight + options_.requests_in_flight + 8;
  }
  Status make_queue();
  // Sends the handshake's request. On success the connection is connection_.
  Status send_hello(const Deadline& deadline, rdma::Rejection* rejection);
  // Begins to use connection_.
  void use(const ConnectAccept& accept);
  void release_replies(std::span<const Event> events);
  void prepare(const ReadRequest& read, rdma::Operation& operation) const;
  Status post_and_wait(std::span<const rdma::Operation> reads, const Deadline& deadline);
  bool is_landed(const rdma::Completion& completion) const;  // completion of one of read()'s
  std::span<const Event> take();
  std::span<const Event> take_kept();
  void keep(const Event& event) { kept_.push_back(event); }
  bool to_event(const rdma::Completion& completion, Event& event);
  bool receive(const rdma::Completion& completion, Event& event);
  void note_hand_over(Response& response);
  void wait_watched(const Deadline& deadline, Nanos now);
  bool wait_in_time(const Deadline& deadline);
  Status send_when_possible(const Request& request, const Deadline& deadline);

  rdma::Transport* transport_;
  const Clock* clock_;
  Arena* arena_;
  LinkOptions options_;
  Requests requests_;
  std::uint64_t queue_number_ = 0;
  std::unique_ptr<rdma::Queue> queue_;  // declared before the connection: destroyed after it
  std::unique_ptr<rdma::Connection> connection_;
  bool alive_ = false;
  bool reads_at_once_ = false;
  bool drained_ = true;
  bool read_refused_ = false;
  bool made_room_ = false;
  bool leaves_ = false;  // the server hands over (LINK-4)
  bool pings_ = false;   // a ping in the background is under way
  std::optional<std::uint64_t> ping_answer_;
  enum class Look : std::uint8_t { kNone, kUnderWay, kLanded };
  Look look_ = Look::kNone;
  LinkWatch* watch_ = nullptr;
  Nanos watch_at_ = 0;  // when the watch is asked next
  ConnectAccept accept_;
  ServerTime server_time_;
  Handshake handshake_;
  std::array<rdma::Operation, 2> reads_;  // for read(); a member for the same reason as events_
  std::array<rdma::Completion, kEvents> raw_;
  std::array<Event, kEvents> events_;  // a member: constructing 64 of them costs as much as a GET
  std::vector<Event> kept_;            // LINK-5; in the order in which they came
};

}  // namespace rkv::client
