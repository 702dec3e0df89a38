// Contract: memory, listening, connecting, refusing.
#include "link.h"

namespace rkv::rdma::contract {
namespace {

TEST_P(TransportContract, AllocatedMemoryIsZeroedAlignedAndNamed) {
  for (const Access access : {Access::kLocal, Access::kRemoteRead, Access::kRemoteReadAtomic}) {
    const auto region = need(harness_->server().allocate(10'000, access));
    EXPECT_EQ(region->bytes().size(), 10'000U);
    EXPECT_EQ(region->address() % 4096, 0U);
    EXPECT_TRUE(std::ranges::all_of(region->bytes(), [](std::byte b) { return b == std::byte{}; }));
    EXPECT_EQ(region->remote_key() == 0, access == Access::kLocal);
  }
}

TEST_P(TransportContract, PrivateDataTravelsBothWaysPaddedWithZeros) {
  LinkOptions options;
  options.hello = "hello";
  options.welcome = "welcome";
  const Link link(*harness_, options);
  const Bytes request = link.passive->private_data();
  ASSERT_EQ(request.size(), 56U);
  EXPECT_EQ(as_text(request.first(5)), "hello");
  EXPECT_EQ(request[5], std::byte{});
  const Bytes reply = link.active->private_data();
  ASSERT_EQ(reply.size(), 196U);
  EXPECT_EQ(as_text(reply.first(7)), "welcome");
  EXPECT_EQ(reply[195], std::byte{});
}

TEST_P(TransportContract, TheLongestPrivateDataPassesAndOneMoreByteDoesNot) {
  LinkOptions options;
  options.hello = std::string(56, 'h');
  options.welcome = std::string(196, 'w');
  const Link link(*harness_, options);
  EXPECT_EQ(as_text(link.passive->private_data()), options.hello);
  EXPECT_EQ(as_text(link.active->private_data()), options.welcome);
  End end(*harness_, harness_->client());
  const auto longer =
      harness_->client().connect(*end.queue, {}, harness_->connect_address(link.listener->port()),
                                 as_bytes(std::string(57, 'h')), end.soon(), nullptr);
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code, Code::kInvalidArgument);
}

TEST_P(TransportContract, AConnectionKnowsItsPeerAndItsLimits) {
  LinkOptions options;
  options.client.sends_in_flight = 33;
  options.client.inline_bytes = 100;
  const Link link(*harness_, options);
  EXPECT_TRUE(link.active->alive());
  EXPECT_TRUE(link.passive->alive());
  EXPECT_FALSE(link.active->peer().empty());
  EXPECT_NE(link.passive->peer().find(':'), std::string::npos);
  EXPECT_EQ(link.active->limits().sends_in_flight, 33U);
  EXPECT_GE(link.active->limits().inline_bytes, harness_->granted_inline_bytes(100));
  EXPECT_GE(link.active->limits().reads_in_flight, 1U);
}

TEST_P(TransportContract, ListenersHaveAPortThatNobodyElseCanTake) {
  const auto listener = need(harness_->server().listen(harness_->listen_address()));
  ASSERT_NE(listener->port(), 0);
  const auto second = harness_->server().listen(harness_->connect_address(listener->port()));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kConflict);
}

TEST_P(TransportContract, AWrongAddressIsAnInvalidArgument) {
  EXPECT_EQ(harness_->server().listen("no port").error().code, Code::kInvalidArgument);
  End end(*harness_, harness_->client());
  const auto made = harness_->client().connect(*end.queue, {}, "no port", {}, end.soon(), nullptr);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kInvalidArgument);
}

TEST_P(TransportContract, NobodyListeningIsUnreachable) {
  std::uint16_t port = 0;
  {
    const auto listener = need(harness_->server().listen(harness_->listen_address()));
    port = listener->port();
  }
  End end(*harness_, harness_->client());
  const auto made = harness_->client().connect(*end.queue, {}, harness_->connect_address(port), {},
                                               end.soon(), nullptr);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kUnreachable);
}

TEST_P(TransportContract, ConnectEndsWithItsDeadlineWhenNobodyAnswers) {
  const auto listener = need(harness_->server().listen(harness_->listen_address()));
  End end(*harness_, harness_->client());
  EXPECT_TRUE(ends_within(*harness_, harness_->longest_giving_up(), [&] {
    const auto made = harness_->client().connect(
        *end.queue, {}, harness_->connect_address(listener->port()), {}, end.soon(150), nullptr);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, Code::kTimeout);
  }));
}

// Connects while `answer` deals with the request.
template <class Answer>
std::pair<Result<std::unique_ptr<Connection>>, Rejection> connect_against(
    Harness& harness, Answer answer, std::uint16_t* port = nullptr) {
  const auto listener = need(harness.server().listen(harness.listen_address()));
  if (port != nullptr) *port = listener->port();
  End client(harness, harness.client());
  Result<std::unique_ptr<Connection>> made = fail(Code::kInternal, "not tried");
  Rejection rejection;
  harness.run_both(
      [&] {
        auto incoming = need(listener->next(client.soon()));
        ASSERT_NE(incoming, nullptr);
        answer(std::move(incoming));
      },
      [&] {
        made =
            harness.client().connect(*client.queue, {}, harness.connect_address(listener->port()),
                                     {}, client.soon(), &rejection);
      });
  if (made) made->reset();  // before its queue
  return {std::move(made), rejection};
}

TEST_P(TransportContract, ARejectionCarriesItsReason) {
  const auto [made, rejection] = connect_against(
      *harness_, [](std::unique_ptr<Incoming> in) { in->reject(as_bytes("full house")); });
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kRejected);
  ASSERT_GE(rejection.length, 10U);
  EXPECT_EQ(as_text(Bytes(rejection.reason).first(10)), "full house");
}

// Remains of the first connection in the device do not reach the other one, even if both get one
// number.
TEST_P(TransportContract, AConnectionFollowsARejectedOneOnItsQueue) {
  const auto listener = need(harness_->server().listen(harness_->listen_address()));
  End client(*harness_, harness_->client());
  End server(*harness_, harness_->server());
  harness_->run_both([&] { need(listener->next(server.soon()))->reject(as_bytes("prove it")); },
                     [&] {
                       const auto made = harness_->client().connect(
                           *client.queue, {}, harness_->connect_address(listener->port()), {},
                           client.soon(), nullptr);
                       ASSERT_FALSE(made);
                       EXPECT_EQ(made.error().code, Code::kRejected);
                     });
  // The queue is not polled meanwhile.
  const auto [active, passive] = join(*harness_, *listener, client, server, {});
  ASSERT_TRUE(active != nullptr && passive != nullptr);
  const Operation read = Operation::read(client.piece(0, 8), client.region->local_key(),
                                         server.region->address(), server.region->remote_key(), 7);
  for (std::size_t done = 0; done < 3; ++done) {
    ASSERT_EQ(need(active->post({&read, 1})), 1U);
    ASSERT_TRUE(client.until_seen(done + 1)) << "its completion is lost, number " << done;
    EXPECT_TRUE(client.seen[done].ok());
  }
}

// A client and a server that prove something to each other include this in it.
TEST_P(TransportContract, BothSidesNameTheServersAddressAlike) {
  std::string called;
  std::uint16_t port = 0;
  const auto [made, rejection] = connect_against(
      *harness_, [&](std::unique_ptr<Incoming> in) { called = in->called(); }, &port);
  ASSERT_FALSE(made);
  EXPECT_EQ(rejection.called, called);
  EXPECT_TRUE(called.ends_with(":" + std::to_string(port))) << called;
}

TEST_P(TransportContract, ARequestDroppedWithoutAnswerIsRejected) {
  const auto [made, rejection] =
      connect_against(*harness_, [](std::unique_ptr<Incoming> in) { in.reset(); });
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kRejected);
}

TEST_P(TransportContract, AQueueRefusesMoreConnectionsThanItsCompletionsAllow) {
  LinkOptions options;
  options.queue = {.completions = 128, .receive_buffers = 32};
  options.client.sends_in_flight = 64;
  options.server.sends_in_flight = 8;
  const Link link(*harness_, options);
  End& crowded = const_cast<End&>(link.client);
  Result<std::unique_ptr<Connection>> second = fail(Code::kInternal, "not tried");
  End server(*harness_, harness_->server());
  second = harness_->client().connect(*crowded.queue, options.client,
                                      harness_->connect_address(link.listener->port()), {},
                                      crowded.soon(), nullptr);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kBusy);
}

TEST_P(TransportContract, ConnectionsComeAndGoOnTheSameQueues) {
  LinkOptions options;
  options.queue = {.completions = 128, .receive_buffers = 32};
  options.client.sends_in_flight = 64;
  options.server.sends_in_flight = 64;
  Link link(*harness_, options);
  for (int round = 0; round < 5; ++round) {
    link.active.reset();
    link.passive.reset();
    link.client.seen.clear();
    link.server.seen.clear();
    std::tie(link.active, link.passive) =
        join(*harness_, *link.listener, link.client, link.server, options);
    ASSERT_NE(link.active, nullptr);
    link.post(link.read(0, 8, 1));
    ASSERT_TRUE(link.client.until_seen(1));
    EXPECT_TRUE(link.client.seen[0].ok());
  }
}

TEST_P(TransportContract, ManyClientsOnOneListener) {
  const auto listener = need(harness_->server().listen(harness_->listen_address()));
  End client(*harness_, harness_->client());
  End server(*harness_, harness_->server());
  std::vector<std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>>> links;
  for (int i = 0; i < 4; ++i) {
    LinkOptions options;
    options.hello = std::to_string(i);
    links.push_back(join(*harness_, *listener, client, server, options));
    ASSERT_NE(links.back().second, nullptr);
    EXPECT_EQ(as_text(links.back().second->private_data().first(1)), options.hello);
  }
  for (std::size_t i = 0; i < links.size(); ++i) {
    auto message = client.piece(i * 8, 8);
    store_le<std::uint64_t>(message.data(), i);
    const Operation send = Operation::send(message, client.region->local_key(), i);
    EXPECT_EQ(need(links[i].first->post(std::span(&send, 1))), 1U);
  }
  ASSERT_TRUE(server.until_seen(4));
  ASSERT_TRUE(client.until_seen(4));
  for (const Seen& one : server.seen) {
    const auto from = load_le<std::uint64_t>(as_bytes(one.message).data());
    EXPECT_EQ(one.connection, links[from].second.get());
  }
  for (const Seen& one : client.seen)
    EXPECT_EQ(one.connection, links[one.context].first.get());
}

}  // namespace
}  // namespace rkv::rdma::contract
