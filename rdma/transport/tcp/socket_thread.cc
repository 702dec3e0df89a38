#include "rdma/transport/tcp/socket_thread.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "common/thread.h"

namespace rkv::rdma::tcp {

namespace {

constexpr std::uint64_t kOfWaker = 0;

}  // namespace

SocketThread::~SocketThread() {
  stopping_.store(true);
  if (!thread_.joinable()) return;
  waker_.wake();
  thread_.join();
}

Status SocketThread::start() {
  const MutexLock lock(mutex_);
  return start_locked();
}

Status SocketThread::start_locked() {
  if (thread_.joinable()) return {};
  if (waker_.fd() < 0) RKV_RETURN_IF_ERROR(waker_.open());
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail_call(Code::kBusy, "epoll_create1", errno);
  epoll_event interest{.events = EPOLLIN, .data = {.u64 = kOfWaker}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, waker_.fd(), &interest) != 0)
    return fail_call(Code::kBusy, "epoll_ctl", errno);
  auto started = start_without_signals([this] { run(); });
  if (!started) return fail_call(Code::kBusy, "pthread_create", started.error().sys_errno);
  thread_ = std::move(*started);
  return {};
}

Status SocketThread::arm(std::uint64_t number, const Socket& socket, int how) {
  epoll_event interest{.events = socket.events, .data = {.u64 = number}};
  if (socket.care == Care::kStandIn) interest.events |= EPOLLONESHOT;
  if (epoll_ctl(epoll_.get(), how, socket.fd, &interest) != 0)
    return fail_call(Code::kBusy, "epoll_ctl", errno);
  return {};
}

Status SocketThread::add(std::uint64_t number, int socket, Care care, Watched& watched) {
  const MutexLock lock(mutex_);
  RKV_RETURN_IF_ERROR(start_locked());
  Socket one{.fd = socket, .care = care, .watched = &watched, .events = EPOLLIN};
  if (care == Care::kStandIn) one.looks = watched.looks();
  sockets_.emplace(number, one);
  Status armed = arm(number, one, EPOLL_CTL_ADD);
  if (!armed) sockets_.erase(number);
  return armed;
}

// Sets a moment; 0: none. The set's node is used again, so an entry that comes and goes allocates
// nothing.
void SocketThread::set(Nanos& moment, Nanos to, std::uint64_t number) {
  Moments::node_type node;
  if (moment != 0) node = moments_.extract(moments_.find({moment, number}));
  moment = to;
  if (moment == 0) {
    if (node) spare_ = std::move(node);
    return;
  }
  if (!node) node = std::move(spare_);
  if (!node) {
    moments_.emplace(moment, number);
    return;
  }
  node.value() = {moment, number};
  moments_.insert(std::move(node));
}

void SocketThread::remove(std::uint64_t number) {
  const MutexLock lock(mutex_);
  const auto at = sockets_.find(number);
  if (at != sockets_.end()) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, at->second.fd, nullptr);
    set(at->second.look_at, 0, number);
    set(at->second.call_at, 0, number);
    sockets_.erase(at);
  }
  while (calling_ == number)
    called_.wait(mutex_);
}

void SocketThread::watch(std::uint64_t number, std::uint32_t events) {
  const MutexLock lock(mutex_);
  const auto at = sockets_.find(number);
  if (at == sockets_.end() || !at->second.is_watched || at->second.events == events) return;
  Socket& socket = at->second;
  socket.events = events;
  socket.is_watched = events != 0;
  if (!socket.is_watched) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.fd, nullptr);
  } else if (socket.look_at == 0) {
    (void)arm(number, socket, EPOLL_CTL_MOD);
  }
}

void SocketThread::call_at(std::uint64_t number, Nanos moment) {
  {
    const MutexLock lock(mutex_);
    const auto at = sockets_.find(number);
    if (at == sockets_.end()) return;
    set(at->second.call_at, moment, number);
  }
  waker_.wake();
}

void SocketThread::run() {
  name_thread("rkv-tcp");
  std::array<epoll_event, 64> events;
  while (!stopping_.load()) {
    int timeout = -1;
    {
      const MutexLock lock(mutex_);
      timeout = timeout_ms();
    }
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kOfWaker) {
        waker_.drain();
        waker_.consume();
      } else {
        event(events[i].data.u64);
      }
    }
    look_at_the_due();
  }
}

int SocketThread::timeout_ms() {
  if (moments_.empty()) return -1;
  const SteadyClock clock;
  return Deadline(clock, moments_.begin()->first).left_ms();
}

void SocketThread::event(std::uint64_t number) {
  {
    const MutexLock lock(mutex_);
    const auto at = sockets_.find(number);
    if (at == sockets_.end() || !at->second.is_watched) return;
    Socket& socket = at->second;
    if (socket.care == Care::kStandIn) {
      if (socket.look_at != 0) return;
      const SteadyClock clock;
      socket.looks = socket.watched->looks();
      set(socket.look_at, clock.now() + kAbsent, number);
      return;
    }
  }
  call(number);
}

void SocketThread::look_at_the_due() {
  const SteadyClock clock;
  due_.clear();
  {
    const MutexLock lock(mutex_);
    const Nanos now = clock.now();
    while (!moments_.empty() && moments_.begin()->first <= now) {
      const auto [moment, number] = *moments_.begin();
      Socket& socket = sockets_.at(number);
      bool is_due = false;
      if (socket.look_at == moment) {
        set(socket.look_at, 0, number);
        is_due = socket.looks == socket.watched->looks();  // its queue has not polled since
        if (socket.is_watched) (void)arm(number, socket, EPOLL_CTL_MOD);
      }
      if (socket.call_at == moment) {
        set(socket.call_at, 0, number);
        is_due = true;
      }
      if (is_due) due_.push_back(number);
    }
  }
  for (const std::uint64_t number : due_)
    call(number);
}

void SocketThread::call(std::uint64_t number) {
  Watched* watched = nullptr;
  {
    const MutexLock lock(mutex_);
    const auto at = sockets_.find(number);
    if (at == sockets_.end()) return;
    watched = at->second.watched;
    calling_ = number;
  }
  watched->on_socket();
  {
    const MutexLock lock(mutex_);
    calling_ = 0;
  }
  called_.notify_all();
}

}  // namespace rkv::rdma::tcp
