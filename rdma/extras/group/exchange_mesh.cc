#include "rdma/extras/group/exchange_mesh.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "rkv/rdma/error.h"

namespace rkv::rdma::detail {
namespace {

constexpr Nanos kResolvePatience = kNanosPerSecond;  // per attempt
constexpr int kLongestNapMs = 1000;
// The upper limit for a hello, welcome or refusal.
constexpr std::size_t kMaxGreeting = FrameHeader::kBytes + 16;

Error error_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kVersion:
      return {.code = Code::kVersionMismatch,
              .text = "the peer uses another version of the exchange"};
    case Refusal::kOtherCluster:
      return {.code = Code::kConflict, .text = "the two sides have different cluster files"};
    case Refusal::kWrongRank:
      return {.code = Code::kInvalidArgument, .text = "the rank does not belong at that address"};
    case Refusal::kDuplicateRank:
      return {.code = Code::kConflict, .text = "the rank has connected already"};
  }
  return {.code = Code::kCorrupt, .text = "the peer refused for an unknown reason"};
}

void set_no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

ExchangeMesh::ExchangeMesh(const Cluster& cluster, ExchangeListener listener, ExchangeState& state)
    : cluster_(cluster), listener_(std::move(listener)), state_(state) {
  for (std::uint32_t rank = state.rank + 1; rank < cluster.size(); ++rank)
    dials_.push_back({.rank = rank, .socket = {}, .reader = {}});
}

bool ExchangeMesh::is_complete() const {
  for (std::uint32_t rank = 0; rank < cluster_.size(); ++rank) {
    if (rank != state_.rank && !state_.links[rank].open()) return false;
  }
  return true;
}

std::vector<std::byte> ExchangeMesh::frame(FrameKind kind, std::uint32_t to, Bytes payload) const {
  return encode({.kind = kind,
                 .from = state_.rank,
                 .to = to,
                 .round = cluster_.size(),
                 .digest = state_.digest},
                payload);
}

std::string ExchangeMesh::problem() const {
  std::string out = failed_rank_ ? fmt::format("rank {}", *failed_rank_) : std::string("missing:");
  for (std::uint32_t rank = 0; rank < cluster_.size() && !failed_rank_; ++rank) {
    if (rank != state_.rank && !state_.links[rank].open()) {
      out += fmt::format(" rank {} ({})", rank, cluster_[rank].to_string());
    }
  }
  if (last_refused_) out += fmt::format("; refused: {}", to_string(*last_refused_));
  return out;
}

Status ExchangeMesh::run(const Deadline& deadline) {
  while (!is_complete()) {
    for (Dial& dial : dials_) {
      if (!dial.socket.open() && dial.due <= now()) start(dial);
    }
    std::vector<pollfd> waiting = interests();
    const int ready = ::poll(waiting.data(), waiting.size(), wait_ms(deadline));
    if (ready < 0 && errno != EINTR) return verb_error("poll", errno);
    // Processes every connection, ready or not: connections are few, and each costs one system
    // call.
    for (auto dial = dials_.begin(); dial != dials_.end();) {
      if (dial->socket.open()) {
        if (const Status went = go_on(*dial); !went) {
          failed_rank_ = dial->rank;
          return went;
        }
      }
      dial = state_.links[dial->rank].open() ? dials_.erase(dial) : std::next(dial);
    }
    RKV_RETURN_IF_ERROR(accept_callers());
    std::erase_if(callers_, [&](Stranger& caller) { return !hear(caller); });
    if (deadline.passed() && !is_complete()) {
      return fail(Code::kTimeout, "the deadline passed before all ranks had connected");
    }
  }
  return {};
}

std::vector<pollfd> ExchangeMesh::interests() const {
  std::vector<pollfd> out;
  if (callers_.size() < state_.options.max_strangers) {
    out.push_back({.fd = listener_.fd(), .events = POLLIN, .revents = 0});
  }
  for (const Dial& dial : dials_) {
    if (!dial.socket.open()) continue;
    const short events = dial.connected ? POLLIN : POLLOUT;
    out.push_back({.fd = dial.socket.fd(), .events = events, .revents = 0});
  }
  for (const Stranger& caller : callers_)
    out.push_back({.fd = caller.socket.fd(), .events = POLLIN, .revents = 0});
  return out;
}

int ExchangeMesh::wait_ms(const Deadline& deadline) const {
  Nanos next = now() + kLongestNapMs * kNanosPerMs;
  for (const Dial& dial : dials_) {
    if (!dial.socket.open()) next = std::min(next, dial.due);
  }
  for (const Stranger& caller : callers_)
    next = std::min(next, caller.due);
  const Nanos left = std::max<Nanos>(0, next - now());
  return std::min(deadline.left_ms(), static_cast<int>((left + kNanosPerMs - 1) / kNanosPerMs));
}

// ---- outgoing connections ----

void ExchangeMesh::retry_later(Dial& dial) {
  dial.socket = Socket();
  dial.connected = false;
  dial.reader.reset();
  dial.due = now() + state_.options.retry_ms * kNanosPerMs;
}

// A name that does not resolve yet belongs to a peer that is not up yet, so the attempt is
// repeated.
void ExchangeMesh::start(Dial& dial) {
  retry_later(dial);
  const auto found = resolve(cluster_[dial.rank], Deadline(clock_, now() + kResolvePatience));
  if (!found || found->empty()) return;
  const SocketAddress& address = found->front();
  Socket socket(::socket(address.raw()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return;
  if (::connect(socket.fd(), address.raw(), address.length()) != 0 && errno != EINPROGRESS) return;
  set_no_delay(socket.fd());
  dial.socket = std::move(socket);
}

// An error ends the exchange. A peer that is not up, or that disconnects, is dialed again instead.
Status ExchangeMesh::go_on(Dial& dial) {
  if (!dial.connected) {
    pollfd one{.fd = dial.socket.fd(), .events = POLLOUT, .revents = 0};
    if (::poll(&one, 1, 0) <= 0) return {};
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(dial.socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    FrameWriter hello;
    hello.start(frame(FrameKind::kHello, dial.rank));
    // The empty buffer of a new socket takes the whole greeting.
    if (error != 0 || !hello.write(dial.socket).value_or(false)) {
      retry_later(dial);
      return {};
    }
    dial.connected = true;
  }
  const Result<bool> whole = dial.reader.read(dial.socket, kMaxGreeting);
  if (!whole && whole.error().code == Code::kDisconnected) {
    retry_later(dial);
    return {};
  }
  if (!whole) return std::unexpected(whole.error());
  if (!*whole) return {};
  if (is_own_greeting(dial)) {
    retry_later(dial);
    return {};
  }
  RKV_RETURN_IF_ERROR(check_answer(dial));
  state_.links[dial.rank] = std::move(dial.socket);
  return {};
}

// True if the socket is connected to itself: TCP does this if no process listens on this host and
// the kernel picks the dialed port as the source port. The peer is not up.
bool ExchangeMesh::is_own_greeting(const Dial& dial) const {
  const Result<FrameHeader> header = decode(dial.reader.frame());
  return header && header->kind == FrameKind::kHello && header->from == state_.rank &&
         header->to == dial.rank && header->digest == state_.digest;
}

Status ExchangeMesh::check_answer(const Dial& dial) const {
  RKV_ASSIGN_OR_RETURN(const FrameHeader header, decode(dial.reader.frame()));
  if (header.kind == FrameKind::kRefusal && dial.reader.payload().size() == 1) {
    return std::unexpected(error_of(static_cast<Refusal>(dial.reader.payload()[0])));
  }
  if (header.kind != FrameKind::kWelcome || !dial.reader.payload().empty()) {
    return fail(Code::kCorrupt, "the peer's answer to a greeting is not a greeting");
  }
  if (header.digest != state_.digest) return std::unexpected(error_of(Refusal::kOtherCluster));
  if (header.from != dial.rank || header.to != state_.rank) {
    return fail(Code::kInvalidArgument, "another rank answers at the address");
  }
  return {};
}

// ---- incoming connections ----

void ExchangeMesh::turn_away(const Error& why) {
  ++state_.strangers;
  last_refused_ = why;
}

Status ExchangeMesh::accept_callers() {
  while (callers_.size() < state_.options.max_strangers) {
    Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.open()) {
      // Without free descriptors the port stays readable, and the loop would spin.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        return verb_error("accept4", errno);
      }
      return {};
    }
    set_no_delay(socket.fd());
    callers_.push_back({.socket = std::move(socket),
                        .due = now() + state_.options.hello_ms * kNanosPerMs,
                        .reader = {}});
  }
  return {};
}

std::optional<Refusal> ExchangeMesh::judge(const FrameHeader& header) const {
  if (header.digest != state_.digest || header.round != cluster_.size()) {
    return Refusal::kOtherCluster;
  }
  // Only lower ranks dial, so a greeting from any other rank is wrong.
  if (header.to != state_.rank || header.from >= state_.rank) return Refusal::kWrongRank;
  // A rank that died and restarted takes its own place.
  const Socket& before = state_.links[header.from];
  if (before.open() && !before.is_dead()) return Refusal::kDuplicateRank;
  return std::nullopt;
}

bool ExchangeMesh::hear(Stranger& caller) {
  const Result<bool> whole = caller.reader.read(caller.socket, kMaxGreeting);
  if (!whole) {
    turn_away(whole.error());
    return false;
  }
  if (!*whole) {
    if (now() < caller.due) return true;
    turn_away({.code = Code::kTimeout, .text = "a caller sent no greeting in time"});
    return false;
  }
  const Result<FrameHeader> header = decode(caller.reader.frame());
  std::optional<Refusal> refusal;
  if (header) {
    if (header->kind != FrameKind::kHello || !caller.reader.payload().empty()) {
      turn_away({.code = Code::kCorrupt, .text = "a caller's first frame is not a greeting"});
      return false;
    }
    refusal = judge(*header);
  } else if (header.error().code == Code::kVersionMismatch) {
    refusal = Refusal::kVersion;
  } else {
    turn_away(header.error());
    return false;
  }
  FrameWriter answer;
  if (refusal) {
    turn_away(error_of(*refusal));
    const std::byte reason = static_cast<std::byte>(*refusal);
    answer.start(frame(FrameKind::kRefusal, header ? header->from : 0, {&reason, 1}));
    std::ignore = answer.write(caller.socket);
    return false;
  }
  answer.start(frame(FrameKind::kWelcome, header->from));
  if (answer.write(caller.socket).value_or(false)) {
    state_.links[header->from] = std::move(caller.socket);
  }
  return false;
}

}  // namespace rkv::rdma::detail
