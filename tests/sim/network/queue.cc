#include "tests/sim/network/queue.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "tests/sim/network/link.h"

namespace rkv::rdma::sim {

namespace {
// Maximum duration of a poll in nanoseconds. Not 0, so that the clock advances in a loop of polls.
constexpr Nanos kPollNanos = 50;
}  // namespace

SimQueue::SimQueue(std::shared_ptr<Fabric> fabric, std::shared_ptr<Host> host,
                   const QueueOptions& options)
    : fabric_(std::move(fabric)),
      host_(std::move(host)),
      options_(options),
      reserved_(options.receive_buffers),
      buffers_(options.receive_buffers) {
  for (std::uint32_t i = options.receive_buffers; i > 0; --i)
    free_buffers_.push_back(i - 1);
  host_->queues.push_back(this);
}

SimQueue::~SimQueue() {
  RKV_CHECK(reserved_ == options_.receive_buffers, "a queue is destroyed before its connections");
  std::erase(host_->queues, this);
}

bool SimQueue::reserve(std::uint32_t completions) {
  if (reserved_ + completions > options_.completions) return false;
  reserved_ += completions;
  return true;
}

void SimQueue::push(const Item& item) {
  items_.push_back(item);
  nudge();
}

void SimQueue::deliver(Item item, Bytes message) {
  const std::uint32_t buffer = free_buffers_.back();
  free_buffers_.pop_back();
  buffers_[buffer].assign(message.begin(), message.end());
  item.completion.kind = Completion::Kind::kReceive;
  item.completion.message = buffers_[buffer];
  item.completion.receive_buffer = buffer;
  push(item);
}

std::size_t SimQueue::poll(std::span<Completion> out) {
  Scheduler& scheduler = fabric_->scheduler();
  if (scheduler.in_fiber()) {
    scheduler.may_yield();
    scheduler.spend(1 + scheduler.up_to(kPollNanos));
  }
  if (!host_->alive) return 0;
  std::size_t room = out.size();
  if (items_.size() > 1 && scheduler.chance(fabric_->faults().short_poll_in)) {
    room = std::min<std::size_t>(room, 1 + scheduler.random().below(items_.size()));
  }
  std::size_t count = 0;
  room_ = false;
  while (!items_.empty() && count < room) {
    const Item item = items_.front();
    items_.pop_front();
    const auto kind = item.completion.kind;
    if (kind != Completion::Kind::kReceive && kind != Completion::Kind::kDisconnected) {
      item.link->taken(item.side);
    }
    if (item.silent) {
      room_ = true;
    } else {
      out[count++] = item.completion;
    }
  }
  if (count != 0) room_ = false;
  return count;
}

void SimQueue::wait(const Deadline& deadline) {
  Scheduler& scheduler = fabric_->scheduler();
  if (!items_.empty() || std::exchange(room_, false) || std::exchange(woken_, false) ||
      deadline.passed()) {
    return scheduler.may_yield();
  }
  Nanos until = deadline.at();
  if (scheduler.chance(fabric_->faults().early_wake_in)) {
    until = std::min(until, scheduler.now() + scheduler.up_to(scheduler.pace().wake_up));
  }
  if (!host_->alive) until = std::min(until, scheduler.now() + scheduler.pace().wake_up);
  scheduler.park(point_, until);
  woken_ = false;
}

void SimQueue::wake() {
  woken_ = true;
  nudge();
}

void SimQueue::release(std::span<const std::uint32_t> receive_buffers) {
  Scheduler& scheduler = fabric_->scheduler();
  const Nanos at = scheduler.now() + scheduler.up_to(fabric_->faults().refill);
  for (const std::uint32_t buffer : receive_buffers) {
    const auto is_it = [&](const Returning& one) { return one.buffer == buffer; };
    RKV_CHECK(buffer < buffers_.size() && std::ranges::none_of(returning_, is_it) &&
                  std::ranges::find(free_buffers_, buffer) == free_buffers_.end(),
              "a receive buffer is released twice");
    buffers_[buffer] = {};
    returning_.push_back({buffer, at});
  }
}

bool SimQueue::has_receive_buffer() {
  while (!returning_.empty() && returning_.front().at <= fabric_->scheduler().now()) {
    free_buffers_.push_back(returning_.front().buffer);
    returning_.pop_front();
  }
  return !free_buffers_.empty();
}

void SimQueue::forget(const Link& link, int side) {
  std::erase_if(items_, [&](const Item& item) {
    if (item.link != &link || item.side != side) return false;
    if (item.completion.kind == Completion::Kind::kReceive) {
      buffers_[item.completion.receive_buffer] = {};
      free_buffers_.push_back(item.completion.receive_buffer);
    }
    return true;
  });
}

}  // namespace rkv::rdma::sim
