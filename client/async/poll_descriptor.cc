#include "client/async/poll_descriptor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

namespace rkv::client {

namespace {

std::unexpected<Error> no_descriptor(const char* call) {
  return std::unexpected(Error{.code = Code::kOutOfMemory,
                               .sys_errno = errno,
                               .call = call,
                               .text = "raise the limit of open files (ulimit -n)"});
}

Status add(int epoll, int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return no_descriptor("epoll_ctl");
}

}  // namespace

Result<PollDescriptor> PollDescriptor::create() {
  PollDescriptor made;
  made.epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!made.epoll_) return no_descriptor("epoll_create1");
  made.wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made.wake_) return no_descriptor("eventfd");
  made.timer_ = Fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!made.timer_) return no_descriptor("timerfd_create");
  RKV_RETURN_IF_ERROR(add(made.epoll_.get(), made.wake_.get()));
  RKV_RETURN_IF_ERROR(add(made.epoll_.get(), made.timer_.get()));
  return made;
}

void PollDescriptor::wake() const {
  const std::uint64_t one = 1;
  // If the counter is full, the sleeper is awake anyway.
  [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);
}

// A queue that was destroyed has removed its descriptor from epoll_ by closing it. The new queue's
// descriptor may have the same number: it is not in epoll_ either, so it is added.
void PollDescriptor::watch(int queue_fd) {
  if (watched_ != queue_fd) forget_queue();
  epoll_event event{.events = EPOLLIN, .data = {.fd = queue_fd}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, queue_fd, &event);  // EEXIST: it is there already
  watched_ = queue_fd;
}

void PollDescriptor::forget_queue() {
  if (watched_ >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watched_, nullptr);
  watched_ = -1;
}

void PollDescriptor::set_timer(Nanos wait) {
  wait = std::max<Nanos>(wait, 1);  // 0 would mean never
  const itimerspec at{
      .it_interval = {},
      .it_value = {.tv_sec = wait / kNanosPerSecond, .tv_nsec = wait % kNanosPerSecond}};
  timerfd_settime(timer_.get(), 0, &at, nullptr);
}

bool PollDescriptor::begin_sleep(rdma::Queue* queue, Nanos wait) {
  if (queue != nullptr) {
    if (queue->is_ready()) return false;  // there are completions that begin_sleep() does not see
    const auto fd = queue->begin_sleep();
    if (!fd) return false;
    watch(*fd);
  } else {
    forget_queue();  // nobody would read its descriptor
  }
  sleeps_ = queue;
  set_timer(wait);
  return true;
}

// Reads the event and the timer, so that they do not wake the next sleep at once. Which of them
// woke this one does not matter.
void PollDescriptor::end_sleep() {
  if (rdma::Queue* const queue = std::exchange(sleeps_, nullptr)) queue->end_sleep();
  consume();
}

void PollDescriptor::consume() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto woken = read(wake_.get(), &count, sizeof count);
  [[maybe_unused]] const auto timed = read(timer_.get(), &count, sizeof count);
}

// If no descriptors can be made, the numbers still name the parent's: then a wake-up wakes the
// parent needlessly.
void PollDescriptor::part_from_parent() const {
  const auto own = create();
  if (!own) return;
  dup3(own->epoll_.get(), epoll_.get(), O_CLOEXEC);
  dup3(own->wake_.get(), wake_.get(), O_CLOEXEC);
  dup3(own->timer_.get(), timer_.get(), O_CLOEXEC);
}

}  // namespace rkv::client
