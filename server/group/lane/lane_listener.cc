#include "server/group/lane/lane_listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <atomic>
#include <chrono>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "common/clock.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/thread.h"
#include "server/group/lane/lane_request.h"

namespace rkv::server {

namespace {

// One thread answers all peers of a transport. No transport waits for the peer in accept(), so a
// peer that goes silent holds up nobody.
constexpr std::int64_t kAcceptMs = 1000;
constexpr std::int64_t kLookMs = 10'000;
constexpr std::chrono::seconds kListenAgainAfter{1};

}  // namespace

class LaneListener::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, const LaneTransports& transports, const std::string& host, Given given)
      : io_(io), given_(std::move(given)) {
    for (rdma::Transport* const transport : {transports.verbs, transports.shm}) {
      if (transport == nullptr) continue;
      Network& network = networks_.emplace_back();
      network.transport = transport;
      network.is_shm = transport == transports.shm;
      network.address = host + ":0";
    }
  }

  std::optional<LaneOffer> offer(std::uint64_t peer) {
    for (Network& network : networks_)
      start(network);
    forget(peer);
    if (!std::ranges::all_of(networks_, [](const Network& each) { return each.has_tried.load(); }))
      return std::nullopt;
    LaneOffer offer;
    for (const Network& network : networks_)
      (network.is_shm ? offer.shm_port : offer.verbs_port) = network.port;
    if (offer.shm_port == 0 && offer.verbs_port == 0) return std::nullopt;
    offer.token = draw_lane_token();
    const MutexLock lock(mutex_);
    if (offers_.size() == kMaxOffers) offers_.pop_front();
    offers_.push_back({.peer = peer, .token = offer.token});
    return offer;
  }
  void forget(std::uint64_t peer) {
    const MutexLock lock(mutex_);
    std::erase_if(offers_, [&](const Offer& offer) { return offer.peer == peer; });
  }
  // After close() no callback follows.
  void close() {
    given_ = nullptr;
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      for (const Network& network : networks_) {
        if (network.listener != nullptr) network.listener->wake();
      }
    }
    stopped_.notify_all();
    for (Network& network : networks_) {
      if (network.thread.joinable()) network.thread.join();
    }
  }

 private:
  struct Offer {
    std::uint64_t peer;
    LaneToken token;
  };
  struct Network {
    rdma::Transport* transport = nullptr;
    bool is_shm = false;
    std::string address{};
    std::atomic<bool> has_tried{false};  // it has tried to listen, or cannot try
    std::atomic<std::uint16_t> port{0};  // 0: nobody listens
    rdma::Listener* listener = nullptr;  // guarded by mutex_: to be woken
    std::thread thread;
  };

  void start(Network& network) {
    if (network.thread.joinable()) return;
    try {
      network.thread = std::thread([this, &network] { run(network); });
    } catch (const std::system_error& error) {
      log_debug(EventName("no_lanes"), "no lanes for replicas over {}: {}",
                network.transport->describe(), error.what());
      network.has_tried = true;
    }
  }
  void run(Network& network) {
    name_thread("rkv-lanes");
    while (!is_stopping()) {
      if (auto listener = network.transport->listen(network.address)) {
        serve(network, **listener);
      } else {
        log_debug(EventName("no_lanes"), "no lanes for replicas over {}: {}",
                  network.transport->describe(), to_string(listener.error()));
        network.has_tried = true;
      }
      const MutexLock lock(mutex_);
      if (!stopping_) stopped_.wait_for(mutex_, kListenAgainAfter);
    }
  }
  // Runs until the listener fails, or close().
  void serve(Network& network, rdma::Listener& listener) {
    if (!show(network, &listener)) return;
    for (;;) {
      network.port = listener.port();  // the next device may have another port
      network.has_tried = true;
      auto incoming = listener.next(Deadline::after_ms(clock_, kLookMs));
      if (!incoming || is_stopping()) break;
      if (*incoming != nullptr) answer(network, **incoming);
    }
    network.port = 0;
    (void)show(network, nullptr);
  }
  // Returns false after close().
  bool show(Network& network, rdma::Listener* listener) {
    const MutexLock lock(mutex_);
    network.listener = listener;
    return !stopping_;
  }
  bool is_stopping() {
    const MutexLock lock(mutex_);
    return stopping_;
  }
  std::optional<Offer> take_offer(const LaneToken& token) {
    const MutexLock lock(mutex_);
    const auto at = std::ranges::find(offers_, token, &Offer::token);
    if (at == offers_.end()) return std::nullopt;
    const Offer offer = *at;
    offers_.erase(at);
    return offer;
  }
  // Makes the offer valid again: the peer may try the other transport.
  void give_back(const Offer& offer) {
    const MutexLock lock(mutex_);
    const bool is_replaced = std::ranges::find(offers_, offer.peer, &Offer::peer) != offers_.end();
    if (!is_replaced && offers_.size() < kMaxOffers) offers_.push_front(offer);
  }
  void answer(Network& network, rdma::Incoming& incoming) {
    const auto token = token_of(incoming.private_data());
    const auto offer = token ? take_offer(*token) : std::nullopt;
    if (!offer) return incoming.reject({});
    auto parts = ReplicaLane::prepare(*network.transport);
    if (!parts) {
      give_back(*offer);
      return refuse(network, incoming, parts.error());
    }
    auto connection = incoming.accept(*parts->queue, ReplicaLane::connection_options(),
                                      lane_accept(), Deadline::after_ms(clock_, kAcceptMs));
    if (!connection) {
      give_back(*offer);
      return refuse(network, incoming, connection.error());
    }
    parts->connection = std::move(*connection);
    // Handlers are copied, but parts cannot be copied.
    auto shared = std::make_shared<LaneParts>(std::move(*parts));
    asio::post(io_, [self = shared_from_this(), peer = offer->peer, shared] {
      auto lane = std::make_unique<ReplicaLane>(self->io_, std::move(*shared), self->reaper_);
      if (self->given_) self->given_(peer, std::move(lane));
    });
  }
  static void refuse(const Network& network, rdma::Incoming& incoming, const Error& error) {
    log_warn(EventName("no_lane"), "a replica that is offered {} cannot have it: {}",
             network.transport->describe(), to_string(error));
    incoming.reject({});
  }

  asio::io_context& io_;
  Given given_;
  const SteadyClock clock_;
  const std::shared_ptr<LaneReaper> reaper_ = std::make_shared<LaneReaper>();
  std::deque<Network> networks_;
  Mutex mutex_;
  ConditionVariable stopped_;
  std::deque<Offer> offers_ RKV_GUARDED_BY(mutex_);  // the oldest first
  bool stopping_ RKV_GUARDED_BY(mutex_) = false;
};

LaneListener::LaneListener(asio::io_context& io, const LaneTransports& transports,
                           const std::string& host, Given given)
    : impl_(std::make_shared<Impl>(io, transports, host, std::move(given))) {}

LaneListener::~LaneListener() {
  impl_->close();
}

std::optional<LaneOffer> LaneListener::offer(std::uint64_t peer) {
  return impl_->offer(peer);
}

void LaneListener::forget(std::uint64_t peer) {
  impl_->forget(peer);
}

}  // namespace rkv::server
