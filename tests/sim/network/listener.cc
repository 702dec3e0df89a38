#include "tests/sim/network/listener.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace rkv::rdma::sim {

namespace {
constexpr std::size_t kMaxAcceptBytes = 196;
constexpr std::size_t kMaxRejectBytes = 148;

// Sends the answer. It arrives unless the connecting side has abandoned the request or the network
// loses it.
void send_answer(Fabric& fabric, std::shared_ptr<Handshake> handshake, Nanos when,
                 Handshake::State answer) {
  if (fabric.scheduler().chance(fabric.faults().handshake_in)) return;
  fabric.scheduler().at(when, [&fabric, handshake = std::move(handshake), answer] {
    if (handshake->abandoned) return;
    handshake->state = answer;
    fabric.scheduler().notify(handshake->point);
  });
}
}  // namespace

ConnectionLimits limits_of(const Faults& faults, const ConnectionOptions& options, bool active) {
  const bool limited = active && faults.sends_in_flight != 0;
  return {.reads_in_flight = faults.reads_in_flight,
          .sends_in_flight = limited ? std::min(faults.sends_in_flight, options.sends_in_flight)
                                     : options.sends_in_flight,
          .inline_bytes = options.inline_bytes};
}

SimListener::SimListener(std::shared_ptr<Fabric> fabric, std::shared_ptr<Host> host,
                         std::uint16_t port)
    : fabric_(std::move(fabric)), host_(std::move(host)), port_(port) {
  fabric_->bind(port_, this);
  host_->listeners.push_back(this);
}

SimListener::~SimListener() {
  std::erase(host_->listeners, this);
  if (fabric_->listener_at(port_) == this) fabric_->unbind(port_);
  for (const auto& handshake : arrived_)
    send_answer(*fabric_, handshake, fabric_->scheduler().now() + fabric_->latency(),
                Handshake::State::kUnreachable);
}

void SimListener::vanish() {
  if (fabric_->listener_at(port_) == this) fabric_->unbind(port_);
  arrived_.clear();
  nudge();
}

void SimListener::arrive(std::shared_ptr<Handshake> handshake) {
  arrived_.push_back(std::move(handshake));
  nudge();
}

void SimListener::wake() {
  woken_ = true;
  nudge();
}

Result<std::unique_ptr<Incoming>> SimListener::next(const Deadline& deadline) {
  fabric_->scheduler().may_yield();
  while (arrived_.empty()) {
    if (std::exchange(woken_, false) || deadline.passed() || !host_->alive) {
      return std::unique_ptr<Incoming>();
    }
    fabric_->scheduler().park(point_, deadline.at());
  }
  auto handshake = std::move(arrived_.front());
  arrived_.pop_front();
  return std::unique_ptr<Incoming>(new SimIncoming(fabric_, host_, std::move(handshake), port_));
}

Result<std::unique_ptr<Connection>> SimIncoming::accept(Queue& queue,
                                                        const ConnectionOptions& options,
                                                        Bytes private_data, const Deadline&) {
  auto* const bound = dynamic_cast<SimQueue*>(&queue);
  RKV_CHECK(bound != nullptr, "the connection and its queue belong to different transports");
  RKV_CHECK(!answered_, "a connection request is answered twice");
  if (private_data.size() > kMaxAcceptBytes) {
    return fail(Code::kInvalidArgument, "at most 196 bytes of private data");
  }
  answered_ = true;
  if (handshake_->abandoned || !host_->alive) {
    return fail(Code::kDisconnected, "the peer has disconnected");
  }
  const Link::EndOptions passive{.host = host_,
                                 .queue = bound,
                                 .limits = limits_of(fabric_->faults(), options, false),
                                 .grant = options.grant};
  if (!bound->reserve(completions_of(passive.limits))) {
    return fail(Code::kBusy, "the queue has no room for another connection");
  }
  Link& link = fabric_->add_link(std::make_unique<Link>(*fabric_, handshake_->active, passive));
  handshake_->link = &link;
  handshake_->answer.assign(kMaxAcceptBytes, std::byte{});
  std::ranges::copy(private_data, handshake_->answer.begin());
  auto connection = std::make_unique<SimConnection>(
      fabric_, link, 1, handshake_->from,
      std::vector<std::byte>(handshake_->request.begin(), handshake_->request.end()));
  const Nanos when = fabric_->scheduler().now() + fabric_->latency();
  link.hold_until(1, when + 1);
  send_answer(*fabric_, handshake_, when, Handshake::State::kAccepted);
  ++fabric_->counts().connections;
  // Messages that the peer sends at once may arrive before the caller has the connection.
  fabric_->scheduler().may_yield();
  return std::unique_ptr<Connection>(std::move(connection));
}

void SimIncoming::reject(Bytes reason) {
  answered_ = true;
  if (!host_->alive) return;
  Rejection& rejection = handshake_->rejection;
  rejection.length = std::min(reason.size(), kMaxRejectBytes);
  std::ranges::copy(reason.first(rejection.length), rejection.reason);
  send_answer(*fabric_, handshake_, fabric_->scheduler().now() + fabric_->latency(),
              Handshake::State::kRejected);
}

}  // namespace rkv::rdma::sim
