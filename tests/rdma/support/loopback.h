// Two queue pairs of one device, connected to each other, each with its own completion queue and
// registered memory. Without a connection manager, or by the address in RKV_RDMA_ADDRESS where the
// device is iWARP, which needs one. Fails the test where there is no device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "common/bytes.h"
#include "common/clock.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::rdma::testing {

inline constexpr int kPatienceMs = 5000;  // a limit for waits that must succeed, not a pause

template <class T>
T need(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << to_string(result.error());
    throw std::runtime_error(to_string(result.error()));
  }
  return std::move(*result);
}
inline std::size_t need(const Polled& polled) {
  return need(Result<std::size_t>(polled));
}
inline void need(const Status& status) {
  if (!status) {
    ADD_FAILURE() << to_string(status.error());
    throw std::runtime_error(to_string(status.error()));
  }
}

inline Deadline soon(int ms = kPatienceMs) {
  return Deadline::in(std::chrono::milliseconds(ms));
}

// The first connects to the second.
struct ConnectedByAddress {
  CmConnection client;
  CmConnection server;
};
inline ConnectedByAddress connect_by_address(PreparedQueuePair<> client,
                                             const ConnectionParameters& of_client,
                                             PreparedQueuePair<> server,
                                             const ConnectionParameters& of_server) {
  const char* host = std::getenv("RKV_RDMA_ADDRESS");
  if (host == nullptr) throw std::runtime_error("RKV_RDMA_ADDRESS must name a device's address");
  SocketAddress address = need(resolve({.host = host, .port = 0}, soon())).front();
  CmListener listener = need(CmListener::listen(address));
  address.set_port(listener.port());
  auto connecting = std::async(std::launch::async, [&] {
    Connector connector = need(Connector::resolve(address, {}, soon()));
    return need(std::move(connector).connect(std::move(client), of_client, {}, soon()));
  });
  ConnectRequest request = need(listener.wait(soon()));
  CmConnection accepted = need(std::move(request).accept(std::move(server), of_server, {}));
  return {.client = connecting.get(), .server = std::move(accepted)};
}

struct Side {
  CompletionChannel channel;
  CompletionQueue queue;
  MemoryRegion memory;
  std::optional<QueuePair> qp;

  Side(const ProtectionDomain& pd, AccessFlags access)
      : channel(need(CompletionChannel::create(pd.device()))),
        queue(need(CompletionQueue::create(pd.device(), {.entries = 512, .channel = &channel}))),
        memory(need(MemoryRegion::allocate(pd, std::size_t{1} << 20, access))) {}

  std::byte* at(std::size_t offset) { return memory.bytes().data() + offset; }
  std::uint64_t word(std::size_t offset) { return load_le<std::uint64_t>(at(offset)); }

  // Blocks until `count` completions have arrived.
  std::vector<WorkCompletion> completions(std::size_t count) {
    std::vector<WorkCompletion> all(count);
    const std::size_t came = need(queue.wait_all(all, soon()));
    if (came != count) ADD_FAILURE() << "only " << came << " of " << count << " completions came";
    all.resize(came);
    return all;
  }
  WorkCompletion completion() {
    const auto one = completions(1);
    return one.empty() ? WorkCompletion{.status = IBV_WC_GENERAL_ERR} : one.front();
  }
};

inline constexpr AccessFlags kEverything = AccessFlags::kLocalWrite | AccessFlags::kRemoteRead |
                                           AccessFlags::kRemoteWrite | AccessFlags::kRemoteAtomic;

struct LoopbackOptions {
  AccessFlags server_region = kEverything;
  AccessFlags server_grants = kEverything;
  QueuePairOptions qp = {.send_length = 256, .inline_bytes = 256};
  ConnectionParameters link;
};

// `client` posts, `server` is the peer whose memory is read.
struct Loopback {
  Device device;
  ProtectionDomain pd;
  Side client;
  Side server;

  explicit Loopback(LoopbackOptions options = {})
      : device(need(Device::open_first_active())),
        pd(need(ProtectionDomain::allocate(device))),
        client(pd, kEverything),
        server(pd, options.server_region) {
    connect(options);
  }

 private:
  std::optional<ConnectedByAddress> by_address_;  // without the queue pairs

  void connect(LoopbackOptions& options) {
    if (need(device.attributes()).iwarp) return connect_with_address(options);
    const std::uint8_t port = need(device.first_active_port());
    const GidEntry gid = need(device.routable_gid(port));
    const ReadDepths depths{.initiator = options.link.reads_as_initiator,
                            .responder = options.link.reads_as_responder};
    auto a = need(QueuePair::create(pd, client.queue, client.queue, options.qp));
    auto b = need(QueuePair::create(pd, server.queue, server.queue, options.qp));
    const Endpoint of_a = need(a.endpoint(port, gid, depths));
    const Endpoint of_b = need(b.endpoint(port, gid, depths));
    client.qp = need(std::move(a).handshake(of_b, options.link));
    options.link.remote_access = options.server_grants;
    server.qp = need(std::move(b).handshake(of_a, options.link));
  }
  void connect_with_address(LoopbackOptions& options) {
    ConnectionParameters of_server = options.link;
    of_server.remote_access = options.server_grants;
    // Such devices have short inline messages.
    options.qp.inline_bytes = std::min(options.qp.inline_bytes, 64U);
    by_address_.emplace(connect_by_address(
        need(QueuePair::create(pd, client.queue, client.queue, options.qp)), options.link,
        need(QueuePair::create(pd, server.queue, server.queue, options.qp)), of_server));
    client.qp = std::move(by_address_->client.qp);
    server.qp = std::move(by_address_->server.qp);
  }
};

}  // namespace rkv::rdma::testing
