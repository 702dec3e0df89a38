// Accepting message transports in steps, on real verbs: peers that do not finish their part of the
// set-up hold up nobody (ACCEPT-1).
#include "rkv/rdma/message/accepting.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "rkv/rdma/message/connecting.h"
#include "rkv/rdma/message/credit_ring.h"
#include "rkv/rdma/message/send_receive.h"
#include "rkv/rdma/message/task.h"
#include "tests/rdma/extras/message/stranger.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

// A client by hand that sends a valid request and never looks at the answer.
struct SilentClient {
  EventChannel channel = need(EventChannel::create());
  CmId id = need(CmId::create(channel));
  std::optional<Stranger> stranger;
  std::optional<PreparedQueuePair<>> qp;

  SilentClient(const SocketAddress& to, TransportKind kind) {
    need(id.resolve_address(to, nullptr, kPatienceMs));
    EXPECT_EQ(need(channel.wait(soon())).type(), RDMA_CM_EVENT_ADDR_RESOLVED);
    need(id.resolve_route(kPatienceMs));
    EXPECT_EQ(need(channel.wait(soon())).type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
    stranger.emplace(id.device());
    qp = stranger->make();
    need(id.to_init(*qp, {}));
    need(id.connect(*qp, {}, {.initiator = 1, .responder = 1},
                    detail::encode(stranger->token(kind))));
  }
  // Finishes the handshake after all.
  void finish() {
    {
      const CmEvent answer = need(channel.wait(soon()));
      ASSERT_EQ(answer.type(), RDMA_CM_EVENT_CONNECT_RESPONSE);
    }
    need(id.to_ready(*qp, {}, {.initiator = 1, .responder = 1}));
    need(id.establish());
  }
};

// A server of one thread that accepts in steps.
template <class Builder>
struct Door {
  using T = typename Builder::Transport;

  Builder builder;
  CmListener listener = need(builder.listen(device_address()));
  std::vector<AcceptingTransport<T>> accepting = {};
  std::vector<T> transports = {};

  void turn() {
    while (auto request = need(listener.next()))
      accepting.push_back(need(builder.start_accept(std::move(*request))));
    std::erase_if(accepting, [&](AcceptingTransport<T>& one) {
      auto done = need(one.try_accept());
      if (done) transports.push_back(std::move(*done));
      return done.has_value();
    });
  }
  // Takes turns until there are so many, and sleeps in between.
  void until(std::size_t still_accepting, std::size_t accepted) {
    const Deadline deadline = soon(kLongPatienceMs);
    for (;;) {
      turn();
      if (accepting.size() == still_accepting && transports.size() == accepted) return;
      std::vector<pollfd> fds = {{.fd = listener.fd(), .events = POLLIN, .revents = 0}};
      for (const auto& one : accepting)
        fds.push_back({.fd = one.fd(), .events = POLLIN, .revents = 0});
      if (::poll(fds.data(), fds.size(), deadline.left_ms()) > 0) continue;
      throw std::runtime_error(
          fmt::format("{} accepting, {} accepted", accepting.size(), transports.size()));
    }
  }
  // A client of its own thread.
  std::future<T> call() {
    return std::async(std::launch::async, [own = builder, to = listener.address()] {
      return need(own.connect(to, soon(kLongPatienceMs)));
    });
  }
};

template <class T>
void expect_a_message_each_way(T& client, T& server) {
  send(client, server, pattern(1, 100));
  expect_and_release(server, receive_exactly(server, client, 1), 1);
  send(server, client, pattern(2, 50));
  expect_and_release(client, receive_exactly(client, server, 1), 2);
}

constexpr RingOptions kWindowRing = {
    .ring_bytes = 4096, .slots = 4, .access = LeasePolicy::kRequireWindows};

struct AcceptsSends {
  using Builder = SendReceiveBuilder;
  static constexpr TransportKind kKind = TransportKind::kSendReceive;
  static Builder builder() { return {}; }
};
struct AcceptsCreditRings {
  using Builder = CreditRingBuilder;
  static constexpr TransportKind kKind = TransportKind::kCreditRing;
  static Builder builder() { return {.options = kRing}; }
};
// Each side sends the other the key of its window.
struct AcceptsWindows {
  using Builder = CreditRingBuilder;
  static constexpr TransportKind kKind = TransportKind::kCreditRing;
  static Builder builder() { return {.options = kWindowRing}; }
};
template <class World>
class AcceptingInSteps : public ::testing::Test {};
using AcceptingWorlds = ::testing::Types<AcceptsSends, AcceptsCreditRings, AcceptsWindows>;
TYPED_TEST_SUITE(AcceptingInSteps, AcceptingWorlds);

// The half-open client comes first, and is still there when another one has come and talked.
TYPED_TEST(AcceptingInSteps, AHalfOpenClientHoldsUpNobody) {
  Door<typename TypeParam::Builder> door{.builder = TypeParam::builder()};
  std::optional<SilentClient> silent(std::in_place, door.listener.address(), TypeParam::kKind);
  door.until(1, 0);
  auto calling = door.call();
  door.until(1, 1);
  auto client = calling.get();
  expect_a_message_each_way(client, door.transports[0]);
  EXPECT_FALSE(need(door.accepting[0].try_accept()));
  EXPECT_EQ(door.accepting[0].peer_address().port(), silent->id.local_address().port());

  // The program gives up: another client finds the place free.
  door.accepting.clear();
  auto again = door.call();
  door.until(0, 2);
  auto second = again.get();
  expect_a_message_each_way(second, door.transports[1]);
}

TYPED_TEST(AcceptingInSteps, AClientThatGivesUpIsAnError) {
  Door<typename TypeParam::Builder> door{.builder = TypeParam::builder()};
  std::optional<SilentClient> silent(std::in_place, door.listener.address(), TypeParam::kKind);
  door.until(1, 0);
  auto& one = door.accepting[0];
  EXPECT_FALSE(need(one.try_accept()));
  silent.reset();
  const Deadline deadline = soon(kLongPatienceMs);
  for (;;) {
    const auto got = one.try_accept();
    if (!got) {
      EXPECT_NE(got.error().code, Code::kTimeout) << to_string(got.error());
      break;
    }
    ASSERT_FALSE(got->has_value());
    ASSERT_TRUE(need(wait_readable(one.fd(), deadline)));
  }
}

// A peer that finishes its handshake, says that its ring has a window, and sends no key.
TEST(AcceptingRings, APeerThatSendsNoKeyHoldsUpNobody) {
  Door<CreditRingBuilder> door{.builder = {.options = kRing}};
  auto dialled = std::async(std::launch::async, [to = door.listener.address()] {
    Connector connector = need(Connector::resolve(to, {}, soon()));
    auto stranger = std::make_unique<Stranger>(connector.device());
    Token token = stranger->token(TransportKind::kCreditRing);
    token.key_follows = true;
    stranger->link.emplace(need(std::move(connector).connect(
        stranger->make(), {.remote_access = kEverything}, detail::encode(token), soon())));
    return stranger;
  });
  door.until(1, 0);
  const auto stranger = dialled.get();
  auto calling = door.call();
  door.until(1, 1);
  auto client = calling.get();
  expect_a_message_each_way(client, door.transports[0]);
  EXPECT_FALSE(need(door.accepting[0].try_accept()));

  std::array<std::byte, 8> key{};
  store_le(key.data(), std::uint64_t{stranger->memory.rkey()});
  stranger->say(key);
  door.until(0, 2);
  EXPECT_EQ(need(door.transports[1].send_copy(pattern(3, 20))), 20U);
}

TEST(AcceptingSends, ARequestOfAnotherKindIsRefusedAtOnce) {
  const CreditRingBuilder ring{.options = kRing};
  CmListener listener = need(CmListener::listen(device_address()));
  auto dialled = std::async(std::launch::async, [&, to = listener.address()] {
    return ring.connect(to, soon()).error();
  });
  const auto refused = SendReceiveBuilder{}.start_accept(need(listener.wait(soon())));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kVersionMismatch);
  EXPECT_EQ(dialled.get().code, Code::kVersionMismatch);
}

TEST(AcceptingInCoroutines, AHalfOpenClientKeepsItsOwnCoroutineUntilItsDeadline) {
  const auto executor = need(EpollExecutor::create());
  const CreditRingBuilder builder{.options = kRing};
  CmListener listener = need(builder.listen(device_address()));
  const auto take = [&](Until until) -> Task<Result<CreditRingTransport>> {
    RKV_CO_ASSIGN_OR_RETURN(ConnectRequest request,
                            co_await next_request(*executor, listener, soon()));
    RKV_CO_ASSIGN_OR_RETURN(auto accepting, builder.start_accept(std::move(request)));
    co_return co_await accepted(*executor, std::move(accepting), std::move(until));
  };
  SilentClient silent(listener.address(), TransportKind::kCreditRing);
  ASSERT_TRUE(need(wait_readable(listener.fd(), soon())));
  std::stop_source source;
  auto first = take(source.get_token());
  first.start();  // takes the request that is there
  EXPECT_FALSE(need(listener.next()));
  auto second = take(soon(kLongPatienceMs));
  second.start();
  auto dialled = std::async(std::launch::async, [&builder, to = listener.address()] {
    return need(builder.connect(to, soon(kLongPatienceMs)));
  });
  need(run(*executor, soon(kLongPatienceMs), second));
  auto server = need(second.take());
  auto client = dialled.get();
  expect_a_message_each_way(client, server);
  EXPECT_FALSE(first.done());
  source.request_stop();
  need(run(*executor, soon(), first));
  const auto ended = first.take();
  ASSERT_FALSE(ended);
  EXPECT_TRUE(is_stopped(ended.error()));
  EXPECT_EQ(executor->waiters(), 0U);
}

}  // namespace
}  // namespace rkv::rdma
