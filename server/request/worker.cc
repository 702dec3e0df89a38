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

}  // namespace

Result<std::unique_ptr<Worker>> Worker::create(const Parts& parts, const WorkerOptions& options) {
  const MessageBuffers room = MessageBuffers::of(parts.transport, options.clients);
  RKV_ASSIGN_OR_RETURN(
      auto queue, parts.transport.create_queue(
                      {.completions = room.receives + options.clients * (kOperationsInFlight + 1),
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
      options_(options),
      clock_(parts.clock),
      log_(parts.log),
      make_durable_(parts.make_durable),
      wait_until_(parts.wait_until),
      counter_flusher_(parts.counter_flusher),
      stats_(parts.stats),
      handler_(
          parts.store, parts.log, parts.boot, parts.durability, [this] { return make_stats(); },
          parts.network, parts.backups, parts.counter_flusher, parts.scans),
      large_put_receiver_(handler_, kFetches),
      timings_(parts.clock, std::size_t{room.small_replies} + room.large_replies),
      queue_(std::move(queue)),
      pool_(std::move(pool)),
      long_(std::move(long_requests)),
      disk_fetcher_(parts.loads) {
  const std::uint32_t receives = room.receives + room.long_requests;
  sessions_.reserve(options.clients);
  released_.reserve(receives);
  waiting_requests_.reserve(receives);
  held_.reserve(std::size_t{options.clients} * kMaxCredits);
  awaiting_.reserve(receives);
  loading_.reserve(receives);
  dirty_.reserve(options.clients);
  fetched_.reserve(kFetches);
}

Worker::~Worker() {
  RKV_CHECK(!thread_.joinable(), "a worker is destroyed while it runs");
  for (const auto& session : sessions_)
    session->connection.reset();  // before their queue, and before the memory that they READ into
  large_put_receiver_.drop_all(nullptr, [](std::uint32_t) {});
  sessions_.clear();
  arrivals_.clear();
}

void Worker::start() {
  thread_ = std::thread([this] { run(); });
}

void Worker::begin_stop() {
  stopping_.store(true, std::memory_order_release);
  queue_->wake();
}

void Worker::stop() {
  begin_stop();
  if (thread_.joinable()) thread_.join();
}

void Worker::run() {
  name_thread("rkv-worker");
  if (options_.cpu) (void)stay_on(*options_.cpu);  // existed when the options were parsed
  while (!stopping_.load(std::memory_order_acquire)) {
    // Completions and wake-ups end all waits except those that end by time (K8, K9).
    if (poll_once() != 0) continue;
    const Nanos now = clock_.now();
    timings_.at(now);
    const Nanos latest = now + 1000 * kNanosPerMs;
    queue_->wait(
        Deadline(clock_, stats_wanted_ ? std::min(latest, stats_share_.again_at()) : latest));
  }
  finish();
}

bool Worker::reserve_client() {
  // Only the acceptor reserves, so no other thread takes the place between the load and the add.
  if (clients_.load(std::memory_order_relaxed) >= options_.clients) return false;
  clients_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Worker::cancel_client() {
  clients_.fetch_sub(1, std::memory_order_relaxed);
}

rdma::ConnectionOptions Worker::connection_options() const {
  return {.sends_in_flight = kOperationsInFlight,
          .inline_bytes = kInlineBytes,
          .send_bytes = kMaxMessageBytes,
          .grant = rdma::Access::kRemoteReadAtomic};  // for hint words and counter cells
}

void Worker::adopt(NewClient client) {
  {
    const std::lock_guard lock(mutex_);
    arrivals_.push_back(std::move(client));
  }
  mail_.store(true, std::memory_order_release);
  queue_->wake();
}

void Worker::marks_changed() {
  if (waiting_.exchange(false, std::memory_order_acq_rel)) queue_->wake();
}

bool Worker::end_session(std::uint64_t id, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  to_end_.push_back(id);
  const std::uint64_t ticket = ++ends_asked_;
  mail_.store(true, std::memory_order_release);
  queue_->wake();
  const auto done = [&] { return ends_done_.load(std::memory_order_acquire) >= ticket; };
  if (wait_until_) {
    lock.unlock();
    wait_until_(done, deadline);
    return done();
  }
  return ended_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms()), done);
}

void Worker::give_up(std::uint64_t session) {
  {
    const std::lock_guard lock(mutex_);
    given_up_.push_back(session);
  }
  mail_.store(true, std::memory_order_release);
  queue_->wake();
}

void Worker::collect_mail() {
  if (!mail_.exchange(false, std::memory_order_acquire)) return;
  std::vector<NewClient> arrivals;
  std::vector<std::uint64_t> to_end;
  std::vector<std::uint64_t> given_up;
  {
    const std::lock_guard lock(mutex_);
    arrivals.swap(arrivals_);
    to_end.swap(to_end_);
    given_up.swap(given_up_);
  }
  begin_turn();  // the early messages below are taken now
  for (NewClient& arrival : arrivals)
    admit(std::move(arrival));
  end_sessions(to_end, std::nullopt);  // before the messages that they sent are served
  end_sessions(given_up, DropReason::kSilent);
  if (!to_end.empty()) {
    {
      const std::lock_guard lock(mutex_);
      ends_done_.fetch_add(to_end.size(), std::memory_order_release);
    }
    ended_.notify_all();
  }
  // Messages that these clients sent before adopt(), in order of arrival.
  std::vector<rdma::Completion> early;
  early.swap(early_);
  for (const rdma::Completion& completion : early)
    on_completion(completion);
}

void Worker::admit(NewClient arrival) {
  auto session = std::make_unique<Session>();
  session->connection = std::move(arrival.connection);
  session->id = arrival.session;
  session->credits = arrival.credits;
  session->name = std::move(arrival.name);
  session->place = std::move(arrival.place);
  session->replies.reserve(kRepliesInFlight);
  session->connection->owner = session.get();
  counters_.add(WorkerCounters::kAccepted);
  counters_.add(WorkerCounters::kGranted, session->credits);
  log_info(EventName("client_connected"), "client {} \"{}\" connected, session {}",
           field("peer", session->connection->peer()), field("name", session->name),
           field("session", session->shown_id()));
  sessions_.push_back(std::move(session));
  Session& admitted = *sessions_.back();
  // give_up() may have run before the client arrived.
  if (admitted.place != nullptr && admitted.place->is_going()) drop(admitted, DropReason::kSilent);
}

// From here on no request of these sessions begins: received and waiting ones are dropped.
void Worker::end_sessions(const std::vector<std::uint64_t>& ids, Why why) {
  if (ids.empty()) return;
  for (const auto& session : sessions_)
    if (std::ranges::find(ids, session->id) != ids.end()) drop(*session, why);
}

void Worker::begin_turn() {
  turn_started_ = clock_.now();
  handler_.set_time(turn_started_);
}

std::size_t Worker::poll_once() {
  counters_.add(WorkerCounters::kTurns);
  collect_mail();
  const std::size_t count = queue_->poll(completions_);
  if (count != 0) {
    begin_turn();
    timings_.at(turn_started_);  // ends the previous turn's timings
  }
  for (const rdma::Completion& completion : std::span(completions_).first(count))
    on_completion(completion);
  // From here on the requests that already wait come first (K3).
  large_wanted_ = long_wanted_ = stats_wanted_ = false;
  finish_fetches();
  answer_loaded();  // before newer requests; answer_waiters() repeats it for later loads (K5)
  retry_waiting();
  ask_for_marks();
  answer_waiters();
  post_replies();
  if (!released_.empty()) {
    queue_->release(released_);
    released_.clear();
  }
  return count;
}

void Worker::on_completion(const rdma::Completion& completion) {
  auto* const session = static_cast<Session*>(completion.connection->owner);
  if (session == nullptr) [[unlikely]] {
    // Accepted, but adopt() has not delivered it yet. At most its credits plus its disconnect.
    early_.push_back(completion);
    return;
  }
  if (completion.status != rdma::Completion::Status::kOk) [[unlikely]]
    counters_.failed(completion.kind, completion.status);
  switch (completion.kind) {
    case rdma::Completion::Kind::kReceive:
      on_receive(completion, *session);
      break;
    case rdma::Completion::Kind::kSend:
      on_sent(completion, *session);
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
    drop(session, DropReason::kCredits);
  } else if (usable) {
    ++session.unanswered;
    counters_.add(WorkerCounters::kReceived);
    taken_ = turn_started_;
    return take(session, completion.message, completion.receive_buffer);
  }
  release(completion.receive_buffer);
}

void Worker::take(Session& session, Bytes message, std::uint32_t receive_buffer) {
  const Served served = serve(session, message, receive_buffer);
  switch (served) {
    case Served::kDone:
      return release(receive_buffer);
    case Served::kLoading:
    case Served::kFetching:
      return;
    case Served::kNoRoom:
    case Served::kNoLarge:
      counters_.add(WorkerCounters::kDeferred);
      waiting_requests_.push_back({.session = &session,
                                   .message = message,
                                   .receive_buffer = receive_buffer,
                                   .large = served == Served::kNoLarge,
                                   .taken = taken_});
      return;
  }
}

void Worker::release(std::uint32_t receive_buffer) {
  if (LongRequestReader::is_one(receive_buffer)) [[unlikely]]
    return long_.give_back(receive_buffer);
  released_.push_back(receive_buffer);
}

Worker::Served Worker::serve(Session& session, Bytes message, std::uint32_t receive_buffer,
                             DiskLookup look, std::uint32_t rounds) {
  if (!has_room_for(session, message)) return Served::kNoRoom;  // (K3)
  RequestHandler::Answer answer = handler_.handle(message, look);
  switch (answer.next) {
    case RequestHandler::Next::kReply:
      if (!reply(session, answer.response)) return Served::kNoLarge;
      break;
    case RequestHandler::Next::kAwaitMark:
    case RequestHandler::Next::kAwaitBackup:
    case RequestHandler::Next::kAwaitSweep:
    case RequestHandler::Next::kAwaitPage:
      hold(session, answer);
      return Served::kDone;  // counted when it is answered
    case RequestHandler::Next::kAwaitLoad:
      await_load(session, message, receive_buffer, answer.key, rounds);
      return Served::kLoading;
    case RequestHandler::Next::kReadRequest:
      // Counted when it is answered. The receive buffer is free again.
      if (!begin_long(session, answer)) drop(session, std::nullopt);
      return Served::kDone;
    case RequestHandler::Next::kFetch:
      // Counted when it is answered. If no READ could be posted, the connection is already dead and
      // the fetch ends with it.
      if (!large_put_receiver_.begin(session, message, receive_buffer, std::move(answer), taken_))
        drop(session, std::nullopt);
      return Served::kFetching;
    case RequestHandler::Next::kDisconnect:
      counters_.add(WorkerCounters::kMalformed);
      drop(session, DropReason::kMalformed);
      return Served::kDone;
  }
  if (answer.malformed) counters_.add(WorkerCounters::kMalformed);
  count(answer.response);
  return Served::kDone;
}

bool Worker::has_time_for_stats() {
  if (stats_turn_ == counters_.get(WorkerCounters::kTurns)) return true;
  if (stats_share_.has_some(clock_.now())) return true;
  stats_wanted_ = true;
  return false;
}

std::string Worker::make_stats() {
  const std::uint64_t turn = counters_.get(WorkerCounters::kTurns);
  if (std::exchange(stats_turn_, turn) == turn) return stats_text_;
  const Nanos began = clock_.now();
  stats_text_ = stats_();
  stats_share_.spend(clock_.now() - began);
  return stats_text_;
}

void Worker::count(const Response& response, Durability level) {
  counters_.answered(response.opcode, response.code);
  timings_.answered(response.opcode, taken_);
  if (level == Durability::kMemory || response.code != 0 || response.opcode == Opcode::kFlush)
    return;
  counters_.add(level == Durability::kWal ? WorkerCounters::kWalWrites
                                          : WorkerCounters::kSyncWrites);
}

void Worker::drop(Session& session, Why why) {
  if (session.ending) return;
  session.ending = true;
  if (why) {
    counters_.dropped(*why);
    if (*why != DropReason::kSilent && session.place != nullptr)
      session.place->offended(clock_.now());
    log_warn(EventName("client_dropped"), "client {} \"{}\" is disconnected: {}",
             field("peer", session.connection->peer()), field("name", session.name),
             field("why", sentence_of(*why)));
  }
  session.connection->abort();
}

// Repeats if a long request's buffer was freed: nothing else may start a turn in which an earlier
// request finds it.
void Worker::retry_waiting() {
  while (!waiting_requests_.empty()) [[unlikely]] {
    const std::size_t free_before = long_.free();
    long_wanted_ = false;
    retry_waiting_once();
    if (long_.free() <= free_before) return;
  }
}

void Worker::retry_waiting_once() {
  std::size_t kept = 0;
  for (const Waiting& waiting : waiting_requests_) {
    taken_ = waiting.taken;
    Served served = Served::kDone;
    if (!waiting.session->ending) {
      // Do not execute it again while there is no large buffer for its reply.
      served = waiting.large && !has_large_for(*waiting.session)
                   ? Served::kNoLarge
                   : serve(*waiting.session, waiting.message, waiting.receive_buffer);
    }
    if (served == Served::kDone) release(waiting.receive_buffer);
    if (served != Served::kNoRoom && served != Served::kNoLarge) continue;
    Waiting& still = waiting_requests_[kept++];
    still = waiting;
    still.large = still.large || served == Served::kNoLarge;
  }
  waiting_requests_.resize(kept);
}

void Worker::on_disconnected(Session& session) {
  session.ending = true;
  post_replies(session);  // gives the replies' buffers back
  std::erase(dirty_, &session);
  std::erase_if(held_, [&](const Held& held) { return held.session == &session; });
  std::erase_if(waiting_requests_, [&](const Waiting& waiting) {
    if (waiting.session == &session) release(waiting.receive_buffer);
    return waiting.session == &session;
  });
  std::erase_if(awaiting_, [&](const Awaiting& awaiting) {
    if (awaiting.session == &session) release(awaiting.receive_buffer);
    return awaiting.session == &session;
  });
  std::erase_if(fetched_, [&](const Fetch* fetch) { return fetch->session == &session; });
  counters_.add(WorkerCounters::kEnded);
  counters_.add(WorkerCounters::kReturned, session.credits);
  counters_.add(WorkerCounters::kAbandoned, session.unanswered);
  log_info(EventName("client_gone"), "client {} \"{}\" disconnected",
           field("peer", session.connection->peer()), field("name", session.name),
           field("session", session.shown_id()));
  // Before the memory that it READs into and sends from is reused (F1).
  session.connection.reset();
  large_put_receiver_.drop_all(&session, [&](std::uint32_t buffer) { release(buffer); });
  long_.drop_all(session);
  std::erase_if(sessions_, [&](const auto& owned) { return owned.get() == &session; });
  clients_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace rkv::server
