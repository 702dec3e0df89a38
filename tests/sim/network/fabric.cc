#include "tests/sim/network/fabric.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "common/check.h"
#include "tests/sim/network/link.h"
#include "tests/sim/network/listener.h"
#include "tests/sim/network/queue.h"
#include "tests/sim/network/region.h"

namespace rkv::rdma::sim {

Fabric::Fabric(std::uint64_t seed) : scheduler_(seed) {}
Fabric::~Fabric() = default;

Link& Fabric::add_link(std::unique_ptr<Link> link) {
  links_.push_back(std::move(link));
  return *links_.back();
}

std::uint16_t Fabric::free_port() {
  while (ports_.contains(next_port_))
    ++next_port_;
  return next_port_++;
}

namespace {

constexpr std::size_t kMaxConnectBytes = 56;

std::optional<std::uint16_t> port_of(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  std::uint16_t port = 0;
  const char* const end = address.data() + address.size();
  const auto [rest, error] = std::from_chars(address.data() + colon + 1, end, port);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return port;
}

// An adapter's atomic on its own host takes effect within one event, so it is atomic with all other
// operations.
class HostAtomics final : public Atomics {
 public:
  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override {
    const std::uint64_t old = load_word(word);
    store_word(word, old + addend);
    return old;
  }
  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                     std::uint64_t desired) override {
    const std::uint64_t old = load_word(word);
    if (old == expected) store_word(word, desired);
    return old;
  }
};

class SimTransport final : public Transport {
 public:
  SimTransport(std::shared_ptr<Fabric> fabric, std::shared_ptr<Host> host)
      : fabric_(std::move(fabric)), host_(std::move(host)) {}

  std::string describe() const override { return "sim: " + host_->name; }
  Host& host() { return *host_; }

  Result<std::unique_ptr<Region>> allocate(std::size_t length, Access access) override {
    return std::unique_ptr<Region>(new SimRegion(fabric_, host_, length, access));
  }
  Result<std::unique_ptr<Atomics>> create_atomics(const Region& /*region*/) override {
    return std::unique_ptr<Atomics>(new HostAtomics);
  }
  Result<std::unique_ptr<Queue>> create_queue(const QueueOptions& options) override {
    return std::unique_ptr<Queue>(new SimQueue(fabric_, host_, options));
  }
  Result<std::unique_ptr<Listener>> listen(const std::string& address) override;
  Result<std::unique_ptr<Connection>> connect(Queue& queue, const ConnectionOptions& options,
                                              const std::string& address, Bytes private_data,
                                              const Deadline& deadline,
                                              Rejection* rejection) override;

 private:
  std::shared_ptr<Handshake> knock(SimQueue& queue, const ConnectionOptions& options,
                                   std::uint16_t port, Bytes private_data);
  void give_up(Handshake& handshake, SimQueue& queue);

  std::shared_ptr<Fabric> fabric_;
  std::shared_ptr<Host> host_;
};

Result<std::unique_ptr<Listener>> SimTransport::listen(const std::string& address) {
  const auto wanted = port_of(address);
  if (!wanted) return fail(Code::kInvalidArgument, "an address is HOST:PORT");
  const std::uint16_t port = *wanted == 0 ? fabric_->free_port() : *wanted;
  if (fabric_->listener_at(port) != nullptr) return fail(Code::kConflict, "the port is taken");
  return std::unique_ptr<Listener>(new SimListener(fabric_, host_, port));
}

// Sends a connection request.
std::shared_ptr<Handshake> SimTransport::knock(SimQueue& queue, const ConnectionOptions& options,
                                               std::uint16_t port, Bytes private_data) {
  auto handshake = std::make_shared<Handshake>();
  std::ranges::copy(private_data, handshake->request.begin());
  handshake->from = host_->name + ":1";
  handshake->active = {.host = host_,
                       .queue = &queue,
                       .limits = limits_of(fabric_->faults(), options, true),
                       .grant = options.grant};
  Scheduler& scheduler = fabric_->scheduler();
  const bool lost = scheduler.chance(fabric_->faults().handshake_in);
  scheduler.at(scheduler.now() + fabric_->latency(),
               [fabric = fabric_.get(), handshake, port, lost] {
                 SimListener* const listener = fabric->listener_at(port);
                 if (listener != nullptr) {
                   if (!lost) listener->arrive(handshake);
                   return;
                 }
                 handshake->state = Handshake::State::kUnreachable;
                 fabric->scheduler().notify(handshake->point);
               });
  return handshake;
}

void SimTransport::give_up(Handshake& handshake, SimQueue& queue) {
  handshake.abandoned = true;
  if (handshake.link != nullptr) {
    handshake.link->close(0);
  } else {
    queue.unreserve(completions_of(handshake.active.limits));
  }
}

Result<std::unique_ptr<Connection>> SimTransport::connect(
    Queue& queue, const ConnectionOptions& options, const std::string& address, Bytes private_data,
    const Deadline& deadline, Rejection* rejection) {
  auto* const bound = dynamic_cast<SimQueue*>(&queue);
  RKV_CHECK(bound != nullptr, "the connection and its queue belong to different transports");
  const auto port = port_of(address);
  if (!port) return fail(Code::kInvalidArgument, "an address is HOST:PORT");
  if (private_data.size() > kMaxConnectBytes) {
    return fail(Code::kInvalidArgument, "at most 56 bytes of private data");
  }
  if (!bound->reserve(completions_of(limits_of(fabric_->faults(), options, true)))) {
    return fail(Code::kBusy, "the queue has no room for another connection");
  }
  const auto handshake = knock(*bound, options, *port, private_data);
  while (handshake->state == Handshake::State::kPending && !deadline.passed())
    fabric_->scheduler().park(handshake->point, deadline.at());
  if (handshake->state == Handshake::State::kAccepted) {
    return std::unique_ptr<Connection>(
        new SimConnection(fabric_, *handshake->link, 0, address, std::move(handshake->answer)));
  }
  give_up(*handshake, *bound);
  switch (handshake->state) {
    case Handshake::State::kRejected:
      if (rejection != nullptr) {
        *rejection = handshake->rejection;
        rejection->called = called_text(*port);
      }
      return fail(Code::kRejected, "the peer refused the connection");
    case Handshake::State::kUnreachable:
      return fail(Code::kUnreachable, "the address has no listener");
    default:
      return fail(Code::kTimeout, "the peer did not answer in time");
  }
}

}  // namespace

void Fabric::crash(Transport& transport) {
  Host& host = dynamic_cast<SimTransport&>(transport).host();
  host.alive = false;
  for (SimListener* const listener : host.listeners)
    listener->vanish();
  for (const auto& link : links_) {
    if (link->touches(host)) link->sever();
  }
  for (SimQueue* const queue : host.queues)
    queue->nudge();
}

void Fabric::cut_all() {
  for (const auto& link : links_)
    link->sever();
}

std::unique_ptr<Transport> open_sim(std::shared_ptr<Fabric> fabric, std::string host_name) {
  auto host = std::make_shared<Host>(std::move(host_name));
  return std::make_unique<SimTransport>(std::move(fabric), std::move(host));
}

}  // namespace rkv::rdma::sim
