#include "rdma/transport/verbs/queue.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"
#include "rdma/transport/verbs/connection.h"
#include "rkv/rdma/checked.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma::verbs {
namespace {

// This bit of a wr_id says that the rest is the number of a receive buffer.
constexpr std::uint64_t kReceiveBit = std::uint64_t{1} << 63;
constexpr std::size_t kPollBatch = 64;
constexpr std::size_t kCacheLine = 64;
// Reading the event channel is a system call, so it is done once per this many polls and in wait().
constexpr std::uint32_t kPollsPerEventCheck = 1024;
constexpr std::uint32_t kSpinsPerEventCheck = 16 * kPollsPerEventCheck;  // a spin is shorter
// How long a queue pair outlives its connection, and how many queue pairs may. Flushing takes
// microseconds.
constexpr Nanos kRetirement = 200 * kNanosPerMs;
constexpr std::size_t kMostRetired = 64;
constexpr std::size_t kProbedBytes = 8;

}  // namespace

Result<std::unique_ptr<VerbsQueue>> VerbsQueue::create(std::shared_ptr<const Shared> shared,
                                                       const QueueOptions& options) {
  if (options.receive_buffers == 0 || options.receive_bytes == 0 ||
      options.completions <= options.receive_buffers) {
    return fail(Code::kInvalidArgument,
                "a queue needs receive buffers, and more completions than receive buffers");
  }
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, shared->device.attributes());
  const std::size_t stride = round_up(options.receive_bytes, kCacheLine);
  RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(shared->device));
  RKV_ASSIGN_OR_RETURN(CompletionQueue completions,
                       CompletionQueue::create(
                           shared->device, {.entries = options.completions, .channel = &channel}));
  RKV_ASSIGN_OR_RETURN(MemoryRegion buffers,
                       MemoryRegion::allocate(shared->pd, stride * options.receive_buffers,
                                              AccessFlags::kLocalWrite));
  RKV_ASSIGN_OR_RETURN(SharedReceiveQueue receives,
                       SharedReceiveQueue::create(shared->pd, {.length = options.receive_buffers}));
  RKV_ASSIGN_OR_RETURN(EventChannel events, EventChannel::create());
  const std::shared_ptr<Roll> roll = shared->queues;
  std::unique_ptr<VerbsQueue> queue(new VerbsQueue(std::move(shared), options, std::move(channel),
                                                   std::move(completions), std::move(receives),
                                                   std::move(buffers), std::move(events)));
  queue->soft_roce_ = limits.soft_roce;
  if (queue->shared_->iwarp) {
    RKV_ASSIGN_OR_RETURN(
        queue->probe_sink_,
        MemoryRegion::allocate(queue->shared_->pd, kProbedBytes, AccessFlags::kLocalWrite));
    checked::allow_overlaps(*queue->probe_sink_->raw());
  }
  RKV_RETURN_IF_ERROR(queue->open_descriptors());
  for (std::uint32_t i = 0; i < options.receive_buffers; ++i)
    queue->give_back(i);
  queue->on_roll_ = Roll::enter(roll, *queue);
  return queue;
}

VerbsQueue::VerbsQueue(std::shared_ptr<const Shared> shared, const QueueOptions& options,
                       CompletionChannel channel, CompletionQueue completions,
                       SharedReceiveQueue receives, MemoryRegion buffers, EventChannel events)
    : shared_(std::move(shared)),
      options_(options),
      stride_(round_up(options.receive_bytes, kCacheLine)),
      channel_(std::move(channel)),
      completions_(std::move(completions)),
      buffers_(std::move(buffers)),
      receives_(std::move(receives)),
      events_(std::move(events)),
      held_(options.receive_buffers),
      room_(options.completions, options.receive_buffers) {
  ready_.resize(options.completions + kPollBatch);
}

Status VerbsQueue::open_descriptors() {
  RKV_RETURN_IF_ERROR(waker_.open());
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  RKV_RETURN_IF_ERROR(from_minus_one("epoll_create1", epoll_));
  for (const int fd : {waker_.fd(), channel_.fd(), events_.fd()}) {
    epoll_event interest{.events = EPOLLIN, .data = {.fd = fd}};
    RKV_RETURN_IF_ERROR(
        from_minus_one("epoll_ctl", epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &interest)));
  }
  return {};
}

VerbsQueue::~VerbsQueue() {
  RKV_CHECK(connections_.empty(), "a queue destroyed before its connections");
  bury(true);
  if (epoll_ >= 0) close(epoll_);
}

// ---- any thread ----

void VerbsQueue::attach(VerbsConnection& connection) {
  {
    const MutexLock lock(mutex_);
    arrivals_.push_back({connection.number(), &connection, nullptr});
  }
  wake_for_control();
}

void VerbsQueue::forget(std::shared_ptr<ibv_qp> pair) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr created{};
  const int asked = ibv_query_qp(pair.get(), &attributes, IBV_QP_STATE, &created);
  // Verbs have no transition from RESET to the error state. A pair in RESET has received nothing,
  // so it needs none.
  if (asked != 0 || attributes.qp_state != IBV_QPS_RESET) {
    attributes.qp_state = IBV_QPS_ERR;
    report_teardown(
        from_errno("ibv_modify_qp", ibv_modify_qp(pair.get(), &attributes, IBV_QP_STATE)));
  }
  const std::uint32_t qp_num = pair->qp_num;
  {
    const MutexLock lock(mutex_);
    arrivals_.push_back({qp_num, nullptr, std::move(pair)});
  }
  wake_for_control();
}

void VerbsQueue::pair_failed(const void* queue_pair) {
  {
    const MutexLock lock(mutex_);
    failed_pairs_.push_back(queue_pair);
  }
  wake_for_control();
}

void VerbsQueue::wake_for_control() {
  attention_.store(true, std::memory_order_release);
  wake();
}

void VerbsQueue::wake() {
  waker_.wake();
}

// ---- the queue's thread ----

std::size_t VerbsQueue::probed_bytes(std::size_t bytes) const {
  return probe_sink_ ? std::min(bytes, kProbedBytes) : 0;
}

RegisteredSpan VerbsQueue::probe_sink(std::size_t bytes) const {
  return probe_sink_ ? probe_sink_->local(0, bytes) : RegisteredSpan();
}

VerbsConnection* VerbsQueue::find(std::uint32_t qp_num) {
  if (last_ != nullptr && last_number_ == qp_num) return last_;
  const auto found = connections_.find(qp_num);
  if (found == connections_.end()) return nullptr;
  last_number_ = qp_num;
  last_ = found->second;
  return last_;
}

void VerbsQueue::give_back(std::uint32_t buffer) {
  const ReceiveRequest request{.wr_id = kReceiveBit | buffer,
                               .buffer = buffers_.local(buffer * stride_, options_.receive_bytes)};
  report_teardown(receives_.post(std::span(&request, 1)));
}

void VerbsQueue::release(std::span<const std::uint32_t> receive_buffers) {
  constexpr std::size_t kBatch = 32;
  std::array<ReceiveRequest, kBatch> requests;
  while (!receive_buffers.empty()) {
    const auto now = receive_buffers.first(std::min(kBatch, receive_buffers.size()));
    for (std::size_t i = 0; i < now.size(); ++i) {
      const std::uint32_t buffer = now[i];
      RKV_CHECK(buffer < held_.size() && held_[buffer], "release() of a buffer that is not held");
      held_[buffer] = false;
      requests[i] = {.wr_id = kReceiveBit | buffer,
                     .buffer = buffers_.local(buffer * stride_, options_.receive_bytes)};
    }
    report_teardown(receives_.post(std::span(requests).first(now.size())));
    receive_buffers = receive_buffers.subspan(now.size());
  }
}

// Never overruns: entries that are polled and not yet delivered are part of the reservations.
void VerbsQueue::compact(std::size_t count) {
  if (ready_next_ == ready_end_) ready_next_ = ready_end_ = 0;
  if (ready_end_ + count <= ready_.size()) return;
  std::copy(ready_.begin() + static_cast<std::ptrdiff_t>(ready_next_),
            ready_.begin() + static_cast<std::ptrdiff_t>(ready_end_), ready_.begin());
  ready_end_ -= ready_next_;
  ready_next_ = 0;
}

void VerbsQueue::append(const WorkCompletion& one) {
  compact(1);
  ready_[ready_end_++] = one;
}

// Appends a batch of completions from the device; returns how many arrived.
std::size_t VerbsQueue::refill() {
  if (broken_) [[unlikely]]
    return 0;
  compact(kPollBatch);
  const auto found = completions_.poll(std::span(ready_).subspan(ready_end_, kPollBatch));
  if (!found) [[unlikely]] {
    break_down(found.error());
    return 0;
  }
  ready_end_ += *found;
  return *found;
}

std::size_t VerbsQueue::poll(std::span<rdma::Completion> out) {
  if (attention_.load(std::memory_order_relaxed)) [[unlikely]]
    process_control_events();
  if (++polls_ % kPollsPerEventCheck == 0) [[unlikely]] {
    read_events();
    bury(false);
    look_at_silence(SteadyClock().now());
  }
  std::size_t count = 0;
  while (count < out.size()) {
    if (!has_ready() && refill() == 0) {
      if (ended_.empty()) break;
      ended_.back()->tell_end(out[count++]);
      if (ended_.back()->closed()) ended_.pop_back();
      continue;
    }
    if (translate(ready_[ready_next_++], out[count])) ++count;
  }
  return count;
}

bool VerbsQueue::translate(const WorkCompletion& from, rdma::Completion& out) {
  if ((from.wr_id & kReceiveBit) != 0) return translate_receive(from, out);
  VerbsConnection* connection = find(from.qp_num);
  if (connection == nullptr) return false;
  if (connection->complete(from, out)) return true;
  room_came_back_ = true;
  return false;
}

bool VerbsQueue::translate_receive(const WorkCompletion& from, rdma::Completion& out) {
  VerbsConnection* connection = find(from.qp_num);
  const auto buffer = static_cast<std::uint32_t>(from.wr_id & ~kReceiveBit);
  if (connection == nullptr) {
    if (is_retired(from.qp_num)) {
      give_back(buffer);
    } else {
      strays_.push_back(from);
    }
    return false;
  }
  if (!from.ok() || connection->closed()) [[unlikely]] {
    give_back(buffer);
    connection->close();
    return false;
  }
  held_[buffer] = true;
  connection->heard();
  out = {.kind = rdma::Completion::Kind::kReceive,
         .connection = connection,
         .message = buffers_.bytes().subspan(buffer * stride_, from.byte_length),
         .receive_buffer = buffer};
  return true;
}

void VerbsQueue::admit(const Arrival& arrival) {
  if (arrival.connection != nullptr) connections_[arrival.qp_num] = arrival.connection;
  const auto mine = [&](const WorkCompletion& one) { return one.qp_num == arrival.qp_num; };
  for (const WorkCompletion& stray : strays_) {
    if (!mine(stray)) continue;
    if (arrival.connection != nullptr) {
      append(stray);
    } else {
      give_back(static_cast<std::uint32_t>(stray.wr_id & ~kReceiveBit));
    }
  }
  std::erase_if(strays_, mine);
}

void VerbsQueue::process_control_events() {
  bury(false);
  if (!attention_.exchange(false, std::memory_order_acq_rel)) return;
  std::vector<Arrival> arrivals;
  std::vector<const void*> failed;
  {
    const MutexLock lock(mutex_);
    arrivals.swap(arrivals_);
    failed.swap(failed_pairs_);
  }
  for (const Arrival& arrival : arrivals) {
    admit(arrival);
    if (arrival.connection == nullptr) retire(arrival.forgotten);
  }
  for (const auto& [number, connection] : connections_) {
    const bool failed_pair =
        std::ranges::any_of(failed, [&](const void* pair) { return connection->is_pair(pair); });
    if (!connection->alive() || connection->peer_left() || failed_pair) connection->close();
    if (broken_) end_without_device(*connection);
  }
}

void VerbsQueue::read_events() {
  for (;;) {
    const auto event = events_.next();
    if (!event || !*event) {
      if (!event) report_teardown(std::unexpected(event.error()));
      return;
    }
    switch ((*event)->type()) {
      case RDMA_CM_EVENT_DISCONNECTED:
      case RDMA_CM_EVENT_UNREACHABLE:
      case RDMA_CM_EVENT_REJECTED:
      case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_DEVICE_REMOVAL:
      case RDMA_CM_EVENT_ESTABLISHED:
        break;
      default:  // TIMEWAIT_EXIT, ADDR_CHANGE: nothing to do
        continue;
    }
    const std::shared_ptr<void> owner = (*event)->owner();
    if (owner == nullptr) continue;
    auto* handle = static_cast<VerbsConnection::Handle*>(owner.get());
    if ((*event)->type() == RDMA_CM_EVENT_ESTABLISHED) {
      handle->established.store(true, std::memory_order_release);
      continue;
    }
    handle->peer_left.store(true, std::memory_order_release);
    // Numbers are reused: the number may belong to another connection by now.
    VerbsConnection* connection = find(handle->number);
    if (connection != nullptr && connection->has_handle(handle)) connection->close();
  }
}

// ---- waiting ----

bool VerbsQueue::is_ready() {
  if (has_ready() || !ended_.empty() || broken_) return true;
  // Unsignaled work completed in the last poll(). A user that found a connection full can post
  // again, and might otherwise sleep with no outstanding work to wake it.
  if (std::exchange(room_came_back_, false)) return true;
  return waker_.consume() || refill() != 0;
}

void VerbsQueue::wait(const Deadline& deadline) {
  if (is_ready()) return;
  const SteadyClock clock;
  const Nanos began = clock.now();
  look_at_silence(began);
  if (options_.poll != PollMode::kEvent && spin(deadline)) return;
  if (options_.poll == PollMode::kBusy || !begin_sleep()) return;
  take_events(sleep_ms(deadline, began));
  spin_window_.slept(clock.now() - began);
}

// Returns true when there is a reason to return.
bool VerbsQueue::spin(const Deadline& deadline) {
  const auto ready = [this] {
    if (refill() != 0 || waker_.consume()) return true;
    if (++spins_ % kSpinsPerEventCheck != 0) return false;
    read_events();
    look_at_silence(SteadyClock().now());
    return !ended_.empty() || has_ready();
  };
  return spin_window_.spin(ready, options_.poll, deadline);
}

// Arms, then polls again: completions after that poll raise the event.
std::optional<int> VerbsQueue::begin_sleep() {
  look_at_silence(SteadyClock().now());
  if (armed_) return epoll_;
  if (const Status armed = completions_.arm(); !armed) {
    break_down(armed.error());
    return std::nullopt;
  }
  armed_ = true;
  if (refill() != 0) return std::nullopt;
  return epoll_;
}

// A look may close connections, but that moves no entry of connections_.
void VerbsQueue::look_at_silence(Nanos now) {
  if (now < next_look_) [[likely]]
    return;
  next_look_ = now + VerbsConnection::kLookEvery;
  if (broken_) return;
  for (const auto& [number, connection] : connections_)
    connection->look_at_silence();
}

// The sleep ends at the next look at the latest.
int VerbsQueue::sleep_ms(const Deadline& deadline, Nanos now) const {
  if (connections_.empty()) return deadline.left_ms();
  const Nanos look = std::max<Nanos>(next_look_ - now, 0) / kNanosPerMs + 1;
  return static_cast<int>(std::min<Nanos>(deadline.left_ms(), look));
}

void VerbsQueue::take_events(int timeout_ms) {
  std::array<epoll_event, 3> events;
  const int count = epoll_wait(epoll_, events.data(), events.size(), timeout_ms);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.fd == channel_.fd()) {
      armed_ = false;
      if (const auto drained = channel_.drain(); !drained) return break_down(drained.error());
    } else if (events[i].data.fd == events_.fd()) {
      read_events();
    } else {
      waker_.drain();
      waker_.consume();
    }
  }
}

// The completion queue itself failed: no more completions arrive for any connection on it.
void VerbsQueue::break_down(const Error& error) {
  if (broken_) return;
  report_teardown(std::unexpected(error));
  abandon();
}

void VerbsQueue::abandon() {
  if (std::exchange(broken_, true)) return;
  bury(true);
  for (const auto& [number, connection] : connections_)
    end_without_device(*connection);
  // For connections that are about to join.
  attention_.store(true, std::memory_order_release);
}

// A connection whose end was already reported only waits for its destruction.
void VerbsQueue::end_without_device(VerbsConnection& connection) {
  if (connection.closed()) return;
  connection.close();
  report_when_empty(connection);
}

// ---- the end of a connection ----

bool VerbsQueue::drain(std::uint32_t qp_num, std::uint64_t marker, const Deadline& deadline) {
  const auto is_marker = [&](const WorkCompletion& one) {
    return one.qp_num == qp_num && one.wr_id == marker;
  };
  // Completions of other connections that arrive meanwhile are appended to `ready_`.
  std::size_t fresh = ready_end_ - ready_next_;
  for (;;) {
    const auto newest = std::span(ready_).subspan(ready_end_ - fresh, fresh);
    if (std::ranges::any_of(newest, is_marker)) return true;
    fresh = refill();
    if (fresh == 0 && (broken_ || deadline.passed())) return false;
  }
}

void VerbsQueue::retire(std::shared_ptr<ibv_qp> pair) {
  const std::uint32_t qp_num = pair->qp_num;
  forget_connection(qp_num);
  take_back(qp_num);
  retired_.push_back({.pair = std::move(pair), .until = SteadyClock().now() + kRetirement});
  bury(broken_);
}

bool VerbsQueue::is_retired(std::uint32_t qp_num) const {
  return std::ranges::any_of(retired_,
                             [&](const Retired& one) { return one.pair->qp_num == qp_num; });
}

// Destroys the queue pairs that have been retired for long enough, or all of them.
void VerbsQueue::bury(bool all) {
  if (retired_.empty()) [[likely]]
    return;
  const Nanos now = SteadyClock().now();
  while (!retired_.empty() &&
         (all || retired_.size() > kMostRetired || retired_.front().until <= now)) {
    const std::uint32_t qp_num = retired_.front().pair->qp_num;
    // Poll the flushed work and remove it while the number still belongs to this queue pair.
    while (refill() != 0) {
    }
    take_back(qp_num);
    // From here on another thread may create a queue pair with the same number.
    retired_.pop_front();
  }
}

void VerbsQueue::detach(std::uint32_t qp_num) {
  while (refill() != 0) {
  }
  forget_connection(qp_num);
  take_back(qp_num);
}

void VerbsQueue::forget_connection(std::uint32_t qp_num) {
  if (last_ != nullptr && last_number_ == qp_num) last_ = nullptr;
  const auto found = connections_.find(qp_num);
  if (found == connections_.end()) return;
  std::erase(ended_, found->second);
  connections_.erase(found);
}

// Removes the completions of `qp_num` that are polled but not delivered; its receive buffers go
// back to the device.
void VerbsQueue::take_back(std::uint32_t qp_num) {
  const auto begin = ready_.begin() + static_cast<std::ptrdiff_t>(ready_next_);
  const auto end = ready_.begin() + static_cast<std::ptrdiff_t>(ready_end_);
  const auto kept = std::remove_if(begin, end, [&](const WorkCompletion& one) {
    if (one.qp_num != qp_num) return false;
    if ((one.wr_id & kReceiveBit) != 0) {
      give_back(static_cast<std::uint32_t>(one.wr_id & ~kReceiveBit));
    }
    return true;
  });
  ready_end_ = static_cast<std::size_t>(kept - ready_.begin());
}

void VerbsQueue::report_when_empty(VerbsConnection& connection) {
  if (std::ranges::find(ended_, &connection) == ended_.end()) ended_.push_back(&connection);
}

}  // namespace rkv::rdma::verbs
