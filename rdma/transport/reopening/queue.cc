#include <poll.h>

#include <utility>

#include "common/check.h"
#include "rdma/transport/reopening/parts.h"

namespace rkv::rdma::reopening {

KeptQueue::KeptQueue(std::shared_ptr<Parts> parts, const QueueOptions& options)
    : parts_(std::move(parts)), options_(options) {}

KeptQueue::~KeptQueue() {
  std::unique_ptr<Queue> ended;
  std::unique_ptr<Queue> unused;
  {
    const MutexLock lock(mutex_);
    ended = std::move(queue_);
    unused = std::move(prepared_);
    ending_ = true;  // the device must not end before these objects
  }
  ended.reset();
  unused.reset();
  parts_->remove(*this);
}

// ---- under Parts::mutex_ ----

Status KeptQueue::prepare(Transport& transport) {
  {
    const MutexLock lock(mutex_);
    prepared_.reset();
  }
  RKV_ASSIGN_OR_RETURN(auto queue, transport.create_queue(options_));
  const MutexLock lock(mutex_);
  prepared_ = std::move(queue);
  return {};
}

void KeptQueue::take_prepared() {
  const MutexLock lock(mutex_);
  queue_ = std::move(prepared_);
}

void KeptQueue::offer() {
  {
    const MutexLock lock(mutex_);
    offered_ = true;
    call_.store(true, std::memory_order_release);
  }
  wake();
}

void KeptQueue::lose() {
  std::unique_ptr<Queue> unused;
  {
    const MutexLock lock(mutex_);
    lost_ = true;
    offered_ = false;
    unused = std::move(prepared_);
    call_.store(true, std::memory_order_release);
  }
  wake();
}

bool KeptQueue::is_empty() const {
  const MutexLock lock(mutex_);
  return queue_ == nullptr && prepared_ == nullptr && !ending_;
}

// ---- the owner's thread ----

void KeptQueue::attend() {
  std::unique_ptr<Queue> ended;
  {
    const MutexLock lock(mutex_);
    if (lost_ && queue_ != nullptr) {
      if (!std::exchange(abandoned_, true)) queue_->abandon();
      if (guests_ == 0 && held_ == 0 && queue_->connections() == 0) {
        ended = std::move(queue_);  // REOPENQ-1
        ending_ = true;             // the device must not end before `ended`
      }
    }
    if (queue_ == nullptr) {
      lost_ = abandoned_ = false;
      if (std::exchange(offered_, false)) queue_ = std::move(prepared_);
      call_.store(false, std::memory_order_relaxed);
    }
  }
  if (ended == nullptr) return;
  ended.reset();
  {
    const MutexLock lock(mutex_);
    ending_ = false;
  }
  idle_.wake();  // REOPENQ-2
  parts_->emptied();
}

std::size_t KeptQueue::poll(std::span<Completion> out) {
  if (call_.load(std::memory_order_acquire)) [[unlikely]]
    attend();
  if (queue_ == nullptr) [[unlikely]]
    return 0;
  const std::size_t count = queue_->poll(out);
  for (const Completion& one : out.first(count))
    held_ += one.kind == Completion::Kind::kReceive ? 1 : 0;
  return count;
}

void KeptQueue::release(std::span<const std::uint32_t> receive_buffers) {
  RKV_CHECK(receive_buffers.size() <= held_, "release() of a buffer that is not held");
  held_ -= receive_buffers.size();
  if (!abandoned_) queue_->release(receive_buffers);
}

bool KeptQueue::is_ready() {
  if (idle_.consume()) return true;
  return queue_ != nullptr ? queue_->is_ready() : call_.load(std::memory_order_acquire);
}

void KeptQueue::wait(const Deadline& deadline) {
  if (queue_ != nullptr) {
    if (!idle_.consume()) queue_->wait(deadline);
    return;
  }
  if (is_ready()) return;
  pollfd waiting{.fd = idle_.fd(), .events = POLLIN, .revents = 0};
  (void)::poll(&waiting, 1, deadline.left_ms());
  if (waiting.revents != 0) idle_.drain();
  idle_.consume();
}

std::optional<int> KeptQueue::begin_sleep() {
  if (queue_ != nullptr) return queue_->begin_sleep();
  return idle_.fd();
}

void KeptQueue::end_sleep() {
  if (queue_ != nullptr) return queue_->end_sleep();
  idle_.drain();
  idle_.consume();
}

// ---- any thread ----

void KeptQueue::wake() {
  const MutexLock lock(mutex_);
  if (queue_ != nullptr) return queue_->wake();
  idle_.wake();
}

Queue* KeptQueue::Guest::enter() {
  const MutexLock lock(host_.mutex_);
  if (host_.queue_ == nullptr || host_.lost_) return nullptr;
  inside_ = true;
  ++host_.guests_;
  return host_.queue_.get();
}

KeptQueue::Guest::~Guest() {
  if (!inside_) return;
  {
    const MutexLock lock(host_.mutex_);
    --host_.guests_;
  }
  host_.wake();
}

}  // namespace rkv::rdma::reopening
