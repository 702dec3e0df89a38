#include "rdma/transport/tcp/queue.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/check.h"
#include "rdma/transport/tcp/connection.h"

namespace rkv::rdma::tcp {

namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::uint64_t kWakerEvent = 0;
constexpr std::uint64_t kSocketEvent = 1;

}  // namespace

Result<std::unique_ptr<TcpQueue>> TcpQueue::create(std::shared_ptr<Shared> shared,
                                                   const QueueOptions& options) {
  if (options.receive_buffers == 0 || options.receive_bytes == 0 ||
      options.completions <= options.receive_buffers) {
    return fail(Code::kInvalidArgument,
                "a queue needs receive buffers, and more completions than receive buffers");
  }
  if (options.receive_bytes > kLongest)
    return fail(Code::kInvalidArgument, "a receive buffer over TCP has at most 1 GiB");
  const std::size_t stride = round_up(options.receive_bytes, kCacheLine);
  RKV_ASSIGN_OR_RETURN(Mapping buffers, map_private(stride * options.receive_buffers));
  std::unique_ptr<TcpQueue> queue(
      new TcpQueue(std::move(shared), options, std::move(buffers), stride));
  RKV_RETURN_IF_ERROR(queue->open_descriptors());
  return queue;
}

TcpQueue::TcpQueue(std::shared_ptr<Shared> shared, const QueueOptions& options, Mapping buffers,
                   std::size_t stride)
    : shared_(std::move(shared)),
      options_(options),
      stride_(stride),
      buffers_(std::move(buffers)),
      room_(options.completions, options.receive_buffers),
      is_held_(options.receive_buffers) {
  ready_.reserve(options.completions);
  delivered_.reserve(options.completions);
  for (std::uint32_t i = options.receive_buffers; i > 0; --i)
    free_.push_back(i - 1);
}

Status TcpQueue::open_descriptors() {
  RKV_RETURN_IF_ERROR(waker_.open());
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail_call(Code::kBusy, "epoll_create1", errno);
  epoll_event interest{.events = EPOLLIN, .data = {.u64 = kWakerEvent}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, waker_.fd(), &interest) != 0)
    return fail_call(Code::kBusy, "epoll_ctl", errno);
  return {};
}

TcpQueue::~TcpQueue() {
  RKV_CHECK(room_.is_unused() && opened_.empty(), "a queue destroyed before its connections");
}

// ---- any thread

void TcpQueue::deliver(const Completion& one) {
  {
    const MutexLock lock(mutex_);
    delivered_.push_back(one);
  }
  has_news_.store(true, std::memory_order_seq_cst);
  if (is_asleep_.load(std::memory_order_seq_cst)) waker_.wake();
}

void TcpQueue::room_came_back() {
  has_room_.store(true, std::memory_order_seq_cst);
  if (is_asleep_.load(std::memory_order_seq_cst)) waker_.wake();
}

std::optional<std::uint32_t> TcpQueue::take_buffer(TcpConnection& connection) {
  const MutexLock lock(mutex_);
  if (free_.empty()) {
    if (std::ranges::find(starving_, &connection) == starving_.end())
      starving_.push_back(&connection);
    return std::nullopt;
  }
  const std::uint32_t buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void TcpQueue::give_back(std::uint32_t buffer) {
  const MutexLock lock(mutex_);
  free_.push_back(buffer);
}

void TcpQueue::watch(int socket, std::uint32_t events) {
  epoll_event interest{.events = events, .data = {.u64 = kSocketEvent}};
  epoll_ctl(epoll_.get(), events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD, socket, &interest);
}

// ---- the queue's thread

Status TcpQueue::look_after(TcpConnection& connection, int socket) {
  epoll_event interest{.events = EPOLLIN, .data = {.u64 = kSocketEvent}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &interest) != 0)
    return fail_call(Code::kBusy, "epoll_ctl", errno);
  opened_.push_back(&connection);
  return {};
}

void TcpQueue::look() {
  looks_.fetch_add(1, std::memory_order_relaxed);
  std::erase_if(opened_, [](TcpConnection* connection) { return !connection->look(); });
}

void TcpQueue::fetch() {
  ready_.clear();
  next_ = 0;
  has_news_.store(false, std::memory_order_seq_cst);
  const MutexLock lock(mutex_);
  std::swap(ready_, delivered_);
}

std::size_t TcpQueue::take_ready(std::span<Completion> out) {
  const std::size_t count = std::min(out.size(), ready_.size() - next_);
  for (Completion& one : out.first(count)) {
    one = ready_[next_++];
    if (one.kind == Completion::Kind::kReceive) {
      is_held_[one.receive_buffer] = true;
    } else if (one.kind != Completion::Kind::kDisconnected) {
      static_cast<TcpConnection*>(one.connection)->polled();
    }
  }
  return count;
}

std::size_t TcpQueue::poll(std::span<Completion> out) {
  if (next_ == ready_.size()) {
    look();
    if (!has_news()) return 0;
    fetch();
  }
  return take_ready(out);
}

void TcpQueue::release(std::span<const std::uint32_t> receive_buffers) {
  {
    const MutexLock lock(mutex_);
    for (const std::uint32_t buffer : receive_buffers) {
      RKV_CHECK(buffer < is_held_.size() && is_held_[buffer],
                "release() of a buffer that is not held");
      is_held_[buffer] = false;
      free_.push_back(buffer);
    }
  }
  feed_the_starving();
}

void TcpQueue::feed_the_starving() {
  std::vector<TcpConnection*> starving;
  {
    const MutexLock lock(mutex_);
    if (!free_.empty()) starving.swap(starving_);
  }
  for (TcpConnection* const connection : starving)
    connection->buffer_came_back();
}

void TcpQueue::forget(TcpConnection& connection) {
  std::erase(opened_, &connection);
  drop_completions(connection);
  feed_the_starving();
}

void TcpQueue::drop_completions(TcpConnection& connection) {
  const auto is_its = [&](const Completion& one) { return one.connection == &connection; };
  const MutexLock lock(mutex_);
  std::erase(starving_, &connection);
  for (std::size_t i = next_; i != ready_.size(); ++i) {
    if (is_its(ready_[i]) && ready_[i].kind == Completion::Kind::kReceive)
      free_.push_back(ready_[i].receive_buffer);
  }
  ready_.erase(
      std::remove_if(ready_.begin() + static_cast<std::ptrdiff_t>(next_), ready_.end(), is_its),
      ready_.end());
  for (const Completion& one : delivered_) {
    if (is_its(one) && one.kind == Completion::Kind::kReceive) free_.push_back(one.receive_buffer);
  }
  std::erase_if(delivered_, is_its);
}

// ---- waiting

bool TcpQueue::is_ready() {
  if (next_ != ready_.size() || has_news()) return true;
  if (has_room_.exchange(false, std::memory_order_seq_cst) || waker_.consume()) return true;
  look();
  return has_news();
}

void TcpQueue::wait(const Deadline& deadline) {
  if (is_ready()) return;
  const SteadyClock clock;
  const Nanos began = clock.now();
  if (options_.poll != PollMode::kEvent &&
      spin_window_.spin([this] { return is_ready(); }, options_.poll, deadline))
    return;
  if (options_.poll == PollMode::kBusy || !begin_sleep()) return;
  epoll_event event;
  epoll_wait(epoll_.get(), &event, 1, deadline.left_ms());
  end_sleep();
  spin_window_.slept(clock.now() - began);
}

std::optional<int> TcpQueue::begin_sleep() {
  is_asleep_.store(true, std::memory_order_seq_cst);
  if (!has_news() && !has_room_.load(std::memory_order_seq_cst) && !waker_.consume())
    return epoll_.get();
  is_asleep_.store(false, std::memory_order_seq_cst);
  return std::nullopt;
}

void TcpQueue::end_sleep() {
  is_asleep_.store(false, std::memory_order_seq_cst);
  waker_.drain();
  waker_.consume();
  looks_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace rkv::rdma::tcp
