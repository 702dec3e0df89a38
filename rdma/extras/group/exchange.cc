#include "rkv/rdma/group/exchange.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "rdma/extras/group/exchange_mesh.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

constexpr std::uint32_t kMostPayload = 16 * 1024 * 1024;
constexpr int kBacklog = 1024;
constexpr std::int64_t kMostMs = 3'600'000;

Status check(const ExchangeOptions& options) {
  if (options.max_payload_bytes == 0 || options.max_payload_bytes > kMostPayload) {
    return fail(Code::kInvalidArgument, "ExchangeOptions::max_payload_bytes is 1 to 16 MiB");
  }
  if (options.retry_ms < 1 || options.retry_ms > kMostMs || options.hello_ms < 1 ||
      options.hello_ms > kMostMs) {
    return fail(Code::kInvalidArgument,
                "ExchangeOptions::retry_ms and hello_ms are 1 to 3600000, an hour");
  }
  if (options.max_strangers < 1) {
    return fail(Code::kInvalidArgument, "ExchangeOptions::max_strangers is at least 1");
  }
  return {};
}

}  // namespace

// ---- the port ----

Result<ExchangeListener> ExchangeListener::open(const HostPort& address, const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(const std::vector<SocketAddress> found, resolve(address, deadline));
  if (found.empty())
    return fail(Code::kUnreachable, "the address does not resolve to an IP address");
  const SocketAddress& where = found.front();
  ExchangeListener out(
      ::socket(where.raw()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  RKV_RETURN_IF_ERROR(from_minus_one("socket", out.fd_));
  const int on = 1;
  RKV_RETURN_IF_ERROR(from_minus_one(
      "setsockopt", ::setsockopt(out.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on)));
  RKV_RETURN_IF_ERROR(from_minus_one("bind", ::bind(out.fd_, where.raw(), where.length())));
  RKV_RETURN_IF_ERROR(from_minus_one("listen", ::listen(out.fd_, kBacklog)));
  return out;
}

ExchangeListener& ExchangeListener::operator=(ExchangeListener&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

ExchangeListener::~ExchangeListener() {
  if (fd_ >= 0) ::close(fd_);
}

std::uint16_t ExchangeListener::port() const {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &length) != 0) return 0;
  return SocketAddress::from(reinterpret_cast<const sockaddr*>(&name)).port();
}

// ---- the exchange ----

Exchange::Exchange(std::unique_ptr<detail::ExchangeState> state) : state_(std::move(state)) {}
Exchange::Exchange(Exchange&&) noexcept = default;
Exchange& Exchange::operator=(Exchange&&) noexcept = default;
Exchange::~Exchange() = default;

std::uint32_t Exchange::rank() const {
  return state_->rank;
}
std::uint32_t Exchange::size() const {
  return static_cast<std::uint32_t>(state_->links.size());
}
std::uint32_t Exchange::strangers() const {
  return state_->strangers;
}

Result<Exchange> Exchange::connect(const Cluster& cluster, std::uint32_t rank,
                                   ExchangeListener listener, const Deadline& deadline,
                                   const ExchangeOptions& options, std::string* problem) {
  RKV_RETURN_IF_ERROR(check(options));
  RKV_RETURN_IF_ERROR(cluster.check_self(rank));
  auto state = std::make_unique<detail::ExchangeState>();
  state->rank = rank;
  state->digest = cluster.digest();
  state->options = options;
  state->links.resize(cluster.size());
  state->readers.resize(cluster.size());
  state->writers.resize(cluster.size());
  detail::ExchangeMesh mesh(cluster, std::move(listener), *state);
  if (const Status made = mesh.run(deadline); !made) {
    if (problem != nullptr) *problem = mesh.problem();
    return std::unexpected(made.error());
  }
  return Exchange(std::move(state));
}

namespace {

// One round of all_to_all() under way.
class Round {
 public:
  Round(detail::ExchangeState& state, std::vector<Payload>& out)
      : state_(state), out_(out), missing_(state.links.size(), true) {
    missing_[state.rank] = false;
  }

  void start(std::span<const Bytes> to_each) {
    ++state_.round;
    for (std::uint32_t rank = 0; rank < state_.links.size(); ++rank) {
      if (rank == state_.rank) continue;
      state_.writers[rank].start(detail::encode({.kind = detail::FrameKind::kData,
                                                 .from = state_.rank,
                                                 .to = rank,
                                                 .round = state_.round,
                                                 .digest = state_.digest},
                                                to_each[rank]));
    }
  }

  // Reads and writes as much as possible without blocking. On an error `culprit` is the rank of the
  // failed connection.
  Status step(std::uint32_t& culprit) {
    const std::size_t most = detail::FrameHeader::kBytes + state_.options.max_payload_bytes;
    for (culprit = 0; culprit < state_.links.size(); ++culprit) {
      if (culprit == state_.rank) continue;
      const detail::Socket& link = state_.links[culprit];
      if (missing_[culprit]) {
        RKV_ASSIGN_OR_RETURN(const bool whole, state_.readers[culprit].read(link, most));
        if (whole) RKV_RETURN_IF_ERROR(take(culprit));
      }
      if (const Result<bool> wrote = state_.writers[culprit].write(link); !wrote) {
        return std::unexpected(wrote.error());
      }
    }
    return {};
  }

  // The descriptors and events to wait for; empty when the round is complete.
  std::vector<pollfd> interests() const {
    std::vector<pollfd> out;
    for (std::uint32_t rank = 0; rank < state_.links.size(); ++rank) {
      if (rank == state_.rank) continue;
      short events = missing_[rank] ? POLLIN : 0;
      if (!state_.writers[rank].done()) events |= POLLOUT;
      if (events != 0) {
        out.push_back({.fd = state_.links[rank].fd(), .events = events, .revents = 0});
      }
    }
    return out;
  }
  std::uint32_t first_missing() const {
    const auto found = std::ranges::find(missing_, true);
    return static_cast<std::uint32_t>(found - missing_.begin());
  }

 private:
  Status take(std::uint32_t rank) {
    detail::FrameReader& reader = state_.readers[rank];
    RKV_ASSIGN_OR_RETURN(const detail::FrameHeader header, detail::decode(reader.frame()));
    if (header.kind != detail::FrameKind::kData || header.from != rank ||
        header.to != state_.rank || header.round != state_.round ||
        header.digest != state_.digest) {
      return fail(Code::kCorrupt, "the frame belongs to another round, rank or cluster");
    }
    out_[rank].assign(reader.payload().begin(), reader.payload().end());
    reader.reset();
    missing_[rank] = false;
    return {};
  }

  detail::ExchangeState& state_;
  std::vector<Payload>& out_;
  std::vector<bool> missing_;
};

}  // namespace

Result<std::vector<Payload>> Exchange::all_to_all(std::span<const Bytes> to_each,
                                                  const Deadline& deadline, std::string* problem) {
  RKV_CHECK(to_each.size() == size(), "one payload for each rank");
  if (state_->broken) return fail(Code::kDisconnected, "an earlier round of the exchange failed");
  for (const Bytes payload : to_each) {
    if (payload.size() > state_->options.max_payload_bytes) {
      return fail(Code::kTooLarge, "a payload is longer than max_payload_bytes");
    }
  }
  std::vector<Payload> out(size());
  out[rank()].assign(to_each[rank()].begin(), to_each[rank()].end());
  Round round(*state_, out);
  round.start(to_each);
  state_->broken = true;  // until the round is complete
  for (;;) {
    std::uint32_t culprit = 0;
    if (const Status stepped = round.step(culprit); !stepped) {
      if (problem != nullptr) *problem = fmt::format("rank {}", culprit);
      return std::unexpected(stepped.error());
    }
    std::vector<pollfd> waiting = round.interests();
    if (waiting.empty()) break;
    if (::poll(waiting.data(), waiting.size(), deadline.left_ms()) < 0 && errno != EINTR) {
      return verb_error("poll", errno);
    }
    if (deadline.passed() && !round.interests().empty()) {
      if (problem != nullptr) *problem = fmt::format("missing: rank {}", round.first_missing());
      return fail(Code::kTimeout, "the deadline passed before all ranks had answered");
    }
  }
  state_->broken = false;
  return out;
}

Result<std::vector<Payload>> Exchange::all_gather(Bytes mine, const Deadline& deadline,
                                                  std::string* problem) {
  const std::vector<Bytes> same(size(), mine);
  return all_to_all(same, deadline, problem);
}

Status Exchange::meet(const Deadline& deadline, std::string* problem) {
  const Result<std::vector<Payload>> met = all_gather({}, deadline, problem);
  if (!met) return std::unexpected(met.error());
  return {};
}

}  // namespace rkv::rdma
