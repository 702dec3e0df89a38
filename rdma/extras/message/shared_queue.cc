#include "rdma/extras/message/shared_queue.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <tuple>

#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace detail {

Result<std::shared_ptr<SharedQueue>> SharedQueue::create(const MessageDriverOptions& options) {
  if (options.entries == 0 || options.transports == 0 || options.transports > 65'000) {
    return fail(Code::kInvalidArgument, "entries is at least 1; transports is from 1 to 65000");
  }
  Descriptor poller(epoll_create1(EPOLL_CLOEXEC));
  RKV_RETURN_IF_ERROR(from_minus_one("epoll_create1", poller.get()));
  Descriptor waker(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  RKV_RETURN_IF_ERROR(from_minus_one("eventfd", waker.get()));
  std::shared_ptr<SharedQueue> out(new SharedQueue(options, std::move(poller), std::move(waker)));
  RKV_RETURN_IF_ERROR(out->watch(out->waker_.get(), nullptr, EPOLLIN));
  return out;
}

Status SharedQueue::watch(int fd, Seat* seat, std::uint32_t how) {
  epoll_event event{};
  event.events = how;
  event.data.ptr = seat;
  return from_minus_one("epoll_ctl", epoll_ctl(poller_.get(), EPOLL_CTL_ADD, fd, &event));
}

Status SharedQueue::open(const Device& device) {
  if (queue_) {
    if (queue_->device.raw() == device.raw()) return {};
    return fail(Code::kInvalidArgument,
                "the message driver's queue is of another device: use a driver for each device");
  }
  RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(device));
  RKV_ASSIGN_OR_RETURN(
      CompletionQueue queue,
      CompletionQueue::create(device, {.entries = options_.entries, .channel = &channel}));
  RKV_RETURN_IF_ERROR(watch(channel.fd(), nullptr, EPOLLIN));
  queue_.emplace(device.share(), std::move(channel), std::move(queue));
  return {};
}

Result<std::unique_ptr<LinkQueues>> SharedQueue::admit(const Device& device, std::uint32_t sends,
                                                       std::uint32_t receives) {
  RKV_RETURN_IF_ERROR(open(device));
  RKV_ASSIGN_OR_RETURN(CompletionBudget::Reservation entries, budget_.reserve(sends + receives));
  return std::make_unique<Seat>(shared_from_this(), std::move(entries), sends, receives);
}

MessageDriver::Counters SharedQueue::counters() const {
  return {.transports = static_cast<std::uint32_t>(router_.size()),
          .entries_reserved = budget_.reserved(),
          .polled = polled_,
          .strays = strays_};
}

void SharedQueue::route(std::span<const WorkCompletion> completions) {
  polled_ += completions.size();
  router_.dispatch(
      completions, [](Seat& seat, const WorkCompletion& one) { seat.deliver(one); },
      [this](const WorkCompletion& /*stray*/) { ++strays_; });
}

Status SharedQueue::pump() {
  std::array<WorkCompletion, 32> done;
  std::size_t count = done.size();
  for (std::size_t all = 0; count == done.size() && all < options_.entries; all += count) {
    RKV_ASSIGN_OR_RETURN(count, queue_->queue.poll(done));
    route(std::span(done).first(count));
  }
  return {};
}

// Descriptors of seats are edge-triggered, so that an event that its transport does not look at
// wakes the thread once. The channel and the eventfd are drained by others.
Status SharedQueue::collect() {
  std::array<epoll_event, 64> events;
  int count = static_cast<int>(events.size());
  // Events without a seat stay readable: they are returned each time.
  for (int rounds = 0; count == static_cast<int>(events.size()) && rounds < 64; ++rounds) {
    count = epoll_wait(poller_.get(), events.data(), static_cast<int>(events.size()), 0);
    if (count < 0 && errno == EINTR) return {};
    RKV_RETURN_IF_ERROR(from_minus_one("epoll_wait", count));
    for (const epoll_event& one : std::span(events).first(static_cast<std::size_t>(count)))
      if (one.data.ptr != nullptr) note(*static_cast<Seat*>(one.data.ptr));
  }
  return {};
}

Result<bool> SharedQueue::prepare_sleep() {
  const bool all_settled = notified_ == 0;
  notified_ = 0;
  ++round_;
  if (waker_readable_) {
    std::uint64_t old = 0;
    std::ignore = ::read(waker_.get(), &old, sizeof old);
    waker_readable_ = false;
  }
  RKV_RETURN_IF_ERROR(collect());
  // If nothing was polled since the queue was armed, it is armed still, or its event is unread.
  if (queue_ && armed_at_ != polled_) {
    RKV_RETURN_IF_ERROR(queue_->channel.drain());
    RKV_RETURN_IF_ERROR(queue_->queue.arm());
    armed_at_ = polled_;
  }
  return all_settled;
}

void SharedQueue::note(Seat& seat) {
  if (!seat.listed_) ready_.push_back(&seat);
  seat.listed_ = true;
  if (std::exchange(seat.asleep_, false)) notify(seat);
}

void SharedQueue::notify(Seat& seat) {
  seat.notified_in_round_ = round_;
  ++notified_;
  if (waker_readable_) return;
  const std::uint64_t one = 1;
  std::ignore = ::write(waker_.get(), &one, sizeof one);  // fails only if it is readable anyway
  waker_readable_ = true;
}

void SharedQueue::settle(Seat& seat) {
  if (seat.notified_in_round_ == round_) --notified_;
  seat.notified_in_round_ = 0;
}

void SharedQueue::leave(Seat& seat) {
  for (const int fd : seat.watched_)
    epoll_ctl(poller_.get(), EPOLL_CTL_DEL, fd, nullptr);  // fails if it is closed
  settle(seat);
  if (seat.generation_ == 0) return;
  router_.remove(seat.qp_num_);
  std::erase(ready_, &seat);
  // The queue pair no longer exists, so no more completions of it will come: what is polled here
  // makes its entries free. An error means that the queue is broken, which every poll reports.
  std::ignore = pump();
}

Result<std::size_t> SharedQueue::poll(std::span<std::uint32_t> ready) {
  if (queue_) RKV_RETURN_IF_ERROR(pump());
  // The ends of connections take a system call, so they are looked for now and then; arm() always
  // does it.
  if (ready_.empty() && ++quiet_polls_ % 64 == 0) RKV_RETURN_IF_ERROR(collect());
  const std::size_t count = std::min(ready.size(), ready_.size());
  for (std::size_t i = 0; i < count; ++i) {
    ready[i] = ready_[i]->qp_num_;
    ready_[i]->listed_ = false;
  }
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

Result<bool> SharedQueue::arm() {
  RKV_ASSIGN_OR_RETURN(const bool all_settled, prepare_sleep());
  if (queue_) RKV_RETURN_IF_ERROR(pump());
  return all_settled && ready_.empty();
}

void Seat::Inbox::push(const WorkCompletion& one) {
  RKV_CHECK(count_ < ring_.size(), "more completions of a transport than it has requests");
  ring_[(first_ + count_++) % ring_.size()] = one;
}

std::size_t Seat::Inbox::take(std::span<WorkCompletion> out) {
  const std::size_t count = std::min(out.size(), count_);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = ring_[first_];
    first_ = (first_ + 1) % ring_.size();
  }
  count_ -= count;
  return count;
}

Status Seat::join(std::uint32_t qp_num) {
  RKV_ASSIGN_OR_RETURN(generation_, shared_->router_.add(qp_num, this));
  qp_num_ = qp_num;
  return {};
}

void Seat::deliver(const WorkCompletion& one) {
  const WorkId id = WorkId::from(one.wr_id);
  WorkCompletion stripped = one;
  stripped.wr_id = id.number;
  (id.receive ? receives_ : sends_).push(stripped);
  shared_->note(*this);
}

Result<std::size_t> Seat::poll(Inbox& from, std::span<WorkCompletion> out) {
  RKV_RETURN_IF_ERROR(shared_->pump());
  shared_->settle(*this);
  return from.take(out);
}

Status Seat::watch(int fd) {
  RKV_RETURN_IF_ERROR(shared_->watch(fd, this, EPOLLIN | EPOLLET));
  watched_.push_back(fd);
  return {};
}

Result<bool> Seat::arm() {
  shared_->settle(*this);
  return shared_->prepare_sleep();
}

void Seat::sleeps_on(bool asleep) {
  asleep_ = asleep;
  if (asleep && !(sends_.empty() && receives_.empty())) {
    asleep_ = false;
    shared_->notify(*this);
  }
}

SharedQueue* shared_of(const std::optional<MessageDriver>& driver) {
  return driver ? driver->shared_.get() : nullptr;
}

}  // namespace detail

Result<MessageDriver> MessageDriver::create(const MessageDriverOptions& options) {
  RKV_ASSIGN_OR_RETURN(std::shared_ptr<detail::SharedQueue> shared,
                       detail::SharedQueue::create(options));
  return MessageDriver(std::move(shared));
}
Result<std::size_t> MessageDriver::poll(std::span<std::uint32_t> ready) {
  return shared_->poll(ready);
}
Result<bool> MessageDriver::arm() {
  return shared_->arm();
}
int MessageDriver::fd() const {
  return shared_->fd();
}
MessageDriver::Counters MessageDriver::counters() const {
  return shared_->counters();
}

}  // namespace rkv::rdma
