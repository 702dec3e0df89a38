#include "client/async/async_engine.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "client/engine/destinations.h"
#include "common/check.h"
#include "rkv/interruption.h"
#include "rkv/one_user.h"

namespace rkv::client {

namespace {

constexpr Nanos kNever = Deadlines::kNever;
// Most rounds of one poll(), so that it returns even if there is always more to do.
constexpr int kMostRounds = 16;
// Longest sleep while operations are under way. After it the queue checks whether its peer has
// fallen silent (Queue::begin_sleep()).
constexpr Nanos kLongestSleep = kNanosPerSecond / 2;
// If an operation was given up, a connection over which nothing has come for this long is given up,
// too.
constexpr Nanos kSilence = 2 * kNanosPerSecond;
// In wait_for(): the interval at which an Interruption is asked, and the longest sleep of a thread
// without one.
constexpr Nanos kAskAgain = std::chrono::nanoseconds(Interruption::kPause).count();
constexpr Nanos kLongestWait = 3600 * kNanosPerSecond;
// Pause between looks while another thread drives.
constexpr Nanos kLookAgain = kNanosPerMs / 10;

thread_local std::string refusal_of_this_thread;

constexpr Error kInCallback{
    .code = Code::kInvalidArgument,
    .text = "a callback of the client can neither wait for the client nor close it"};
constexpr Error kCancelled{.code = Code::kCancelled, .text = "the operation was cancelled"};

}  // namespace

class AsyncEngine::Turn {
 public:
  // If this turn is refused: whether the end of the other thread's turn makes the descriptor
  // readable.
  enum class IfRefused : std::uint8_t { kWakesDescriptor, kNothing };
  // A refused driver sets refused_ before its last attempt.
  explicit Turn(AsyncEngine& engine, IfRefused if_refused = IfRefused::kWakesDescriptor)
      : engine_(engine), has_(try_begin()) {
    if (!has_ && if_refused == IfRefused::kWakesDescriptor) {
      engine.refused_.store(true);
      has_ = try_begin();
    }
    if (has_) engine.driver_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  ~Turn() {
    if (!has_) return;
    engine_.driver_.store({}, std::memory_order_relaxed);
    bool wakes = std::exchange(engine_.owes_wake_, false);
    engine_.driven_.store(false);
    wakes = (engine_.refused_.load() && engine_.refused_.exchange(false)) || wakes;
    if (wakes) engine_.descriptor_.wake();
    engine_.waiters_.call_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  explicit operator bool() const { return has_; }

 private:
  bool try_begin() { return !engine_.driven_.load() && !engine_.driven_.exchange(true); }

  AsyncEngine& engine_;
  bool has_;
};

Result<std::unique_ptr<AsyncEngine>> AsyncEngine::create(std::unique_ptr<Engine> engine,
                                                         std::shared_ptr<UserMemory> memory) {
  RKV_ASSIGN_OR_RETURN(auto descriptor, PollDescriptor::create());
  return std::unique_ptr<AsyncEngine>(
      new AsyncEngine(std::move(engine), std::move(memory), std::move(descriptor)));
}

AsyncEngine::AsyncEngine(std::unique_ptr<Engine> engine, std::shared_ptr<UserMemory> memory,
                         PollDescriptor descriptor)
    : engine_(std::move(engine)),
      clock_(engine_->session.clock),
      memory_(std::move(memory)),
      descriptor_(std::move(descriptor)),
      waiting_gets_(*this),
      waiting_writes_(*this, engine_->session),
      never_(clock_, kNever),
      gets_(*engine_, waiting_gets_, never_, GetPipeline::Kind::kStream),
      writes_(*engine_, waiting_writes_, never_),
      aside_([this] { wake(); }) {
  gets_.begin();
  writes_.begin();
}

AsyncEngine::~AsyncEngine() {
  RKV_CHECK(close(), "an asynchronous client was destroyed by one of its own callbacks");
}

// ------------------------------------------------------------------------------- any thread

bool AsyncEngine::submit(AsyncOperation& operation) {
  using Fate = AsyncOperation::Fate;
  if (operation.fate_.load(std::memory_order_relaxed) == Fate::kEnded)  // it is submitted again
    operation.fate_.store(Fate::kOpen, std::memory_order_relaxed);
  if (is_inherited()) [[unlikely]] {
    in_flight_of_child_.fetch_add(1, std::memory_order_relaxed);
    (void)submissions_of_child_.push(operation);  // never closed
    descriptor_.wake();
    return true;
  }
  operation.deadline_ = engine_->connector.deadline(operation.request.timeout()).at();
  if (is_large(operation.request.into.size()))
    operation.memory_ = memory_->find(operation.request.into);
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  if (!submissions_.push(operation)) {
    in_flight_.fetch_sub(1, std::memory_order_relaxed);
    operation.memory_.reset();
    withdrawals_.on_end(operation);
    return false;
  }
  if (sleeps_.load(std::memory_order_seq_cst)) wake();
  return true;
}

void AsyncEngine::cancel(AsyncOperation& operation) {
  if (is_inherited()) return;
  withdrawals_.add(operation);
  if (sleeps_.load(std::memory_order_seq_cst)) wake();
}

void AsyncEngine::wake() {
  sleeps_.store(false, std::memory_order_relaxed);
  descriptor_.wake();
}

// ----------------------------------------------------------------------------------- driving

std::size_t AsyncEngine::end_submissions_of_child() {
  descriptor_.consume();
  std::size_t ended = 0;
  for (AsyncOperation* next = submissions_of_child_.take(); next != nullptr; ++ended) {
    AsyncOperation& operation = *next;
    next = Submissions::next(operation);
    withdrawals_.on_end(operation);
    operation.done(operation, std::unexpected(kInherited));
    in_flight_of_child_.fetch_sub(1, std::memory_order_release);
  }
  return ended;
}

std::size_t AsyncEngine::poll() {
  if (is_inherited()) [[unlikely]]
    return end_submissions_of_child();
  if (is_in_callback()) return 0;
  const Turn turn(*this);
  return turn ? poll_in_turn() : 0;
}

std::size_t AsyncEngine::poll_in_turn() {
  ended_ = 0;
  awake();
  admit_all(submissions_.take());
  end_withdrawn();
  work();
  const Nanos now = clock_.now();
  const std::size_t in_time = ended_;
  if (now >= due_.first()) end_overdue(now);
  if (ended_ != in_time) has_more_ = true;  // lanes and slots are free now
  if (silent_since_ != 0) look_for_silence(now);
  if (wants_stats_.load(std::memory_order_relaxed) && aside_.is_idle()) {
    note_stats();
    wants_stats_.store(false, std::memory_order_release);
  }
  return ended_;
}

void AsyncEngine::awake() {
  if (!std::exchange(sleeping_, false)) return;
  sleeps_.store(false, std::memory_order_relaxed);
  descriptor_.end_sleep();
  if (sleeper_ != std::this_thread::get_id()) owes_wake_ = true;  // its descriptor is not armed
}

void AsyncEngine::admit_all(AsyncOperation* submitted) {
  while (submitted != nullptr) {
    AsyncOperation& operation = *submitted;
    submitted = Submissions::next(operation);
    if (const Status admitted = admit(operation); !admitted)
      end(operation, std::unexpected(admitted.error()));
  }
}

Status AsyncEngine::admit(AsyncOperation& operation) {
  if (Withdrawals::has(operation)) return std::unexpected(kCancelled);
  const AsyncRequest& request = operation.request;
  if (request.kind != AsyncRequest::Kind::kGet) {
    RKV_RETURN_IF_ERROR(QueuedWrites::prepare(operation));
  } else if (overlap(as_bytes(request.key), request.into)) {
    return std::unexpected(kKeyInDestination);
  }
  due_.add(operation, operation.deadline_);
  operation.place_ = AsyncOperation::Place::kWaits;
  list_of(operation).push_back(operation);
  return {};
}

OperationList& AsyncEngine::list_of(const AsyncOperation& operation) {
  return operation.request.kind == AsyncRequest::Kind::kGet ? waiting_gets_.list()
                                                            : waiting_writes_.list();
}

void AsyncEngine::end(AsyncOperation& operation, const Result<Outcome>& result) noexcept {
  ++ended_;
  due_.remove(operation);
  operation.place_ = AsyncOperation::Place::kOutside;
  withdrawals_.on_end(operation);
  if (!result) note_refusal(result.error());
  // Held until `done` has copied the value: after that the operation and the buffer's owner may be
  // gone.
  const std::shared_ptr<UserBuffer> memory = std::move(operation.memory_);
  operation.done(operation, result);
  in_flight_.fetch_sub(1, std::memory_order_release);
}

const std::string& AsyncEngine::refusal() {
  return refusal_of_this_thread;
}

// The error that a server's refusal becomes has the words of its code as text
// (Requester::refused()). The session has the server's sentence. It is copied here, unless memory
// is exhausted.
void AsyncEngine::note_refusal(const Error& error) noexcept {
  refusal_of_this_thread.clear();
  const bool is_refused_connection = error.code == Code::kRejected ||
                                     error.code == Code::kUnauthenticated ||
                                     error.code == Code::kNotPrimary;
  const bool is_of_server = error.text == to_string(error.code) || is_refused_connection;
  if (is_answer(error.code) || !is_of_server || !aside_.is_idle()) return;
  try {
    refusal_of_this_thread = engine_->session.refusal;
  } catch (const std::bad_alloc&) {
    refusal_of_this_thread.clear();
  }
}

void AsyncEngine::work() {
  has_more_ = false;
  for (int rounds = 0; rounds < kMostRounds; ++rounds) {
    if (!aside_.is_idle() && !take_aside()) return;
    if (closed_ || !round()) return;
  }
  has_more_ = true;
}

// Returns true if there may be more to do at once.
bool AsyncEngine::round() {
  Session& session = engine_->session;
  if (session.link.has_kept_events()) take_events();  // perhaps of a lost connection
  if (!session.usable()) {
    reconnect();
    return !aside_.is_idle();
  }
  if (session.trust.in_group() && !is_at_rest() &&
      !session.trust.believes(session.group_clock->passed())) {
    run_aside(Doing::kBelieve,
              [this] { return engine_->connector.believe(engine_->connector.deadline({})); });
    return true;
  }
  bool busy = gets_.start();
  busy = writes_.start() || busy;
  busy = take_events() != 0 || busy;
  if (!session.usable()) return true;
  step_ = gets_.wanted_step();
  if (step_.kind == BlockingStep::Kind::kNone) return busy;
  run_aside(Doing::kStep, [this] {
    return GetPipeline::perform(*engine_, step_, engine_->connector.deadline({}));
  });
  return true;
}

std::size_t AsyncEngine::take_events() {
  Link& link = engine_->session.link;
  if (!link.alive() && !link.has_kept_events()) return 0;
  const auto events = link.poll();
  for (const Event& event : events) {
    if (WritePipeline::is_of_write(event)) {
      writes_.on_event(event);
    } else {
      gets_.on_event(event);
    }
  }
  if (events.empty()) return 0;
  engine_->connector.progressed();
  if (silent_since_ != 0) silent_since_ = awaits_given_up() ? clock_.now() : 0;
  return events.size();
}

// ------------------------------------------------------------------------------ what blocks

void AsyncEngine::run_aside(Doing doing, Aside::Step step) {
  note_stats();
  const Status runs = aside_.run(std::move(step));
  if (runs) {
    doing_ = doing;
    return;
  }
  // No thread can be started, so the operations cannot continue.
  if (lost_) {
    engine_->session.link.close();
    gets_.end_lost();
  }
  end_all(runs.error());
}

// Returns false if the step has not ended.
bool AsyncEngine::take_aside() {
  const auto status = aside_.take_result();
  if (!status) return false;
  switch (std::exchange(doing_, Doing::kNothing)) {
    case Doing::kConnect:
      on_connect(*status);
      break;
    case Doing::kClose:
      gets_.end_lost();
      break;
    case Doing::kBelieve:
      if (!*status) last_error_ = status->error();  // the link is closed
      break;
    case Doing::kStep:
      if (engine_->session.link.alive()) gets_.on_step(step_, *status);
      break;
    case Doing::kNothing:
      break;
  }
  return true;
}

void AsyncEngine::reconnect() {
  if (!std::exchange(lost_, true)) {
    writes_.on_lost();
    if (gets_.uses_memory()) {  // READs may land there until the link is closed, and closing may
                                // block
      return run_aside(Doing::kClose, [this] {
        engine_->session.link.close();
        return Status{};
      });
    }
  }
  if (is_at_rest()) return;
  connect_at_ = engine_->connector.next_attempt(never_);
  if (clock_.now() < connect_at_) return;
  run_aside(Doing::kConnect, [this] {
    return engine_->connector.connect_without_wait(engine_->connector.deadline({}));
  });
}

void AsyncEngine::on_connect(const Status& connected) {
  if (connected) {
    lost_ = false;
    silent_since_ = 0;
    last_error_ = Connector::kWaits;
    gets_.mended();
    return;
  }
  last_error_ = connected.error();
  if (!Connector::worth_repeating(last_error_)) fail_all(last_error_);
}

// REQUIRES: the link is closed.
void AsyncEngine::fail_all(const Error& error) {
  gets_.fail_rest(error);
  writes_.fail_rest(error);
}

// --------------------------------------------------------------------------- ends before time

template <class ErrorOf>
void AsyncEngine::end_taken(ErrorOf error_of) {
  gets_.give_up([&](std::uint64_t token, bool waits_for_mark) {
    return error_of(operation_of(token), waits_for_mark ? Stage::kWaitsForMark : Stage::kUnderWay);
  });
  writes_.give_up([&](std::uint64_t token, bool may_have_happened) {
    AsyncOperation& operation = operation_of(token);
    const std::optional<Error> error =
        error_of(operation, may_have_happened ? Stage::kUnderWay : Stage::kWaits);
    if (error) end(operation, std::unexpected(*error));
    return error.has_value();
  });
}

template <class Next, class ErrorOf>
void AsyncEngine::end_each(Next next, ErrorOf error_of) {
  using Place = AsyncOperation::Place;
  bool any_taken = false;
  while (AsyncOperation* const operation = next()) {
    if (operation->place_ == Place::kTaken) any_taken = true;
    if (operation->place_ != Place::kWaits) continue;  // kOutside: admit() will end it
    list_of(*operation).remove(*operation);
    end(*operation, std::unexpected(*error_of(*operation, Stage::kWaits)));
  }
  if (any_taken) end_taken(error_of);
}

void AsyncEngine::end_all(const Error& error) {
  const auto error_of = [&](const AsyncOperation& operation, Stage stage) {
    return std::optional(ended_before(error, operation, stage));
  };
  for (OperationList* const list : {&waiting_gets_.list(), &waiting_writes_.list()})
    end_each([list] { return list->first(); }, error_of);
  end_taken(error_of);
}

void AsyncEngine::end_overdue(Nanos now) {
  end_each([&] { return due_.pop(now); },
           [&](const AsyncOperation& operation, Stage stage) -> std::optional<Error> {
             if (operation.deadline_ > now) return std::nullopt;
             return overdue(operation, stage);
           });
  if (silent_since_ == 0 && awaits_given_up()) silent_since_ = now;
}

bool AsyncEngine::awaits_given_up() const {
  return gets_.awaits_given_up() || writes_.awaits_given_up();
}

Error AsyncEngine::ended_before(Error error, const AsyncOperation& operation, Stage stage) {
  const bool is_write = operation.request.kind != AsyncRequest::Kind::kGet;
  if (is_write && stage == Stage::kUnderWay) error.write = WriteOutcome::kMayHaveHappened;
  return error;
}

Error AsyncEngine::overdue(const AsyncOperation& operation, Stage stage) const {
  const bool is_write = operation.request.kind != AsyncRequest::Kind::kGet;
  if (is_write && stage == Stage::kUnderWay) {
    return {.code = lost_ ? Code::kDisconnected : Code::kTimeout,
            .write = WriteOutcome::kMayHaveHappened,
            .text = lost_ ? "the connection was lost before the answer came"
                          : "the server did not answer in time"};
  }
  if (lost_) return last_error_;
  if (stage == Stage::kWaitsForMark) {
    return {.code = Code::kTimeout,
            .text = "the value did not reach the requested durability in time"};
  }
  return {.code = Code::kTimeout,
          .text = is_write ? "the deadline passed before this was sent"
                           : "the server did not answer in time"};
}

void AsyncEngine::end_withdrawn() {
  AsyncOperation* first = withdrawals_.pop();
  if (first == nullptr) return;
  end_each([&] { return first != nullptr ? std::exchange(first, nullptr) : withdrawals_.pop(); },
           [](const AsyncOperation& operation, Stage stage) -> std::optional<Error> {
             if (!Withdrawals::has(operation)) return std::nullopt;
             return ended_before(kCancelled, operation, stage);
           });
  // GETs await READs into the program's memory, which may never land if the server is gone.
  if (silent_since_ == 0 && gets_.awaits_landing()) silent_since_ = clock_.now();
}

void AsyncEngine::look_for_silence(Nanos now) {
  if (!aside_.is_idle() || now - silent_since_ < kSilence) return;
  silent_since_ = 0;
  if (!engine_->session.link.alive()) return;
  if (awaits_given_up()) {
    engine_->session.link.break_off("it has not answered for 2 s");
  }
}

// ------------------------------------------------------------------------------------ sleeping

bool AsyncEngine::arm() {
  if (is_inherited()) return submissions_of_child_.is_empty();
  if (is_in_callback()) return false;
  const Turn turn(*this);
  return !turn || arm_in_turn();  // the end of the other thread's turn wakes the descriptor
}

bool AsyncEngine::arm_in_turn() {
  awake();
  if (has_more_ || has_arrived() || aside_.has_result()) return false;
  const Nanos now = clock_.now();
  const Nanos at = wake_at(now);
  if (at <= now) return false;
  Link& link = engine_->session.link;
  const bool has_queue = aside_.is_idle() && engine_->session.usable();
  if (has_queue && link.take_room()) return false;
  if (!descriptor_.begin_sleep(has_queue ? link.queue() : nullptr, at - now)) return false;
  sleeping_ = true;
  sleeper_ = std::this_thread::get_id();
  sleeps_.store(true, std::memory_order_seq_cst);
  return !has_arrived();
}

// Returns the time at which there will be something to do, if no event comes earlier.
Nanos AsyncEngine::wake_at(Nanos now) {
  Nanos at = in_flight() != 0 ? std::min(due_.first(), now + kLongestSleep) : kNever - 1;
  if (!aside_.is_idle()) return at;
  if (!engine_->session.usable()) {
    const bool connects = !closed_ && !is_at_rest();
    if (connects && !lost_) return now;
    return connects ? std::min(at, connect_at_) : at;
  }
  if (silent_since_ != 0) at = std::min(at, silent_since_ + kSilence);
  return std::min({at, gets_.sleep_until(), writes_.sleep_until()});
}

void AsyncEngine::sleep(const Deadline& deadline) {
  pollfd event{.fd = descriptor(), .events = POLLIN, .revents = 0};
  ::poll(&event, 1, deadline.left_ms());
}

// Whether poll() would find something to do, as far as that is visible without polling.
bool AsyncEngine::has_news() {
  if (has_arrived() || closing_.load() || wants_stats_.load(std::memory_order_relaxed)) return true;
  if (!aside_.is_idle()) return aside_.has_result();
  return engine_->session.link.alive() && engine_->session.link.queue()->is_ready();
}

// Returns false if the thread should sleep.
bool AsyncEngine::spin(const Deadline& deadline) {
  const rdma::PollMode mode = engine_->session.link.poll_mode();
  if (mode == rdma::PollMode::kEvent) return false;
  // Some events, such as the end of a peer, are signaled by the descriptor alone.
  constexpr unsigned kBusyRounds = 16'384;
  unsigned rounds = 0;
  const Deadline until(clock_, std::min(deadline.at(), wake_at(clock_.now())));
  const auto ready = [&] {
    return has_news() || (mode == rdma::PollMode::kBusy && ++rounds == kBusyRounds);
  };
  return spin_window_.spin(ready, mode, until) && rounds != kBusyRounds;
}

// The turn is kept during a sleep, so that no other thread takes the events that this one waits
// for.
template <class IsOver>
std::size_t AsyncEngine::drive(const Deadline& deadline, IsOver is_over) {
  for (;;) {
    const std::size_t ended = poll_in_turn();
    if (is_over(ended)) return ended;
    const Nanos began = clock_.now();
    if (began >= deadline.at() || closing_.load()) return ended;
    if (has_more_ || spin(deadline) || !arm_in_turn()) continue;
    const bool is_busy = engine_->session.link.poll_mode() == rdma::PollMode::kBusy;
    sleep(is_busy ? Deadline(clock_, 0) : deadline);
    if (!is_busy) spin_window_.slept(clock_.now() - began);
  }
}

Result<std::size_t> AsyncEngine::wait(std::chrono::milliseconds timeout) {
  if (is_inherited()) {
    if (const std::size_t ended = end_submissions_of_child(); ended != 0) return ended;
  }
  RKV_RETURN_IF_ERROR(may_wait());
  const Deadline deadline =
      timeout.count() > 0 ? Deadline::after_ms(clock_, timeout.count()) : never_;
  const auto is_over = [this](std::size_t ended) { return ended != 0 || in_flight() == 0; };
  for (;;) {
    if (const Turn turn(*this, Turn::IfRefused::kNothing); turn) {
      const std::size_t ended = drive(deadline, is_over);
      if (is_over(ended)) return ended;
    }
    if (is_over(0) || deadline.passed()) return 0;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kLookAgain));
  }
}

Status AsyncEngine::may_wait() const {
  if (is_inherited()) [[unlikely]]
    return std::unexpected(kInherited);
  return is_in_callback() ? Status(std::unexpected(kInCallback)) : Status{};
}

Status AsyncEngine::wait_for(Waiter& waiter, const std::function<void()>& withdraw) {
  if (is_inherited()) end_submissions_of_child();
  if (waiter.ended()) return {};
  RKV_RETURN_IF_ERROR(may_wait());
  const bool spins = engine_->session.link.poll_mode() != rdma::PollMode::kEvent;
  const auto is_free = [this] { return !driven_.load(std::memory_order_relaxed); };
  const Interruption* interruption = withdraw ? Interruption::of_this_thread() : nullptr;
  const Nanos pause = interruption != nullptr ? kAskAgain : kLongestWait;
  Nanos ask_at = interruption != nullptr ? clock_.now() + pause : kNever;
  Waiters::Place place(waiters_, waiter);
  for (;;) {
    if (interruption != nullptr && clock_.now() >= ask_at) {
      ask_at = clock_.now() + pause;
      if (interruption->asks()) {
        withdraw();
        interruption = nullptr;
      }
    }
    if (!closing_.load()) {  // otherwise close() waits for its turn
      if (const Turn turn(*this, Turn::IfRefused::kNothing); turn) {
        place.drives();
        drive(Deadline(clock_, ask_at), [&](std::size_t) { return waiter.ended(); });
      } else if (spins) {
        place.spin(is_free);
        if (!waiter.ended() && is_free()) continue;
      }
    }
    if (waiter.ended()) return {};
    const bool tries_again = place.enter() && !closing_.load();
    if (tries_again) continue;  // WAIT-1
    place.sleep(std::chrono::nanoseconds(pause));
    if (waiter.ended()) return {};
  }
}

Status AsyncEngine::close() {
  if (is_inherited()) {
    end_submissions_of_child();
    return {};
  }
  RKV_RETURN_IF_ERROR(may_wait());
  for (;;) {
    const Turn turn(*this, Turn::IfRefused::kNothing);
    if (!turn) {  // another thread waits, and may sleep
      closing_.store(true);
      descriptor_.wake();
      std::this_thread::sleep_for(std::chrono::nanoseconds(kLookAgain));
      continue;
    }
    closing_.store(false);
    awake();
    aside_.wait();
    doing_ = Doing::kNothing;
    if (closed_) return {};
    admit_all(submissions_.close());  // earlier submissions are in flight
    closed_ = true;
    engine_->session.link.close();
    writes_.on_lost();
    fail_all({.code = Code::kDisconnected, .text = "the client was closed"});
    return {};
  }
}

// If another thread drives, it notes the statistics in its next poll(), unless a step blocks.
ClientStats AsyncEngine::stats() {
  if (is_inherited()) return {};
  constexpr int kMostLooks = 50;
  if (const Turn turn(*this, Turn::IfRefused::kNothing); turn) {
    if (aside_.is_idle()) note_stats();
  } else if (!is_in_callback()) {
    wants_stats_.store(true, std::memory_order_seq_cst);
    if (sleeps_.load(std::memory_order_seq_cst)) wake();
    for (int i = 0; i < kMostLooks && wants_stats_.load(std::memory_order_acquire); ++i)
      std::this_thread::sleep_for(std::chrono::nanoseconds(kLookAgain));
  }
  const MutexLock lock(stats_mutex_);
  return stats_;
}

void AsyncEngine::note_stats() {
  const MutexLock lock(stats_mutex_);
  stats_ = engine_->stats();
}

}  // namespace rkv::client
