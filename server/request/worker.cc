#include "server/request/worker.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/thread.h"

namespace rkv::server {

namespace {

// Fits a PUT's reply (64 bytes), small values and error texts.
constexpr std::uint32_t kInlineBytes = 128;
// Large values being fetched by a worker at a time. The worker itself copies and hashes them.
constexpr std::size_t kFetches = 16;
// A request fails after more loads than this. Its record was evicted each time before the request's
// turn, so memory is far too small.
constexpr std::uint32_t kMaxRounds = 8;
// Time limits when the worker stops. kAnswersMs: for the awaited marks, which the applier is asked
// to hurry. kArrivalMs: for replies to arrive; the host of a dead client never acknowledges them.
// kGoodbyeMs: for all connections to end.
constexpr std::int64_t kAnswersMs = 5000;
constexpr std::int64_t kArrivalMs = 1000;
constexpr std::int64_t kGoodbyeMs = 3000;

constexpr Error kLeaves{.code = Code::kNotPrimary,
                        .text = "another replica of the group is to be the primary"};

bool is_pack(Bytes message) {
  return !message.empty() &&
         static_cast<Opcode>(load_le<std::uint8_t>(message.data())) == Opcode::kPack;
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::create(const Parts& parts, const WorkerOptions& options) {
  const MessageBuffers room = MessageBuffers::of(parts.transport, options.clients);
  RKV_ASSIGN_OR_RETURN(
      auto queue, parts.transport.create_queue(
                      {.completions = room.receives + options.clients * (kOperationsInFlight + 2),
                       .receive_buffers = room.receives,
                       .receive_bytes = room.receive_bytes,
                       .poll = options.poll}));
  RKV_ASSIGN_OR_RETURN(auto pool,
                       SendPool::create(parts.transport, room.small_replies, room.large_replies));
  RKV_ASSIGN_OR_RETURN(auto long_requests,
                       LongRequestReader::create(parts.transport, room.long_requests));
  return std::unique_ptr<Worker>(new Worker(parts, options, room, std::move(queue), std::move(pool),
                                            std::move(long_requests)));
}

// Every container that a turn appends to gets its full capacity here, so turns do not allocate.
Worker::Worker(const Parts& parts, const WorkerOptions& options, const MessageBuffers& room,
               std::unique_ptr<rdma::Queue> queue, SendPool pool, LongRequestReader long_requests)
    : room_(room),
      cpu_(options.cpu),
      clock_(parts.clock),
      timings_(parts.clock, std::size_t{room.small_replies} + room.large_replies),
      queue_(std::move(queue)),
      stats_(parts.clock, parts.stats),
      handler_({.store = parts.store,
                .log = parts.log,
                .boot = parts.boot,
                .durability = parts.durability,
                .stats = [this] { return stats_.text(counters_.get(WorkerCounters::kTurns)); },
                .network = parts.network,
                .backups = parts.backups,
                .counter_flusher = parts.counter_flusher,
                .scans = parts.scans,
                .max_packed = room.max_packed,
                .rounds = parts.rounds,
                .lacks_copies = parts.lacks_copies}),
      large_put_receiver_(handler_, kFetches),
      long_(std::move(long_requests)),
      disk_fetcher_(parts.disk_fetcher),
      admin_(parts.revocations, parts.change_group),
      outcomes_(parts.outcomes),
      earlier_outcomes_(parts.earlier_outcomes),
      sessions_(options.clients, *queue_, parts.clock, counters_, parts.wait_until, parts.outcomes),
      replies_({.clock = parts.clock,
                .handler = handler_,
                .sessions = sessions_,
                .counters = counters_,
                .timings = timings_},
               std::move(pool), options.clients),
      pending_({.handler = handler_,
                .replies = replies_,
                .log = parts.log,
                .counter_flusher = parts.counter_flusher,
                .make_durable = parts.make_durable},
               std::size_t{options.clients} * kMaxCredits),
      waiting_requests_(room.receives + room.long_requests) {
  released_.reserve(room.receives + room.long_requests);
  fetched_.reserve(kFetches);
}

Worker::~Worker() {
  RKV_CHECK(!thread_.joinable(), "a worker is destroyed while it runs");
  sessions_.destroy_connections();  // before the memory that they READ into
  large_put_receiver_.drop_all(nullptr, [](std::uint32_t) {});
}

void Worker::start() {
  thread_ = std::thread([this] { run(); });
}

void Worker::begin_stop() {
  stopping_.store(true, std::memory_order_release);
  queue_->wake();
}

void Worker::leave() {
  leaving_.store(true, std::memory_order_release);
  queue_->wake();
}

void Worker::stop() {
  begin_stop();
  if (thread_.joinable()) thread_.join();
}

void Worker::run() {
  name_thread("rkv-worker");
  if (cpu_) (void)stay_on(*cpu_);  // existed when the options were parsed
  while (!stopping_.load(std::memory_order_acquire)) {
    // Completions and wake-ups end all waits except those that end by time (SERVE-8, SERVE-9).
    if (poll_once() != 0) continue;
    const Nanos now = clock_.now();
    timings_.at(now);
    queue_->wait(Deadline(clock_, stats_.wait_until(now + 1000 * kNanosPerMs)));
  }
  finish();
}

// Atomics are for hint words and counter cells. The device refuses those of a reader, whichever
// keys it knows.
rdma::ConnectionOptions Worker::connection_options(Role role) const {
  return {
      .sends_in_flight = kOperationsInFlight,
      .inline_bytes = kInlineBytes,
      .send_bytes = kMaxMessageBytes,
      .grant = role == Role::kRead ? rdma::Access::kRemoteRead : rdma::Access::kRemoteReadAtomic,
      .peer_grants_reads = true};
}

void Worker::wake_for_answers() {
  if (waiting_.exchange(false, std::memory_order_acq_rel)) queue_->wake();
}

void Worker::begin_turn() {
  turn_started_ = clock_.now();
  handler_.set_time(turn_started_);
}

void Worker::collect_mail() {
  if (!sessions_.has_mail()) [[likely]]
    return;
  begin_turn();  // the early messages are taken now
  for (const rdma::Completion& completion : sessions_.collect_mail())
    on_completion(completion);
}

std::size_t Worker::poll_once() {
  counters_.add(WorkerCounters::kTurns);
  packs_wait_ = false;
  collect_mail();
  const std::size_t count = queue_->poll(completions_);
  if (count != 0) {
    begin_turn();
    timings_.at(turn_started_);  // ends the previous turn's timings
  }
  has_seen_all_ = false;
  for (const rdma::Completion& completion : std::span(completions_).first(count))
    on_completion(completion);
  has_seen_all_ = count < completions_.size();
  // From here on requests that already wait come first (SERVE-3).
  replies_.serve_waiting_first();
  stats_.forget_waiting();
  long_wanted_ = false;
  if (!fetched_.empty()) [[unlikely]]
    finish_fetches();
  if (!large_put_receiver_.is_idle()) [[unlikely]]
    drop_slow_writers();
  serve_those_that_wait();
  pending_.ask_for_marks();
  answer_waiters();
  replies_.post();
  if (!released_.empty()) {
    queue_->release(released_);
    released_.clear();
  }
  if (leaving_.load(std::memory_order_acquire)) [[unlikely]]
    note_quiet();
  return count + (packs_wait_ ? 1 : 0);
}

// The requests to wait for include one that this turn has begun because it did not see leave() yet.
void Worker::note_quiet() {
  const bool waits = waiting_requests_.some_for_buffers() || waiting_requests_.some_for_loads();
  const bool reads = !large_put_receiver_.is_idle() || long_.free() != long_.count();
  if (reads) {
    drop_overdue(long_.overdue(clock_.now()));
    drop_overdue(large_put_receiver_.overdue(clock_.now()));
  }
  quiet_.store(!waits && !reads && !pending_.delays_stop(), std::memory_order_release);
}

void Worker::on_completion(const rdma::Completion& completion) {
  auto* const session = static_cast<Session*>(completion.connection->owner);
  if (session == nullptr) [[unlikely]]
    return sessions_.keep_early(completion);
  if (completion.status != rdma::Completion::Status::kOk) [[unlikely]]
    counters_.failed(completion.kind, completion.status);
  switch (completion.kind) {
    case rdma::Completion::Kind::kReceive:
      on_receive(completion, *session);
      break;
    case rdma::Completion::Kind::kSend:
      replies_.on_sent(completion, *session);
      break;
    case rdma::Completion::Kind::kDisconnected:
      on_disconnected(*session);
      break;
    case rdma::Completion::Kind::kRead:
      on_read(completion, *session);
      break;
    default:
      RKV_CHECK(false, "a completion of something the server never posts");
  }
}

void Worker::on_receive(const rdma::Completion& completion, Session& session) {
  if (session.place != nullptr) session.place->heard(turn_started_);
  const bool usable =
      completion.status == rdma::Completion::Status::kOk && !session.ending && taking_;
  if (usable && session.unanswered >= session.credits) {
    sessions_.drop(session, DropReason::kCredits);
  } else if (usable) {
    ++session.unanswered;
    counters_.add(WorkerCounters::kReceived);
    return take({.session = &session,
                 .message = completion.message,
                 .buffer = completion.receive_buffer,
                 .taken = turn_started_});
  }
  release(completion.receive_buffer);
}

void Worker::on_disconnected(Session& session) {
  session.ending = true;
  const auto release_buffer = [this](std::uint32_t buffer) { release(buffer); };
  replies_.discard(session);
  pending_.drop(session);
  waiting_requests_.drop(&session, release_buffer);
  std::erase_if(fetched_, [&](const Fetch* fetch) { return fetch->session == &session; });
  counters_.add(WorkerCounters::kEnded);
  counters_.add(WorkerCounters::kReturned, session.credits);
  counters_.add(WorkerCounters::kAbandoned, session.unanswered);
  log_info(EventName("client_gone"), "the connection of client {} \"{}\" has ended",
           field("peer", session.connection->peer()), field("name", session.name),
           field("session", session.shown_id()));
  // Before the memory that it READs into and sends from is reused (PUTLARGE-1).
  session.connection.reset();
  large_put_receiver_.drop_all(&session, release_buffer);
  long_.drop_all(session);
  sessions_.remove(session);
}

void Worker::take(const ReceivedRequest& request) {
  Session& session = *request.session;
  const bool goes_behind = session.packs_waiting != 0 && is_pack(request.message);
  packs_wait_ = packs_wait_ || goes_behind;
  const Served served = goes_behind ? Served::kNextTurn : serve(request);
  if (!is_for_later(served)) [[likely]]
    return;
  const bool awaits_turn = served == Served::kNextTurn;
  if (awaits_turn) {
    ++session.packs_waiting;
  } else {
    counters_.add(WorkerCounters::kDeferred);
  }
  waiting_requests_.add(
      {.request = request, .large = served == Served::kNoLarge, .awaits_turn = awaits_turn});
}

void Worker::release(std::uint32_t receive_buffer) {
  if (LongRequestReader::is_one(receive_buffer)) [[unlikely]]
    return long_.give_back(receive_buffer);
  released_.push_back(receive_buffer);
}

// A request in a long buffer has room kept for its answer (LONG-4).
bool Worker::has_room_for_small(const ReceivedRequest& request) const {
  return LongRequestReader::is_one(request.buffer) || replies_.has_room(*request.session);
}

bool Worker::has_room_for(const ReceivedRequest& request) {
  const Session& session = *request.session;
  const Bytes message = request.message;
  if (!has_room_for_small(request)) return false;
  if (message.empty()) return true;
  switch (static_cast<Opcode>(load_le<std::uint8_t>(message.data()))) {
    case Opcode::kPutLarge:
      return has_room_for_large(session);
    case Opcode::kLong:
      return has_room_for_long();
    case Opcode::kStats:
      return stats_.has_time(counters_.get(WorkerCounters::kTurns));
    case Opcode::kPack:  // its writes are executed once, so its reply must have room before
      return replies_.is_large_free(session) ||
             replies_.has_room_for_value(session, pack_reply_bytes(message));
    default:
      return true;
  }
}

// Releases the buffer of a request that is done.
Served Worker::serve(const ReceivedRequest& request, DiskLookup look, std::uint32_t rounds) {
  if (is_refused_on_leaving(request.message)) [[unlikely]] {
    if (!has_room_for_small(request)) return Served::kNoRoom;
    refuse(request, kLeaves);
    release(request.buffer);
    return Served::kDone;
  }
  if (is_pack(request.message) && has_had_its_pack(*request.session)) {
    packs_wait_ = true;
    return Served::kNextTurn;
  }
  Served served =
      has_room_for(request) ? execute(request, look, rounds) : Served::kNoRoom;  // (SERVE-3)
  if (is_for_later(served) && LongRequestReader::is_one(request.buffer)) [[unlikely]] {
    // Otherwise its client, which may take no replies, would keep the long buffer from others
    // (LONG-4).
    refuse(request, {.code = Code::kBusy, .text = "the server has no room for the answer now"});
    served = Served::kDone;
  }
  if (served == Served::kDone) release(request.buffer);
  return served;
}

// A kLong message is not refused: it names a request that is READ first, and the answer belongs to
// that one.
bool Worker::is_refused_on_leaving(Bytes message) const {
  if (!leaving_.load(std::memory_order_acquire)) [[likely]]
    return false;
  return message.size() >= kRequestHeaderBytes &&
         static_cast<Opcode>(load_le<std::uint8_t>(message.data())) != Opcode::kLong;
}

// Answers a request that was not executed. REQUIRES: has_room_for_small().
void Worker::refuse(const ReceivedRequest& request, const Error& error) {
  (void)replies_.send(*request.session, RequestHandler::not_executed(request.message, error),
                      request.taken);
}

// Requests that await something, or are READ, are counted when they are answered.
Served Worker::execute(const ReceivedRequest& request, DiskLookup look, std::uint32_t rounds) {
  Session& session = *request.session;
  RequestHandler::Answer answer =
      handler_.handle(request.message, session.role, look, session.tag());
  if (answer.response.opcode == Opcode::kPack) {
    session.pack_turn = counters_.get(WorkerCounters::kTurns);
  }
  keep(session, answer);
  if (std::holds_alternative<RequestHandler::Reply>(answer.next)) {
    if (!replies_.send(session, answer.response, request.taken, {.packed = answer.packed}))
      return Served::kNoLarge;
    if (answer.malformed) counters_.add(WorkerCounters::kMalformed);
    return Served::kDone;
  }
  if (PendingReplies::is_for(answer)) {
    pending_.add(session, std::move(answer), request.taken);
    return Served::kDone;
  }
  if (const auto* const load = std::get_if<RequestHandler::AwaitLoad>(&answer.next)) {
    await_load(request, load->key, rounds);
    return Served::kLoading;
  }
  if (const auto* const longer = std::get_if<RequestHandler::ReadRequest>(&answer.next)) {
    if (!begin_long(session, longer->source, answer.response.sequence))
      sessions_.drop(session, std::nullopt);
    return Served::kDone;  // the receive buffer is free again
  }
  if (const auto* const asked = std::get_if<RequestHandler::FindOutcome>(&answer.next)) {
    return answer_outcome(request, *asked);
  }
  if (auto* const fetch = std::get_if<RequestHandler::FetchValue>(&answer.next)) {
    // If no READ could be posted, the connection is already dead and the fetch ends with it.
    if (!large_put_receiver_.begin(session, request.message, request.buffer, std::move(*fetch),
                                   request.taken, clock_.now()))
      sessions_.drop(session, std::nullopt);
    return Served::kFetching;
  }
  if (std::holds_alternative<RequestHandler::AdminRequest>(answer.next)) {
    begin_admin_request(request, std::move(answer));
    return Served::kDone;
  }
  on_malformed(session, DropReason::kMalformed);  // Disconnect
  return Served::kDone;
}

// REQUIRES: has_room_for_small(), and that the answer's next step is AdminRequest.
void Worker::begin_admin_request(const ReceivedRequest& request, RequestHandler::Answer answer) {
  const std::string_view name = std::get<RequestHandler::AdminRequest>(answer.next).name;
  auto begun = admin_.begin(answer.response.opcode, name, request.session->user.get());
  if (!begun) return refuse(request, begun.error());
  if (*begun == nullptr) {
    (void)replies_.send(*request.session, answer.response, request.taken);
    return;
  }
  answer.next = std::move(*begun);
  pending_.add(*request.session, std::move(answer), request.taken);
}

// Keeps what a write has done, right after it was applied (ONCE-1).
void Worker::keep(Session& session, const RequestHandler::Answer& answer) {
  const Response& response = answer.response;
  if (response.code != 0 || !traits_of(response.opcode).kept) return;
  const Bytes value = handler_.outcome_of(answer);
  const bool only_reads = response.opcode == Opcode::kPack && value.empty();
  if (session.outcomes == nullptr || only_reads) return;
  RKV_CHECK(!session.ending, "ONCE-2");
  session.outcomes->keep(response, value, RequestHandler::mark_of(answer));
}

// Changes nothing, so it is repeated if there was no room for the answer (SERVE-3).
Served Worker::answer_outcome(const ReceivedRequest& request,
                              const RequestHandler::FindOutcome& asked) {
  Session& session = *request.session;
  const auto outcomes =
      outcomes_ == nullptr ? nullptr : outcomes_->find(asked.write.session, session.user.get());
  const bool is_of_earlier_primary = earlier_outcomes_ != nullptr && asked.since != Version{};
  RequestHandler::Answer answer =
      is_of_earlier_primary
          ? handler_.found_in_log(asked,
                                  earlier_outcomes_->find(asked.write.session, session.user_digest,
                                                          asked.write.sequence, asked.since))
          : handler_.found(asked, outcomes.get());  // the answer refers to the outcomes
  if (PendingReplies::is_for(answer)) {
    pending_.add(session, std::move(answer), request.taken);
    return Served::kDone;
  }
  return replies_.send(session, answer.response, request.taken) ? Served::kDone : Served::kNoLarge;
}

void Worker::on_malformed(Session& session, DropReason why) {
  counters_.add(WorkerCounters::kMalformed);
  sessions_.drop(session, why);
}

// ---- requests and replies that wait ----

void Worker::await_load(const ReceivedRequest& request, Bytes key, std::uint32_t rounds) {
  RKV_CHECK(disk_fetcher_ != nullptr, "a store without a disk has no records there");
  waiting_requests_.add(
      {.request = request, .rounds = rounds + 1, .load = disk_fetcher_->ask(key)});
}

Served Worker::serve_waiting(const WaitingRequests::Waiting& waiting) {
  const ReceivedRequest& request = waiting.request;
  Session& session = *request.session;
  if (session.ending) {
    release(request.buffer);
    return Served::kDone;
  }
  const Load* const load = waiting.load.get();
  if (load != nullptr && !has_room_for_small(request)) return Served::kNoRoom;
  // Do not execute the request again while there is no large buffer for its reply.
  if (waiting.large && !replies_.has_large(session)) return Served::kNoLarge;
  if (load == nullptr) {
    const Served served = serve(request);
    if (waiting.awaits_turn && !is_for_later(served)) --session.packs_waiting;
    return served;
  }
  std::optional<Error> failure = load->failure();
  if (!failure && waiting.rounds > kMaxRounds) {
    failure = Error{.code = Code::kBusy, .text = "the server's memory is too small: try again"};
  }
  if (!failure) return serve(request, load->look(), waiting.rounds);
  refuse(request, *failure);
  release(request.buffer);
  return Served::kDone;
}

// Held replies and requests take turns at the large buffers. If one kind always came first, it
// could take every buffer that becomes free (SERVE-8).
void Worker::serve_those_that_wait() {
  if (held_first_ && pending_.some_for_buffers()) [[unlikely]] {
    const std::size_t free = replies_.large_free();
    pending_.answer();
    held_first_ = replies_.large_free() == free;
  }
  const std::size_t free = replies_.large_free();
  // Before newer requests; answer_waiters() repeats it for later loads (SERVE-5).
  if (waiting_requests_.some_for_loads()) [[unlikely]]
    retry_loaded();
  if (waiting_requests_.some_for_buffers()) [[unlikely]]
    retry_waiting();
  held_first_ = held_first_ || replies_.large_free() != free;
}

void Worker::retry_loaded() {
  waiting_requests_.retry_loaded(
      [this](const WaitingRequests::Waiting& waiting) { return serve_waiting(waiting); });
}

// Repeats if a long request's buffer was freed: nothing else may start a turn in which an earlier
// request finds it.
void Worker::retry_waiting() {
  while (waiting_requests_.some_for_buffers()) {
    const std::size_t free_before = long_.free();
    long_wanted_ = false;
    waiting_requests_.retry_for_buffers(
        [this](const WaitingRequests::Waiting& waiting) { return serve_waiting(waiting); });
    if (long_.free() <= free_before) return;
  }
}

void Worker::answer_waiters() {
  const auto none_waits = [&] {
    return pending_.empty() && !waiting_requests_.some_for_loads() && !await_disk_;
  };
  if (none_waits()) [[likely]]
    return;
  handler_.set_time(clock_.now());  // a wake-up without completions has not set it
  waiting_.exchange(true, std::memory_order_acq_rel);  // before the marks are read (SERVE-5)
  const std::size_t free_before = long_.free();
  if (await_disk_) finish_fetches();
  retry_loaded();
  // No other event may start a turn in which a waiting long request finds the freed buffer.
  if (long_.free() > free_before) retry_waiting();
  pending_.answer();
  if (none_waits()) waiting_.store(false, std::memory_order_relaxed);  // saves a wake-up
}

// ---- what is READ from clients: large values, and requests too long to be sent ----

void Worker::on_read(const rdma::Completion& completion, Session& session) {
  if (LongRequestReader::is_one(completion.context)) return on_long_read(completion, session);
  const bool arrived = completion.status == rdma::Completion::Status::kOk;
  if (!arrived) read_failed(completion, session);
  Fetch* const fetch = large_put_receiver_.on_read(completion.context, arrived, clock_.now());
  if (fetch == nullptr) return;
  if (!fetch->complete()) return end_fetch(*fetch);
  fetched_.push_back(fetch);
}

void Worker::on_long_read(const rdma::Completion& completion, Session& session) {
  const LongRequestReader::Arrived arrived = long_.on_read(completion.context);
  const auto buffer = static_cast<std::uint32_t>(completion.context);
  if (completion.status != rdma::Completion::Status::kOk) read_failed(completion, session);
  if (session.ending || !taking_) return release(buffer);
  if (!arrived.as_announced) {
    on_malformed(session, DropReason::kLong);
    return release(buffer);
  }
  take({.session = &session, .message = arrived.message, .buffer = buffer, .taken = arrived.since});
}

void Worker::read_failed(const rdma::Completion& completion, Session& session) {
  if (session.ending) return;
  if (completion.status == rdma::Completion::Status::kRemoteAccess) {
    return sessions_.drop(session, DropReason::kUnreadable);
  }
  log_debug(EventName("client_memory_unreadable"),
            "client {}: its memory could not be read: {} (provider status {})",
            session.connection->peer(), rdma::to_string(completion.status),
            completion.provider_status);
  session.ending = true;  // kDisconnected follows
}

// The request that has waited longest gets the next buffer. Without any buffers the answer is true:
// begin_long() refuses the request.
bool Worker::has_room_for_long() {
  if (long_.count() == 0) return true;
  if (!long_wanted_ && long_.free() != 0) return true;
  drop_overdue(long_.overdue(clock_.now()));  // LONG-5
  long_wanted_ = true;
  return false;
}

bool Worker::has_room_for_large(const Session& session) {
  if (!large_put_receiver_.has_free())
    drop_overdue(large_put_receiver_.overdue(clock_.now()));  // PUTLARGE-5
  return large_put_receiver_.has_room(session);
}

// PUTLARGE-5. The waiting clients may belong to other workers.
void Worker::drop_slow_writers() {
  const std::uint64_t refused = handler_.large_values_refused();
  if (refused == large_refused_ || !has_seen_all_) return;
  large_refused_ = refused;
  drop_overdue(large_put_receiver_.overdue(clock_.now()));
}

// Drops no client before all that has arrived was looked at: it may have come while this thread
// stood still.
void Worker::drop_overdue(Session* late) {
  if (late != nullptr && has_seen_all_) sessions_.drop(*late, DropReason::kOverdue);
}

// Returns false if the caller must drop the client.
bool Worker::begin_long(Session& session, const MessageSource& source, std::uint64_t sequence) {
  if (long_.count() != 0) {
    counters_.add(WorkerCounters::kLongRequests);
    return long_.begin(session, source, sequence, clock_.now());
  }
  on_malformed(session, DropReason::kLong);
  return true;
}

// Gives the store's block and the receive buffer back, and drops the client.
void Worker::end_fetch(Fetch& fetch) {
  sessions_.drop(*fetch.session, std::nullopt);
  release(fetch.receive_buffer);
  large_put_receiver_.drop(fetch);
}

void Worker::finish_fetches() {
  std::size_t kept = 0;
  await_disk_ = false;
  for (Fetch* const fetch : fetched_) {
    Session& session = *fetch->session;
    const std::uint32_t buffer = fetch->receive_buffer;
    const Nanos taken = fetch->taken;
    if (session.ending) {  // (PUTLARGE-4)
      end_fetch(*fetch);
      continue;
    }
    // Values that wait for the disk are served oldest first.
    const bool waits = await_disk_ || !replies_.has_room(session);
    auto answer = waits ? std::nullopt : large_put_receiver_.finish(*fetch);
    if (!answer) {
      await_disk_ = await_disk_ || fetch->awaits_disk;
      fetched_[kept++] = fetch;
      continue;
    }
    keep(session, *answer);
    if (PendingReplies::is_for(*answer)) {
      pending_.add(session, std::move(*answer), taken);
    } else {
      (void)replies_.send(session, answer->response, taken);  // a small reply
    }
    release(buffer);
  }
  fetched_.resize(kept);
}

// ---- the end ----

template <class Condition>
void Worker::turn_while(Condition condition, std::int64_t at_most_ms) {
  const Deadline deadline = Deadline::after_ms(clock_, at_most_ms);
  for (;;) {
    const std::size_t completions = poll_once();
    if (!condition() || deadline.passed()) return;
    if (completions == 0) queue_->wait(Deadline::after_ms(clock_, 10));
  }
}

void Worker::finish() {
  collect_mail();
  taking_ = leaving_.load(std::memory_order_acquire);
  replies_.signal_all();
  waiting_requests_.drop(nullptr, [this](std::uint32_t buffer) { release(buffer); });
  if (!given_up_.load(std::memory_order_acquire))
    turn_while([this] { return pending_.delays_stop(); }, kAnswersMs);
  turn_while([this] { return replies_.has_unsent(); }, kArrivalMs);
  for (const auto& session : sessions_.all())
    sessions_.drop(*session, std::nullopt);
  turn_while([this] { return !sessions_.all().empty(); }, kGoodbyeMs);
  sessions_.destroy_connections();  // (PUTLARGE-1)
  large_put_receiver_.drop_all(nullptr, [](std::uint32_t) {});
  fetched_.clear();
  sessions_.clear();
}

}  // namespace rkv::server
