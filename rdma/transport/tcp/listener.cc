#include "rdma/transport/tcp/listener.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>

#include "common/log.h"
#include "rdma/transport/tcp/socket.h"

namespace rkv::rdma::tcp {

namespace {

constexpr int kResolveMs = 2000;
constexpr int kCallersAtOnce = 16;

std::string host_of(const std::string& name) {
  return name.substr(0, name.rfind(':'));
}

void tell_version(int socket) {
  const SteadyClock clock;
  (void)send_all(socket, encode(Answer{.kind = Answer::Kind::kWrongVersion}),
                 Deadline::after_ms(clock, 0));
}

}  // namespace

Result<std::unique_ptr<Listener>> TcpListener::listen(const std::string& address) {
  RKV_ASSIGN_OR_RETURN(const HostPort where, parse_host_port(address));
  const SteadyClock clock;
  RKV_ASSIGN_OR_RETURN(const std::vector<SocketAddress> all,
                       resolve(where, Deadline::after_ms(clock, kResolveMs)));
  Result<Fd> socket = fail(Code::kUnreachable, "the name has no address");
  for (const SocketAddress& one : all) {
    socket = listen_on(one);
    if (socket) break;
  }
  if (!socket) return std::unexpected(socket.error());
  std::unique_ptr<TcpListener> made(new TcpListener);
  RKV_RETURN_IF_ERROR(made->open(std::move(*socket)));
  return std::unique_ptr<Listener>(std::move(made));
}

Status TcpListener::open(Fd socket) {
  RKV_RETURN_IF_ERROR(waker_.open());
  socket_ = std::move(socket);
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0)
    return fail_call(Code::kInternal, "getsockname", errno);
  port_ = SocketAddress::from(reinterpret_cast<const sockaddr*>(&bound)).port();
  return {};
}

int TcpListener::timeout_ms(const Deadline& deadline) const {
  const SteadyClock clock;
  int least = deadline.left_ms();
  const auto until = [&](Nanos moment) {
    least = std::min(least, Deadline(clock, moment).left_ms());
  };
  if (paused_until_ != 0) until(paused_until_);
  if (!strangers_.empty()) until(strangers_.front().since + kPatience);
  return least;
}

Result<std::unique_ptr<Incoming>> TcpListener::next(const Deadline& deadline) {
  const SteadyClock clock;
  std::vector<pollfd> polled;
  for (;;) {
    if (!introduced_.empty()) {
      std::unique_ptr<Incoming> first = std::move(introduced_.front());
      introduced_.pop_front();
      return first;
    }
    Nanos now = clock.now();
    std::erase_if(strangers_, [&](const Stranger& one) { return now - one.since >= kPatience; });
    if (now >= paused_until_) paused_until_ = 0;
    polled.assign(1, {.fd = waker_.fd(), .events = POLLIN, .revents = 0});
    polled.push_back(
        {.fd = paused_until_ == 0 ? socket_.get() : -1, .events = POLLIN, .revents = 0});
    for (const Stranger& one : strangers_)
      polled.push_back({.fd = one.socket.get(), .events = POLLIN, .revents = 0});
    if (::poll(polled.data(), polled.size(), timeout_ms(deadline)) < 0 && errno != EINTR)
      return fail_call(Code::kInternal, "poll", errno);
    if (polled[0].revents != 0) waker_.drain();
    const bool is_woken = waker_.consume();
    std::size_t i = 2;
    std::erase_if(strangers_, [&](Stranger& one) { return polled[i++].revents != 0 && hear(one); });
    now = clock.now();
    if (polled[1].revents != 0) take_callers(now);
    if (introduced_.empty() && (is_woken || deadline.passed())) return std::unique_ptr<Incoming>();
  }
}

void TcpListener::take_callers(Nanos now) {
  for (int i = 0; i < kCallersAtOnce; ++i) {
    Fd caller(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!caller) {
      const int error = errno;
      if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ECONNABORTED)
        return;
      log_warn(EventName("tcp_no_files"), "clients over TCP have to wait: {}{}", strerror(error),
               error == EMFILE ? " (raise the limit of open files, ulimit -n)" : "");
      paused_until_ = now + kPause;
      return;
    }
    set_options(caller.get());
    Stranger stranger{.socket = std::move(caller), .since = now, .host = {}};
    stranger.host = host_of(name_of_peer(stranger.socket.get()));
    if (hear(stranger)) continue;  // the usual case: the hello was already there
    if (strangers_.size() >= kMaxStrangers) make_room();
    strangers_.push_back(std::move(stranger));
  }
}

// TCPLISTEN-1
void TcpListener::make_room() {
  std::unordered_map<std::string, int> count;
  for (const Stranger& one : strangers_)
    ++count[one.host];
  strangers_.erase(std::ranges::max_element(strangers_, {},
                                            [&](const Stranger& one) { return count[one.host]; }));
}

// Returns true if the stranger is introduced or sent away, false if it stays a stranger.
bool TcpListener::hear(Stranger& stranger) {
  const MutableBytes rest = MutableBytes(stranger.said).subspan(stranger.length);
  const ssize_t got = ::recv(stranger.socket.get(), rest.data(), rest.size(), MSG_DONTWAIT);
  if (got < 0) return errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
  if (got == 0) return true;
  stranger.length += static_cast<std::size_t>(got);
  if (stranger.length < stranger.said.size()) return false;
  const auto hello = decode_hello(stranger.said);
  if (hello && hello->version == kVersion) {
    introduced_.push_back(make_incoming(std::move(stranger.socket), *hello));
  } else if (hello) {
    tell_version(stranger.socket.get());
  } else {
    log_warn(EventName("tcp_no_greeting"), "{} sent no valid greeting to the server's TCP port",
             field("peer", stranger.host));
  }
  return true;
}

}  // namespace rkv::rdma::tcp
