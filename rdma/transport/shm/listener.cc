#include "rdma/transport/shm/listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>

#include "common/log.h"
#include "rdma/transport/shm/directory.h"
#include "rdma/transport/shm/incoming.h"

namespace rkv::rdma::shm {
namespace {

constexpr int kCallersAtOnce = 16;
constexpr int kPortTries = 256;
constexpr std::uint16_t kFirstAnyPort = 49152;  // IANA's dynamic ports

std::unexpected<Error> open_error(const char* call, int error) {
  const bool denied = error == EACCES || error == EPERM || error == EROFS;
  return fail_call(denied ? Code::kPermission : Code::kIo, call, error,
                   "check the owner and mode of the directory of the shared-memory sockets");
}

Result<Fd> lock_port(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return open_error("open", errno);
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (fcntl(fd.get(), F_OFD_SETLK, &whole) == 0) return fd;
  const int error = errno;
  if (error == EAGAIN || error == EACCES) {
    return fail(Code::kConflict,
                "another server on this host has this port: stop it, or choose another port");
  }
  return fail_call(Code::kIo, "fcntl(F_OFD_SETLK)", error);
}

}  // namespace

Result<std::unique_ptr<Listener>> ShmListener::listen(std::shared_ptr<Shared> shared,
                                                      std::uint16_t port) {
  RKV_ASSIGN_OR_RETURN(const std::string directory,
                       server_directory(shared->directory, shared->group));
  RKV_RETURN_IF_ERROR(shared->exporter.open());
  if (port != 0) return listen_on(std::move(shared), directory, port);
  Random random(random_from_kernel());
  Result<std::unique_ptr<Listener>> last = fail(Code::kConflict, "no port is free");
  for (int i = 0; i < kPortTries; ++i) {
    const auto any =
        static_cast<std::uint16_t>(kFirstAnyPort + random.below(65536 - kFirstAnyPort));
    last = listen_on(shared, directory, any);
    if (last || last.error().code != Code::kConflict) break;
  }
  return last;
}

Result<std::unique_ptr<Listener>> ShmListener::listen_on(std::shared_ptr<Shared> shared,
                                                         const std::string& directory,
                                                         std::uint16_t port) {
  RKV_ASSIGN_OR_RETURN(Fd lock, lock_port(lock_path(directory, port)));
  std::unique_ptr<ShmListener> out(
      new ShmListener(std::move(shared), port, std::move(lock), socket_path(directory, port)));
  RKV_RETURN_IF_ERROR(out->open());
  return std::unique_ptr<Listener>(std::move(out));
}

Status ShmListener::open() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) {
    return fail(Code::kInvalidArgument,
                "the path of the directory of the shared-memory sockets is too long: choose "
                "another with RKV_SHM_DIR");
  }
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  socket_ = Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_) return fail_call(Code::kBusy, "socket", errno);
  // Set the mode before bind() gives it a name: the socket never exists with another mode.
  if (fchmod(socket_.get(), 0600) != 0) return fail_call(Code::kIo, "fchmod", errno);
  unlink(path_.c_str());  // (SHMLISTEN-1)
  if (bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return open_error("bind", errno);
  }
  // Set the group before anyone can connect. The socket's mode is 0600 until it belongs to the
  // group.
  if (shared_->group) {
    constexpr const char* kNotOurs =
        "the server must be root or a member of the group that it accepts (--shm-group)";
    if (chown(path_.c_str(), static_cast<uid_t>(-1), *shared_->group) != 0)
      return fail_call(Code::kPermission, "chown", errno, kNotOurs);
    if (chmod(path_.c_str(), 0660) != 0) return fail_call(Code::kPermission, "chmod", errno);
  }
  // All clients may reconnect at once.
  if (::listen(socket_.get(), SOMAXCONN) != 0) return fail_call(Code::kIo, "listen", errno);
  RKV_RETURN_IF_ERROR(waker_.open());
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail_call(Code::kBusy, "epoll_create1", errno);
  shared_->budget->set_limit(DescriptorBudget::limit_of_process());
  RKV_RETURN_IF_ERROR(watch(socket_.get()));
  return watch(waker_.fd());
}

Status ShmListener::watch(int fd) {
  epoll_event interest{.events = EPOLLIN, .data = {.fd = fd}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &interest) != 0) {
    return fail_call(Code::kBusy, "epoll_ctl", errno);
  }
  return {};
}

ShmListener::~ShmListener() {
  if (socket_) unlink(path_.c_str());
}

void ShmListener::wake() {
  waker_.wake();
}

Result<std::unique_ptr<Incoming>> ShmListener::next(const Deadline& deadline) {
  const SteadyClock clock;
  for (;;) {
    if (!introduced_.empty()) {
      std::unique_ptr<Incoming> first = std::move(introduced_.front());
      introduced_.pop_front();
      return first;
    }
    forget_the_silent(clock.now());
    resume(clock.now());
    int timeout_ms = deadline.left_ms();
    if (paused_until_ != 0) {
      timeout_ms = std::min(timeout_ms, Deadline(clock, paused_until_).left_ms());
    }
    if (!strangers_.empty()) {
      const Deadline patience(clock, strangers_.front().since + kPatience);
      timeout_ms = std::min(timeout_ms, patience.left_ms());
    }
    std::array<epoll_event, 16> events;
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
    if (count < 0 && errno != EINTR) return fail_call(Code::kInternal, "epoll_wait", errno);
    bool woken = false;
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == waker_.fd()) {
        waker_.drain();
        woken = waker_.consume();
      } else if (fd == socket_.get()) {
        take_callers();
      } else {
        hear_stranger(fd);
      }
    }
    if (introduced_.empty() && (woken || deadline.passed())) return std::unique_ptr<Incoming>();
  }
}

void ShmListener::take_callers() {
  const SteadyClock clock;
  for (int i = 0; i < kCallersAtOnce; ++i) {
    Charge charge = shared_->budget->take_socket();
    if (!charge) return pause(clock.now(), EMFILE);
    PeerSocket caller(take_caller(clock.now()), shared_->reaper, std::move(charge));
    if (!caller) return;
    const auto peer = trusted_client(caller.get(), shared_->group);
    if (!peer) {
      log_warn(EventName("shm_refused"), "a connection over shared memory is refused: {}",
               to_string(peer.error()));
      continue;
    }
    Stranger stranger{.socket = std::move(caller), .since = clock.now(), .pid = peer->pid};
    if (hear(stranger)) continue;  // the usual case: the greeting was already there
    if (strangers_.size() >= kMaxStrangers) make_room_among_strangers();
    if (watch(stranger.socket.get())) strangers_.push_back(std::move(stranger));
  }
}

// Returns an empty Fd if no caller waits or no caller can be accepted.
Fd ShmListener::take_caller(Nanos now) {
  Fd caller(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (caller) return caller;
  const int error = errno;
  if (error != EAGAIN && error != EWOULDBLOCK && error != EINTR && error != ECONNABORTED) {
    pause(now, error);
  }
  return {};
}

// (SHMLISTEN-4) Stops watching the socket: waiting callers would keep it readable all the time.
void ShmListener::pause(Nanos now, int error) {
  if (paused_until_ == 0) {
    log_warn(EventName("shm_no_files"), "clients over shared memory have to wait: {}{}",
             strerror(error), error == EMFILE ? " (raise the limit of open files, ulimit -n)" : "");
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket_.get(), nullptr);
  }
  paused_until_ = now + kPause;
}

void ShmListener::resume(Nanos now) {
  if (paused_until_ == 0 || now < paused_until_) return;
  // Registering the socket may fail now and succeed later.
  paused_until_ = watch(socket_.get()) ? 0 : now + kPause;
}

// (SHMLISTEN-2) Not simply the oldest stranger: a process with many silent connections would drive
// out all others.
void ShmListener::make_room_among_strangers() {
  std::unordered_map<int, int> count;
  for (const Stranger& one : strangers_)
    ++count[one.pid];
  const auto most = std::ranges::max_element(
      strangers_, {}, [&](const Stranger& one) { return count[one.pid]; });  // the oldest of them
  strangers_.erase(most);
}

bool ShmListener::hear(Stranger& stranger) {
  std::array<std::byte, sizeof(Hello)> buffer;
  const Peeked peeked = peek_packet(stranger.socket.get(), buffer);
  const Packet& packet = peeked.packet;
  if (packet.result == Packet::Result::kNothing) return false;
  if (peeked.has_descriptors) {  // (REAP-1)
    log_warn(EventName("shm_no_greeting"),
             "process {} passed descriptors to the shared-memory socket instead of a greeting",
             stranger.pid);
    return true;
  }
  if (packet.result == Packet::Result::kEnd) return true;
  drop_packet(stranger.socket.get());
  const Bytes bytes = Bytes(buffer).first(std::min(packet.length, buffer.size()));
  Header header;
  if (has_header(bytes, &header) && header.version != kVersion) {
    send_packet(stranger.socket.get(),
                packet_of(WrongVersion{.header = {.kind = PacketKind::kWrongVersion}}));
    return true;
  }
  Hello hello;
  const bool sound =
      packet.length == sizeof hello && decode(bytes, PacketKind::kHello, &hello) && is_sound(hello);
  if (!sound) {
    log_warn(EventName("shm_no_greeting"),
             "process {} sent an invalid greeting to the shared-memory socket", stranger.pid);
    return true;
  }
  introduced_.push_back(make_incoming(shared_, std::move(stranger.socket), hello,
                                      fmt::format("shm:{}", stranger.pid), called_text(port_)));
  return true;
}

void ShmListener::hear_stranger(int fd) {
  const auto found =
      std::ranges::find_if(strangers_, [&](const Stranger& one) { return one.socket.get() == fd; });
  if (found == strangers_.end()) return;
  if (!hear(*found)) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);  // the socket may live on in the Incoming
  strangers_.erase(found);
}

void ShmListener::forget_the_silent(Nanos now) {
  std::erase_if(strangers_, [&](const Stranger& one) { return now - one.since >= kPatience; });
}

}  // namespace rkv::rdma::shm
