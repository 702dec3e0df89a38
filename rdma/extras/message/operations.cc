#include "rkv/rdma/message/operations.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace detail {

// The slots of sends and of receives. A wr_id has the generation in its upper half; the lower half
// is the index, with kOfReceive for a receive.
class OperationSlots {
 public:
  OperationSlots(CompletionChannel channel, CompletionQueue queue, Executor& executor,
                 const OperationsOptions& options)
      : executor_(executor),
        channel_(std::move(channel)),
        queue_(std::move(queue)),
        sends_(options.outstanding),
        receives_(options.receives) {
    for (std::uint32_t i = options.outstanding; i != 0; --i)
      free_sends_.push_back(i - 1);
    for (std::uint32_t i = options.receives; i != 0; --i)
      free_receives_.push_back(i - 1);
  }
  OperationSlots(const OperationSlots&) = delete;
  OperationSlots& operator=(const OperationSlots&) = delete;
  ~OperationSlots() {
    RKV_CHECK(waiters_ == 0, "operations are destroyed while a coroutine waits for them");
    RKV_CHECK(held_ == 0, "operations are destroyed while a PostedReceive is pending");
  }

  Executor& executor() { return executor_; }
  const CompletionQueue& queue() const { return queue_; }
  int fd() const { return channel_.fd(); }
  std::size_t outstanding() const { return sends_.size() - free_sends_.size() + posted_; }
  std::size_t outstanding(std::uint32_t qp_num) const {
    const auto of_it = [=](const auto& slot) { return slot.posted && slot.qp_num == qp_num; };
    return static_cast<std::size_t>(std::ranges::count_if(sends_, of_it) +
                                    std::ranges::count_if(receives_, of_it));
  }
  std::size_t size() const { return sends_.size(); }
  bool full() const { return free_sends_.empty(); }
  void join() { ++waiters_; }
  void part() { --waiters_; }

  // Sends.
  std::optional<std::uint32_t> take(Operation& operation) {
    if (free_sends_.empty()) return std::nullopt;
    const std::uint32_t index = free_sends_.back();
    free_sends_.pop_back();
    sends_[index].posted = true;
    sends_[index].qp_num = operation.qp_num_;
    sends_[index].waiting = &operation;
    return index;
  }
  std::uint64_t id_of(std::uint32_t index) const {
    return std::uint64_t{sends_[index].generation} << 32 | index;
  }
  void leave(std::uint32_t index) { sends_[index].waiting = nullptr; }
  void give_back(std::uint32_t index) {
    ++sends_[index].generation;
    sends_[index].waiting = nullptr;
    sends_[index].posted = false;
    free_sends_.push_back(index);
  }

  // Receives. A slot is free when it is neither posted nor held.
  Result<std::uint32_t> post(QueuePairBase& qp, const RegisteredSpan& buffer) {
    if (free_receives_.empty()) {
      return fail(Code::kBusy, "as many receives are posted as OperationsOptions::receives allows");
    }
    const std::uint32_t index = free_receives_.back();
    ReceiveSlot& slot = receives_[index];
    const std::array<ReceiveRequest, 1> one = {
        {{.wr_id = std::uint64_t{slot.generation} << 32 | kOfReceive | index, .buffer = buffer}}};
    RKV_RETURN_IF_ERROR(qp.post_receives(one));
    free_receives_.pop_back();
    slot.qp_num = qp.number();
    slot.posted = true;
    slot.held = true;
    ++posted_;
    ++held_;
    return index;
  }
  bool has_message(std::uint32_t index) const { return !receives_[index].posted; }
  const WorkCompletion& message(std::uint32_t index) const { return receives_[index].message; }
  // Call it when the PostedReceive ends or gives its message away.
  void let_go(std::uint32_t index) {
    RKV_CHECK(!receives_[index].awaited, "a PostedReceive ends while a coroutine waits for it");
    receives_[index].held = false;
    --held_;
    if (!receives_[index].posted) free_receives_.push_back(index);
  }
  void await(std::uint32_t index) {
    RKV_CHECK(!std::exchange(receives_[index].awaited, true),
              "two coroutines wait for one PostedReceive");
  }
  void stop_awaiting(std::uint32_t index) { receives_[index].awaited = false; }

  // Delivers the available completions to their slots; returns their number.
  Result<std::size_t> pump() {
    std::array<WorkCompletion, 16> done;
    std::size_t all = 0;
    for (std::size_t count = done.size(); count == done.size();) {
      RKV_ASSIGN_OR_RETURN(count, queue_.poll(done));
      for (const WorkCompletion& one : std::span(done).first(count))
        deliver(one);
      all += count;
    }
    return all;
  }
  // Ends, as flushed, the requests that a destroyed queue pair has not completed.
  Status forget(std::uint32_t qp_num) {
    RKV_RETURN_IF_ERROR(pump());
    const auto flushed = [=](std::uint64_t wr_id) {
      return WorkCompletion{.wr_id = wr_id, .qp_num = qp_num, .status = IBV_WC_WR_FLUSH_ERR};
    };
    for (std::uint32_t i = 0; i < sends_.size(); ++i) {
      if (sends_[i].posted && sends_[i].qp_num == qp_num) deliver(flushed(id_of(i)));
    }
    for (std::uint32_t i = 0; i < receives_.size(); ++i) {
      if (!receives_[i].posted || receives_[i].qp_num != qp_num) continue;
      deliver(flushed(std::uint64_t{receives_[i].generation} << 32 | kOfReceive | i));
    }
    return {};
  }
  // True if no completion arrived for any waiter: another waiter may have been armed before.
  Result<bool> arm() {
    RKV_RETURN_IF_ERROR(channel_.drain());
    RKV_RETURN_IF_ERROR(queue_.arm());
    RKV_ASSIGN_OR_RETURN(const std::size_t count, pump());
    return count == 0;
  }

 private:
  static constexpr std::uint32_t kOfReceive = std::uint32_t{1} << 31;
  struct SendSlot {
    Operation* waiting = nullptr;
    std::uint32_t generation = 0;
    std::uint32_t qp_num = 0;
    bool posted = false;
  };
  struct ReceiveSlot {
    WorkCompletion message;
    std::uint32_t generation = 0;
    std::uint32_t qp_num = 0;
    bool posted = false;
    bool held = false;     // a PostedReceive exists
    bool awaited = false;  // a coroutine waits for it
  };

  void deliver(const WorkCompletion& one) {
    const auto low = static_cast<std::uint32_t>(one.wr_id);
    const auto generation = static_cast<std::uint32_t>(one.wr_id >> 32);
    if ((low & kOfReceive) != 0) return deliver_receive(low & ~kOfReceive, generation, one);
    RKV_CHECK(low < sends_.size() && sends_[low].generation == generation, kForeign);
    if (Operation* const waiting = sends_[low].waiting; waiting != nullptr) {
      waiting->slot_.reset();
      waiting->done_ = true;
      if (!one.ok()) waiting->outcome_ = std::unexpected(wc_error(waiting->name_, one.status));
    }
    give_back(low);
  }
  void deliver_receive(std::uint32_t index, std::uint32_t generation, const WorkCompletion& one) {
    RKV_CHECK(index < receives_.size() && receives_[index].generation == generation, kForeign);
    ReceiveSlot& slot = receives_[index];
    ++slot.generation;
    slot.posted = false;
    --posted_;
    slot.message = one;
    if (!slot.held) free_receives_.push_back(index);
  }
  static constexpr const char* kForeign =
      "a completion of a request that was not posted by these operations";

  Executor& executor_;
  CompletionChannel channel_;
  CompletionQueue queue_;
  std::vector<SendSlot> sends_;
  std::vector<ReceiveSlot> receives_;
  std::vector<std::uint32_t> free_sends_;
  std::vector<std::uint32_t> free_receives_;
  std::size_t posted_ = 0;  // receives with the device
  std::size_t held_ = 0;    // PostedReceives
  std::size_t waiters_ = 0;
};

OperationWaiter::OperationWaiter(OperationSlots& slots, Until until)
    : LimitedWaiter(std::move(until)), slots_(slots) {
  slots_.join();
}

OperationWaiter::~OperationWaiter() {
  slots_.part();
}

void OperationWaiter::await_suspend(std::coroutine_handle<> continuation) {
  suspend(slots_.executor(), continuation);
}

int OperationWaiter::fd() const {
  return slots_.fd();
}

// A delivered completion stays valid: the operation is done, even if the next poll fails.
void OperationWaiter::fail(const Error& error) {
  if (done_) return;
  outcome_ = std::unexpected(error);
  done_ = true;
}

void OperationWaiter::pump() {
  if (done_) return;
  if (const std::optional<Error> reached = over()) return fail(*reached);
  const Result<std::size_t> pumped = slots_.pump();
  if (!pumped) fail(pumped.error());
}

Operation::~Operation() {
  abandon();
}

void Operation::abandon() {
  if (slot_) slots_.leave(*slot_);
  slot_.reset();
}

// A posted request stays with the device, and its outcome stays unknown.
void Operation::fail(const Error& error) {
  Error out = error;
  if (slot_) out.write = WriteOutcome::kMayHaveHappened;
  abandon();
  OperationWaiter::fail(out);
}

// A completion that another waiter's poll delivered raises no further event, so done_ is checked.
Result<bool> Operation::arm() {
  RKV_ASSIGN_OR_RETURN(const bool quiet, slots_.arm());
  return quiet && !done_ && (slot_ || slots_.full());
}

bool Operation::attempt() {
  pump();
  if (done_) return true;
  if (slot_) return false;
  slot_ = slots_.take(*this);
  if (!slot_) return false;
  if (const Status posted = post(slots_.id_of(*slot_)); !posted) {
    slots_.give_back(*std::exchange(slot_, std::nullopt));
    fail(posted.error());
  }
  return done_;
}

}  // namespace detail

Operations::Operations(std::unique_ptr<detail::OperationSlots> slots) : slots_(std::move(slots)) {}
Operations::Operations(Operations&&) noexcept = default;
Operations::~Operations() = default;

Result<Operations> Operations::create(const Device& device, Executor& executor,
                                      const OperationsOptions& options) {
  if (options.outstanding == 0 || options.outstanding > 16384) {
    return fail(Code::kInvalidArgument, "outstanding is from 1 to 16384");
  }
  if (options.receives > 16384) {
    return fail(Code::kInvalidArgument, "receives is from 0 to 16384");
  }
  RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(device));
  RKV_ASSIGN_OR_RETURN(
      CompletionQueue queue,
      CompletionQueue::create(
          device, {.entries = options.outstanding + options.receives, .channel = &channel}));
  return Operations(std::make_unique<detail::OperationSlots>(std::move(channel), std::move(queue),
                                                             executor, options));
}

detail::OperationSlots& Operations::slots() const {
  RKV_CHECK(slots_ != nullptr, "the operations were moved from");
  return *slots_;
}
const CompletionQueue& Operations::queue() const {
  return slots().queue();
}
std::size_t Operations::outstanding() const {
  return slots().outstanding();
}

Status Operations::forget(std::uint32_t qp_num) {
  return slots().forget(qp_num);
}

std::uint64_t Operations::word_in(const RegisteredSpan& old_value) {
  std::uint64_t out = 0;
  std::memcpy(&out, old_value.bytes().data(), sizeof out);
  return out;
}

void Operations::check(const QueuePair& qp) const {
  RKV_CHECK(qp.send_length() >= slots().size(),
            "a queue pair for coroutines needs a send_length of at least `outstanding`");
  RKV_CHECK(qp.raw()->send_cq == slots().queue().raw(),
            "a queue pair for coroutines must send its completions to queue() of these operations");
}

Result<PostedReceive> Operations::post_receive(QueuePairBase& qp, const RegisteredSpan& buffer) {
  RKV_CHECK(qp.raw()->recv_cq == slots().queue().raw(),
            "post_receive() needs a queue pair whose receives complete into queue()");
  RKV_ASSIGN_OR_RETURN(const std::uint32_t slot, slots().post(qp, buffer));
  return PostedReceive(slots(), slot);
}

PostedReceive::~PostedReceive() {
  if (slots_ != nullptr) slots_->let_go(slot_);
}

namespace {
detail::OperationSlots& slots_of(detail::OperationSlots* slots) {
  RKV_CHECK(slots != nullptr, "receive() of a message that was taken, or of a moved-from receive");
  return *slots;
}
}  // namespace

Operations::Receive::Receive(PostedReceive& posted, Until until)
    : OperationWaiter(slots_of(posted.slots_), std::move(until)), posted_(posted) {
  slots_.await(posted.slot_);
}
Operations::Receive::~Receive() {
  if (posted_.slots_ != nullptr) slots_.stop_awaiting(posted_.slot_);
}

Result<bool> Operations::Receive::arm() {
  RKV_ASSIGN_OR_RETURN(const bool quiet, slots_.arm());
  return quiet && !slots_.has_message(posted_.slot_);
}

// A message that has arrived is taken even if the limit of the wait is reached.
bool Operations::Receive::attempt() {
  if (done_) return true;
  if (!slots_.has_message(posted_.slot_)) pump();
  if (done_ || !slots_.has_message(posted_.slot_)) return done_;
  RKV_CHECK(posted_.slots_ != nullptr, "a PostedReceive is moved while a coroutine waits for it");
  message_ = slots_.message(posted_.slot_);
  if (!message_.ok()) outcome_ = std::unexpected(wc_error("receive", message_.status));
  slots_.stop_awaiting(posted_.slot_);
  std::exchange(posted_.slots_, nullptr)->let_go(posted_.slot_);
  done_ = true;
  return true;
}

Result<WorkCompletion> Operations::Receive::await_resume() const {
  RKV_RETURN_IF_ERROR(outcome_);
  return message_;
}

bool Operations::Drained::is_drained() const {
  return (qp_num_ ? slots_.outstanding(*qp_num_) : slots_.outstanding()) == 0;
}
Result<bool> Operations::Drained::arm() {
  RKV_ASSIGN_OR_RETURN(const bool quiet, slots_.arm());
  return quiet && !is_drained();
}
bool Operations::Drained::attempt() {
  pump();
  done_ = done_ || is_drained();
  return done_;
}

}  // namespace rkv::rdma
