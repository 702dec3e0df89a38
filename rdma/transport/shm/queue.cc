#include "rdma/transport/shm/queue.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "common/check.h"
#include "rdma/transport/shm/connection.h"

namespace rkv::rdma::shm {
namespace {

constexpr std::size_t kCacheLine = 64;
// Reading the sockets is a system call, so it is done once per this many polls and in wait().
constexpr std::uint32_t kPollsPerSocketCheck = 1024;
constexpr std::uint32_t kSpinsPerSocketCheck = 16 * kPollsPerSocketCheck;  // a spin is shorter
// The rings are checked when nothing else has arrived, and once per this many polls. So a user that
// READs continuously gets its completions without touching memory that the peer writes.
constexpr std::uint32_t kPollsPerRingCheck = 16;
static_assert(kPollsPerSocketCheck % kPollsPerRingCheck == 0);
constexpr std::uint64_t kMaxBufferBytes = std::uint64_t{1} << 40;

}  // namespace

Result<std::unique_ptr<ShmQueue>> ShmQueue::create(std::shared_ptr<Shared> shared,
                                                   const QueueOptions& options) {
  if (options.receive_buffers == 0 || options.receive_bytes == 0 ||
      options.completions <= options.receive_buffers) {
    return fail(Code::kInvalidArgument,
                "a queue needs receive buffers, and more completions than receive buffers");
  }
  if (options.receive_bytes > kMaxReceiveBytes) {
    return fail(Code::kInvalidArgument, "a receive buffer over shared memory has at most 4 MiB");
  }
  const std::uint64_t stride = round_up(options.receive_bytes, kCacheLine);
  if (stride * options.receive_buffers > kMaxBufferBytes) {
    return fail(Code::kOutOfMemory, "the receive buffers are larger than any memory");
  }
  RKV_ASSIGN_OR_RETURN(SharedMemory page,
                       make_shared_memory("rkv-queue", kPageBytes, Sealing::kOthersRead));
  RKV_ASSIGN_OR_RETURN(Mapping buffers, map_private(stride * options.receive_buffers));
  std::unique_ptr<ShmQueue> queue(
      new ShmQueue(std::move(shared), options, std::move(page), std::move(buffers)));
  RKV_RETURN_IF_ERROR(queue->open_descriptors());
  return queue;
}

ShmQueue::ShmQueue(std::shared_ptr<Shared> shared, const QueueOptions& options, SharedMemory page,
                   Mapping buffers)
    : shared_(std::move(shared)),
      options_(options),
      stride_(round_up(options.receive_bytes, kCacheLine)),
      page_(std::move(page)),
      buffers_(std::move(buffers)),
      ready_(std::bit_ceil(options.completions)),
      held_(options.receive_buffers),
      room_(options.completions, options.receive_buffers) {
  free_.reserve(options.receive_buffers);
  for (std::uint32_t i = options.receive_buffers; i > 0; --i)
    free_.push_back(i - 1);
}

Status ShmQueue::open_descriptors() {
  RKV_RETURN_IF_ERROR(waker_.open());
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail_call(Code::kBusy, "epoll_create1", errno);
  epoll_event interest{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, waker_.fd(), &interest) != 0) {
    return fail_call(Code::kBusy, "epoll_ctl", errno);
  }
  return {};
}

ShmQueue::~ShmQueue() {
  RKV_CHECK(connections_.empty() && arrivals_.empty(), "a queue destroyed before its connections");
}

// ---- any thread ----

void ShmQueue::attach(ShmConnection& connection) {
  {
    const MutexLock lock(mutex_);
    arrivals_.push_back(&connection);
  }
  wake_for_control();
}

void ShmQueue::wake_for_control() {
  attention_.store(true, std::memory_order_release);
  wake();
}

void ShmQueue::wake() {
  waker_.wake();
}

// ---- the queue's thread ----

void ShmQueue::process_control_events() {
  if (!attention_.exchange(false, std::memory_order_acq_rel)) return;
  std::vector<ShmConnection*> arrivals;
  {
    const MutexLock lock(mutex_);
    arrivals.swap(arrivals_);
  }
  for (ShmConnection* connection : arrivals) {
    connections_.push_back(connection);
    epoll_event interest{.events = EPOLLIN, .data = {.ptr = connection}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection->socket(), &interest) != 0) {
      connection->end(ShmConnection::Ending::kDead);  // the death of its peer would go unnoticed
    }
  }
  for (ShmConnection* connection : connections_) {
    if (connection->aborted()) connection->end(ShmConnection::Ending::kDead);
  }
}

void ShmQueue::append(const Completion& one) {
  ready_[ready_end_++ & (ready_.size() - 1)] = one;
}

std::size_t ShmQueue::take_ready(std::span<Completion> out) {
  const std::size_t count = std::min<std::size_t>(out.size(), ready_end_ - ready_next_);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = ready_[ready_next_++ & (ready_.size() - 1)];
    if (out[i].kind == Completion::Kind::kDisconnected) continue;
    static_cast<ShmConnection*>(out[i].connection)->polled();
  }
  return count;
}

std::size_t ShmQueue::poll(std::span<Completion> out) {
  if (attention_.load(std::memory_order_relaxed)) [[unlikely]]
    process_control_events();
  if (++polls_ % kPollsPerSocketCheck == 0) [[unlikely]]
    read_sockets(0);
  std::size_t count = take_ready(out);
  if (count != 0 && polls_ % kPollsPerRingCheck != 0) return count;
  const std::size_t all = connections_.size();
  if (turn_ >= all) turn_ = 0;
  for (std::size_t i = 0; i < all && count < out.size(); ++i) {
    const std::size_t which = turn_ + i < all ? turn_ + i : turn_ + i - all;
    count += connections_[which]->advance(out.subspan(count));
    if (count == out.size()) turn_ = which + 1;  // the next poll() begins with the next connection
  }
  return count + take_ready(out.subspan(count));
}

MutableBytes ShmQueue::next_buffer() {
  return {buffers_.data() + free_.back() * stride_, stride_};
}

std::uint32_t ShmQueue::take_buffer() {
  const std::uint32_t buffer = free_.back();
  free_.pop_back();
  held_[buffer] = true;
  return buffer;
}

void ShmQueue::release(std::span<const std::uint32_t> receive_buffers) {
  for (const std::uint32_t buffer : receive_buffers) {
    RKV_CHECK(buffer < held_.size() && held_[buffer], "release() of a buffer that is not held");
    held_[buffer] = false;
    free_.push_back(buffer);
  }
}

void ShmQueue::stop_watching(const ShmConnection& connection) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.socket(), nullptr);
}

void ShmQueue::detach(ShmConnection& connection) {
  std::erase(connections_, &connection);
  std::uint64_t kept = ready_next_;
  const std::size_t mask = ready_.size() - 1;
  for (std::uint64_t i = ready_next_; i != ready_end_; ++i) {
    if (ready_[i & mask].connection != &connection) ready_[kept++ & mask] = ready_[i & mask];
  }
  ready_end_ = kept;
}

// ---- waiting ----

// Returns whether poll() would return a completion or free capacity.
bool ShmQueue::anything() const {
  return std::ranges::any_of(connections_,
                             [](ShmConnection* connection) { return connection->can_advance(); });
}

bool ShmQueue::is_ready() {
  if (ready_next_ != ready_end_ || attention_.load(std::memory_order_relaxed)) return true;
  // Unsignaled work completed in the last poll(). A user that found a connection full can post
  // again, and might otherwise sleep with no outstanding work to wake it.
  if (std::exchange(room_came_back_, false)) return true;
  return waker_.consume() || anything();
}

void ShmQueue::wait(const Deadline& deadline) {
  if (is_ready()) return;
  const SteadyClock clock;
  const Nanos began = clock.now();
  if (options_.poll != PollMode::kEvent && spin(deadline)) return;
  if (options_.poll == PollMode::kBusy) return;
  sleep(deadline);
  spin_window_.slept(clock.now() - began);
}

// Returns true when there is a reason to return.
bool ShmQueue::spin(const Deadline& deadline) {
  const auto ready = [this] {
    if (anything() || waker_.consume()) return true;
    if (++spins_ % kSpinsPerSocketCheck != 0) return false;
    read_sockets(0);
    return ready_next_ != ready_end_;
  };
  return spin_window_.spin(ready, options_.poll, deadline);
}

void ShmQueue::set_sleep_words(std::uint64_t value) {
  store(*page_.memory.as<std::uint64_t>(), value, std::memory_order_seq_cst);  // SHMQ-5
  for (const ShmConnection* connection : connections_)
    connection->tell_sleeping(value);
}

void ShmQueue::sleep(const Deadline& deadline) {
  if (!begin_sleep()) return;
  read_sockets(deadline.left_ms());
  set_sleep_words(++sleep_number_);
  waker_.consume();
}

std::optional<int> ShmQueue::begin_sleep() {
  set_sleep_words(++sleep_number_);  // odd
  if (!waker_.consume() && !anything()) return epoll_.get();
  set_sleep_words(++sleep_number_);
  waker_.consume();
  return std::nullopt;
}

void ShmQueue::end_sleep() {
  read_sockets(0);
  set_sleep_words(++sleep_number_);
  waker_.consume();
}

void ShmQueue::read_sockets(int timeout_ms) {
  std::array<epoll_event, 16> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) {
    auto* connection = static_cast<ShmConnection*>(events[i].data.ptr);
    if (connection != nullptr) {
      connection->read_socket();
    } else {
      waker_.drain();  // only wait() consumes its flag
    }
  }
}

}  // namespace rkv::rdma::shm
