#include "rkv/rdma/message/operations.h"

#include <array>
#include <cstring>
#include <vector>

#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace detail {

class OperationSlots {
 public:
  OperationSlots(CompletionChannel channel, CompletionQueue queue, Executor& executor,
                 std::uint32_t count)
      : executor_(executor), channel_(std::move(channel)), queue_(std::move(queue)), slots_(count) {
    for (std::uint32_t i = count; i != 0; --i)
      free_.push_back(i - 1);
  }
  OperationSlots(const OperationSlots&) = delete;
  OperationSlots& operator=(const OperationSlots&) = delete;
  ~OperationSlots() {
    RKV_CHECK(waiters_ == 0, "operations are destroyed while a coroutine waits for them");
  }

  Executor& executor() { return executor_; }
  const CompletionQueue& queue() const { return queue_; }
  int fd() const { return channel_.fd(); }
  std::size_t outstanding() const { return slots_.size() - free_.size(); }
  std::size_t size() const { return slots_.size(); }
  bool full() const { return free_.empty(); }

  std::optional<std::uint32_t> take(Operation& operation) {
    if (free_.empty()) return std::nullopt;
    const std::uint32_t index = free_.back();
    free_.pop_back();
    slots_[index].waiting = &operation;
    return index;
  }
  std::uint64_t id_of(std::uint32_t index) const {
    return std::uint64_t{slots_[index].generation} << 32 | index;
  }
  void join() { ++waiters_; }
  void part() { --waiters_; }
  void leave(std::uint32_t index) { slots_[index].waiting = nullptr; }
  void give_back(std::uint32_t index) {
    ++slots_[index].generation;
    slots_[index].waiting = nullptr;
    free_.push_back(index);
  }

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
  // True if no completion arrived for any waiter: another waiter may have been armed before.
  Result<bool> arm() {
    RKV_RETURN_IF_ERROR(channel_.drain());
    RKV_RETURN_IF_ERROR(queue_.arm());
    RKV_ASSIGN_OR_RETURN(const std::size_t count, pump());
    return count == 0;
  }

 private:
  struct Slot {
    Operation* waiting = nullptr;
    std::uint32_t generation = 0;
  };
  void deliver(const WorkCompletion& one) {
    const auto index = static_cast<std::uint32_t>(one.wr_id);
    RKV_CHECK(index < slots_.size() && slots_[index].generation == one.wr_id >> 32,
              "a completion of a request that was not posted by these operations");
    if (Operation* const waiting = slots_[index].waiting; waiting != nullptr) {
      waiting->slot_.reset();
      waiting->done_ = true;
      if (!one.ok()) waiting->outcome_ = std::unexpected(wc_error(waiting->name_, one.status));
    }
    give_back(index);
  }

  Executor& executor_;
  CompletionChannel channel_;
  CompletionQueue queue_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::size_t waiters_ = 0;
};

OperationWaiter::OperationWaiter(OperationSlots& slots, std::stop_token stop)
    : slots_(slots), stop_(std::move(stop)) {
  slots_.join();
}

OperationWaiter::~OperationWaiter() {
  slots_.part();
}

void OperationWaiter::await_suspend(std::coroutine_handle<> continuation) {
  enlist(slots_.executor(), continuation);
  watch_.start(stop_, slots_.executor());
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
  if (!done_ && is_stopped()) fail(stopped());
  if (!done_) pump();
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
  RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(device));
  RKV_ASSIGN_OR_RETURN(
      CompletionQueue queue,
      CompletionQueue::create(device, {.entries = options.outstanding, .channel = &channel}));
  return Operations(std::make_unique<detail::OperationSlots>(std::move(channel), std::move(queue),
                                                             executor, options.outstanding));
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

Result<bool> Operations::Drained::arm() {
  RKV_ASSIGN_OR_RETURN(const bool quiet, slots_.arm());
  return quiet && slots_.outstanding() != 0;
}
bool Operations::Drained::attempt() {
  if (!done_ && is_stopped()) fail(stopped());
  if (!done_) pump();
  done_ = done_ || slots_.outstanding() == 0;
  return done_;
}

}  // namespace rkv::rdma
