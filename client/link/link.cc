#include "client/link/link.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "common/check.h"
#include "common/log.h"
#include "common/random.h"

namespace rkv::client {

namespace {
constexpr const char* kGone = "the connection to the server is lost";
constexpr const char* kLate = "the server did not answer in time";
}  // namespace

Reply::Reply(Link& link, const Event& event)
    : link_(&link), response_(event.response), buffer_(event.buffer), queue_(link.queue_number()) {}

Reply::~Reply() {
  if (link_ != nullptr && link_->queue_number() == queue_) link_->release(buffer_);
}

Link::Link(rdma::Transport& transport, const Clock& clock, Arena& arena, LinkOptions options)
    : transport_(&transport),
      clock_(&clock),
      arena_(&arena),
      options_(std::move(options)),
      requests_(arena, options_.requests_in_flight),
      handshake_(options_.credentials) {
  kept_.reserve(operations() + options_.requests_in_flight);  // all that may be in flight
}

// --------------------------------------------------------------------------- set-up and end

// The link always waits on a queue, even while it sleeps between two connections.
Status Link::make_queue() {
  if (queue_ != nullptr) return {};
  const rdma::QueueOptions options{.completions = operations() + options_.requests_in_flight + 8,
                                   .receive_buffers = receive_buffers(options_.requests_in_flight),
                                   .receive_bytes = kMaxMessageBytes,
                                   .poll = options_.poll};
  RKV_ASSIGN_OR_RETURN(queue_, transport_->create_queue(options));
  return {};
}

Status Link::connect(const Deadline& deadline) {
  RKV_CHECK(connection_ == nullptr, "connect() on a link that is not closed");
  handshake_.begin({.credits_wanted = options_.requests_in_flight,
                    .checks_group = true,
                    .session_to_resume = accept_.session,  // 0 the first time
                    .client_nonce = random_from_kernel(),
                    .name = options_.name});
  read_refused_ = false;
  RKV_RETURN_IF_ERROR(make_queue());
  for (;;) {
    rdma::Rejection rejection;
    const Status connected = send_hello(deadline, &rejection);
    if (connected) break;
    RKV_RETURN_IF_ERROR(handshake_.on_refused(connected.error(), rejection));
  }
  const auto accept = handshake_.on_accepted(connection_->private_data());
  if (!accept) {
    close();
    return std::unexpected(accept.error());
  }
  use(*accept);
  return {};
}

Status Link::send_hello(const Deadline& deadline, rdma::Rejection* rejection) {
  // The server READs large values and long requests from this client's memory.
  const auto grant =
      handshake_.asks_for_challenge() ? rdma::Access::kLocal : rdma::Access::kRemoteRead;
  RKV_ASSIGN_OR_RETURN(
      connection_, transport_->connect(*queue_,
                                       {.sends_in_flight = operations(),
                                        .inline_bytes = kInlineBytes,
                                        .grant = grant,
                                        .peer_grants_reads = true},
                                       options_.address, handshake_.hello(), deadline, rejection));
  drained_ = false;
  return {};
}

void Link::use(const ConnectAccept& accept) {
  accept_ = accept;
  // This client's device may lack atomics although the server's has them.
  if (!transport_->has_atomics()) accept_.hints = accept_.counters = {};
  server_time_.begin(accept_.server_us, clock_->now());
  requests_.reset({.credits = accept_.credits,
                   .inline_bytes = connection_->limits().inline_bytes,
                   .max_sent_bytes = accept_.max_sent_bytes});
  reads_at_once_ = connection_->limits().reads_at_once;
  alive_ = true;
}

void Link::close() {
  alive_ = false;
  leaves_ = false;
  pings_ = false;
  ping_answer_.reset();
  look_ = Look::kNone;
  watch_ = nullptr;
  if (connection_ != nullptr) {
    connection_->abort();
    const auto deadline = Deadline::after_ms(*clock_, kDrainMs);
    release_replies(kept_);
    kept_.clear();
    while (!drained_ && !deadline.passed()) {
      const auto events = take();
      release_replies(events);
      if (events.empty() && !drained_) queue_->wait(deadline);
    }
    connection_.reset();  // LINK-1
    if (!drained_) {      // the queue may hold completions that name the connection
      queue_.reset();
      ++queue_number_;
    }
  }
  requests_.reset({});
}

void Link::break_off(const char* why) {
  log_warn(EventName("server_left"), "server {}: {}; disconnecting", connection_->peer(), why);
  alive_ = false;
  connection_->abort();
}

// ----------------------------------------------------------------------------------- events

std::span<const Event> Link::take() {
  const std::size_t arrived = queue_->poll(raw_);
  std::size_t count = 0;
  for (std::size_t i = 0; i < arrived; ++i) {
    if (to_event(raw_[i], events_[count])) ++count;
  }
  made_room_ = arrived > count;
  return std::span(events_).first(count);
}

// At most kEvents at a time, as take() does.
std::span<const Event> Link::take_kept() {
  const std::size_t count = std::min(kept_.size(), events_.size());
  std::ranges::copy(std::span(kept_).first(count), events_.begin());
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(count));
  return std::span(events_).first(count);
}

void Link::keep_events() {
  if (queue_ == nullptr) return;
  for (const Event& event : take())
    keep(event);
}

// Releases answers that no caller waits for any more.
void Link::release_replies(std::span<const Event> events) {
  for (const Event& event : events) {
    if (event.kind == Event::Kind::kReply) release(event.buffer);
  }
}

bool Link::to_event(const rdma::Completion& completion, Event& event) {
  using Kind = rdma::Completion::Kind;
  using Outcome = rdma::Completion::Status;
  if (completion.connection != connection_.get()) {
    // Left over from a connection whose set-up failed.
    if (completion.kind == Kind::kReceive) release(completion.receive_buffer);
    return false;
  }
  if (completion.kind == Kind::kDisconnected) {
    alive_ = false;
    drained_ = true;
    return false;
  }
  if (completion.status != Outcome::kOk) {
    alive_ = false;  // LINK-3
    const bool may_be_refused = completion.kind == Kind::kRead && !transport_->tells_refusals();
    if (completion.status == Outcome::kRemoteAccess || may_be_refused) read_refused_ = true;
    return false;
  }
  if (completion.kind == Kind::kRead || completion.kind == Kind::kCompareSwap ||
      completion.kind == Kind::kFetchAdd) {
    if (completion.context == kBackgroundTag) {
      look_ = Look::kLanded;
      return false;
    }
    event.kind = Event::Kind::kRead;
    event.context = completion.context;
    return true;
  }
  if (completion.kind == Kind::kSend) requests_.sent(completion.context);
  if (completion.kind == Kind::kReceive) return receive(completion, event);
  return false;
}

bool Link::receive(const rdma::Completion& completion, Event& event) {
  auto response = decode_response(completion.message);
  const auto tag = response ? requests_.answered(*response) : std::nullopt;
  if (!tag) {
    release(completion.receive_buffer);
    if (alive_) break_off("its answer matches no request");  // REQ-3
    return false;
  }
  server_time_.note(response->server_us);
  note_hand_over(*response);
  if (*tag == kBackgroundTag) {
    pings_ = false;
    if (response->code == 0) ping_answer_ = response->server_us;
    release(completion.receive_buffer);
    return false;
  }
  event = {.kind = Event::Kind::kReply,
           .context = *tag,
           .response = *response,
           .buffer = completion.receive_buffer};
  return true;
}

// LINK-4. The answers are events of this poll(), although the link has ended by then.
void Link::note_hand_over(Response& response) {
  if (static_cast<Code>(response.code) == Code::kNotPrimary) {
    response.code = static_cast<std::uint8_t>(Code::kBusy);
    response.retry_after_ms = 0;
    if (!std::exchange(leaves_, true)) requests_.begin_none();
  }
  if (leaves_ && requests_.in_flight() == 0 && alive_) {
    alive_ = false;
    connection_->abort();
  }
}

void Link::sleep_until(Nanos at) {
  const Deadline deadline(*clock_, at);
  if (!make_queue()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(deadline.left_ms()));
    return;
  }
  while (!deadline.passed()) {
    queue_->wait(deadline);
    keep_events();  // otherwise an event left in the queue would wake this thread repeatedly
  }
}

// ------------------------------------------------------------------------------ blocking use

rdma::Operation Link::operation_of(const ReadRequest& read, std::uint32_t local_key,
                                   std::uint64_t context) {
  rdma::Operation operation =
      rdma::Operation::read(read.to, read.local_key.value_or(local_key), read.from.address,
                            read.from.remote_key, context);
  if (read.swaps) [[unlikely]] {
    operation.kind = rdma::Operation::Kind::kCompareSwap;
    operation.compare_or_add = read.compare;
    operation.swap = read.desired;
  }
  return operation;
}

bool Link::is_landed(const rdma::Completion& completion) const {
  const bool ours = completion.kind == rdma::Completion::Kind::kRead ||
                    completion.kind == rdma::Completion::Kind::kCompareSwap;
  return ours && completion.context == kBlockingTag &&
         completion.status == rdma::Completion::Status::kOk &&
         completion.connection == connection_.get();
}

// Sets field by field, without a temporary operation: every GET calls this.
void Link::prepare(const ReadRequest& read, rdma::Operation& operation) const {
  if (read.swaps) [[unlikely]] {
    operation = operation_of(read, local_key(), kBlockingTag);
    return;
  }
  operation.kind = rdma::Operation::Kind::kRead;
  operation.context = kBlockingTag;
  operation.local = read.to;
  operation.local_key = read.local_key.value_or(local_key());
  operation.remote_address = read.from.address;
  operation.remote_key = read.from.remote_key;
}

Status Link::read(std::span<const ReadRequest> reads, const Deadline& deadline) {
  RKV_CHECK(reads.size() <= reads_.size(), "too many READs at once");
  std::size_t done = 0;
  while (done < reads.size() && alive_ && reads_at_once_ && !reads[done].swaps &&
         read_at_once(reads[done].to, reads[done].from)) {
    ++done;
  }
  if (done == reads.size()) return {};
  for (std::size_t i = done; i < reads.size(); ++i)
    prepare(reads[i], reads_[i]);
  return post_and_wait(std::span(reads_).subspan(done, reads.size() - done), deadline);
}

Status Link::post_and_wait(std::span<const rdma::Operation> reads, const Deadline& deadline) {
  std::size_t posted = 0;
  std::size_t landed = 0;
  for (;;) {
    if (posted < reads.size()) {
      RKV_ASSIGN_OR_RETURN(const std::size_t taken, post(reads.subspan(posted)));
      posted += taken;
    }
    const std::size_t arrived = queue_->poll(raw_);
    for (std::size_t i = 0; i < arrived; ++i) {
      if (is_landed(raw_[i])) [[likely]] {
        ++landed;
        continue;
      }
      Event event;
      if (to_event(raw_[i], event)) keep(event);
    }
    if (landed == reads.size()) return {};
    if (!alive_) return fail(Code::kDisconnected, kGone);
    if (arrived != 0) continue;
    if (!wait_in_time(deadline)) {
      close();
      return fail(Code::kTimeout, kLate);
    }
  }
}

// Operations of one connection complete in the order in which they were posted.
Link::Atomics Link::run_atomics(std::span<const rdma::Operation> operations,
                                const Deadline& deadline) {
  Atomics done;
  while (done.landed < operations.size()) {
    if (done.posted < operations.size()) {
      const auto taken = post(operations.subspan(done.posted));
      if (!taken) {
        done.ended = std::unexpected(taken.error());
        return done;
      }
      done.posted += *taken;
    }
    const auto events = take();
    for (const Event& event : events) {
      if (event.kind == Event::Kind::kRead) {
        ++done.landed;
      } else {
        keep(event);
      }
    }
    if (done.landed == operations.size() || !events.empty()) continue;
    if (!alive_) {
      done.ended = fail(Code::kDisconnected, kGone);
      return done;
    }
    if (deadline.passed()) {
      close();
      done.ended = fail(Code::kTimeout, kLate);
      return done;
    }
    wait(deadline);
  }
  return done;
}

// Waits for a slot and for space in the send queue; never returns kBusy.
Status Link::send_when_possible(const Request& request, const Deadline& deadline) {
  for (;;) {
    if (!alive_) return fail(Code::kDisconnected, kGone);
    if (const auto operation = requests_.begin(request, kBlockingTag)) {
      const auto taken = post({&*operation, 1});
      if (taken && *taken == 1) return {};
      requests_.cancel(*operation);
      if (!taken) return std::unexpected(taken.error());
    }
    const auto events = take();
    for (const Event& event : events)
      keep(event);
    if (!events.empty() || std::exchange(made_room_, false)) continue;
    if (!wait_in_time(deadline)) return fail(Code::kTimeout, kLate);
  }
}

bool Link::look_in_background(const RemoteRange& from) {
  if (!alive_ || look_ == Look::kUnderWay) return false;
  const auto operation = rdma::Operation::read(arena_->look(), local_key(), from.address,
                                               from.remote_key, kBackgroundTag);
  const auto taken = post({&operation, 1});
  if (!taken || *taken == 0) return false;
  look_ = Look::kUnderWay;
  return true;
}

std::optional<Bytes> Link::take_look() {
  if (look_ != Look::kLanded) return std::nullopt;
  look_ = Look::kNone;
  return Bytes(arena_->look());
}

// A short wait asks nothing. If the question has been due for long, nobody has waited since.
Nanos Link::ask_watch(Nanos now) {
  constexpr Nanos kLong = 10 * LinkWatch::kEvery;
  if (now < watch_at_ || !alive_) return watch_at_;
  if (now - watch_at_ < kLong && !watch_->may_wait()) {
    alive_ = false;
    connection_->abort();
    return now;
  }
  watch_at_ = now + LinkWatch::kEvery;
  return watch_at_;
}

void Link::wait_watched(const Deadline& deadline, Nanos now) {
  queue_->wait(Deadline(*clock_, std::min(deadline.at(), ask_watch(now))));
}

// Waits until something may have come. Returns false, without waiting, if the deadline has passed.
bool Link::wait_in_time(const Deadline& deadline) {
  const Nanos now = clock_->now();
  if (now >= deadline.at()) return false;
  if (watch_ == nullptr) [[likely]] {
    queue_->wait(deadline);
  } else {
    wait_watched(deadline, now);
  }
  return true;
}

bool Link::ping_in_background() {
  if (!alive_ || pings_ || requests_.credits() < 2) return false;
  const auto operation = requests_.begin({.opcode = Opcode::kPing}, kBackgroundTag);
  if (!operation) return false;
  const auto taken = post({&*operation, 1});
  pings_ = taken && *taken == 1;
  if (!pings_) requests_.cancel(*operation);
  return pings_;
}

Result<Reply> Link::call(const Request& request, const Deadline& deadline) {
  const std::size_t length = kRequestHeaderBytes + request.key.size() + request.value.size();
  if (alive_ && length > accept_.max_message_bytes) {
    return fail(Code::kTooLarge, "the request is longer than the server's limit");
  }
  RKV_RETURN_IF_ERROR(send_when_possible(request, deadline));
  const auto lost = [](Code code, const char* text) {
    return std::unexpected(
        Error{.code = code, .write = WriteOutcome::kMayHaveHappened, .text = text});
  };
  for (;;) {
    const auto events = take();
    const Event* answer = nullptr;
    for (const Event& event : events) {
      if (event.kind == Event::Kind::kReply && event.context == kBlockingTag) {
        answer = &event;
      } else {
        keep(event);
      }
    }
    if (answer != nullptr) return Reply(*this, *answer);
    if (!alive_) return lost(Code::kDisconnected, kGone);
    if (!events.empty() || std::exchange(made_room_, false)) continue;
    if (!wait_in_time(deadline)) {
      close();
      return lost(Code::kTimeout, kLate);
    }
  }
}

}  // namespace rkv::client
