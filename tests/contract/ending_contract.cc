// Contract: refusals, and the many ways in which a connection ends.
#include <cstdlib>

#include "link.h"

namespace rkv::rdma::contract {
namespace {

using Kind = Completion::Kind;
using Status = Completion::Status;

// The refused operation, then kDisconnected, once, and nothing after it.
void expect_refused(Link& link, std::uint64_t context) {
  ASSERT_TRUE(link.client.until_disconnected());
  const auto& seen = link.client.seen;
  ASSERT_GE(seen.size(), 2U);
  const auto refused = std::ranges::find_if(
      seen, [&](const Seen& s) { return s.context == context && s.kind != Kind::kDisconnected; });
  ASSERT_NE(refused, seen.end());
  EXPECT_EQ(refused->status, link.status_of_refusal);
  EXPECT_EQ(seen.back().kind, Kind::kDisconnected);
  EXPECT_EQ(seen.back().connection, link.active.get());
  EXPECT_FALSE(link.active->alive());
  const auto again = link.active->post({});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kDisconnected);
}

TEST_P(TransportContract, AReadPastTheEndIsRefused) {
  Link link(*harness_);
  const std::size_t last = link.server.region->bytes().size() - 4;
  link.post(link.read(last, 8, 5));
  expect_refused(link, 5);
}

TEST_P(TransportContract, AWrongKeyIsRefused) {
  Link link(*harness_);
  Operation read = link.read(0, 8, 5);
  read.remote_key ^= 0x5A;
  link.post(read);
  expect_refused(link, 5);
}

TEST_P(TransportContract, AtomicsOnAReadOnlyRegionAreRefused) {
  for (const auto kind : {Operation::Kind::kCompareSwap, Operation::Kind::kFetchAdd}) {
    LinkOptions options;
    options.server_region = Access::kRemoteRead;
    Link link(*harness_, options);
    if (!harness_->client().has_atomics()) return link.expect_no_atomics();
    store_le<std::uint64_t>(link.server.at(0), 7);
    link.post(link.atomic(kind, 0, 7, 8, 5));
    expect_refused(link, 5);
    EXPECT_EQ(link.server.word(0), 7U);
  }
}

TEST_P(TransportContract, AConnectionThatGrantsReadsRefusesAtomics) {
  LinkOptions options;
  options.server.grant = Access::kRemoteRead;
  Link link(*harness_, options);
  if (!harness_->client().has_atomics()) return link.expect_no_atomics();
  link.post(link.atomic(Operation::Kind::kFetchAdd, 0, 1, 0, 5));
  expect_refused(link, 5);
  EXPECT_EQ(link.server.word(0), 0U);
}

TEST_P(TransportContract, AConnectionThatGrantsNothingRefusesReadsAndPassesMessages) {
  LinkOptions options;
  options.server.grant = Access::kLocal;
  Link link(*harness_, options);
  link.post(link.send(0, 8, 4));
  ASSERT_TRUE(link.server.until_seen(1));
  link.post(link.read(0, 8, 5));
  if (!harness_->server().enforces_grants()) {  // the region's own access decides
    ASSERT_TRUE(link.client.until_seen(2));
    EXPECT_TRUE(link.client.seen[1].ok());
    return;
  }
  expect_refused(link, 5);
}

TEST_P(TransportContract, AServerCannotReadItsClientUnlessGranted) {
  Link link(*harness_);
  const Operation read =
      Operation::read(link.server.piece(0, 8), link.server.region->local_key(),
                      link.client.region->address(), link.client.region->remote_key(), 5);
  EXPECT_EQ(need(link.passive->post(std::span(&read, 1))), 1U);
  if (!harness_->client().enforces_grants()) {
    ASSERT_TRUE(link.server.until_seen(1));
    EXPECT_TRUE(link.server.seen[0].ok());
    return;
  }
  ASSERT_TRUE(link.server.until_disconnected());
  EXPECT_EQ(link.server.seen[0].status, link.status_of_refusal);
}

TEST_P(TransportContract, ADestroyedRegionCanNoLongerBeRead) {
  Link link(*harness_);
  const Operation read = link.read(0, 8, 5);
  link.server.region.reset();
  link.post(read);
  expect_refused(link, 5);
}

TEST_P(TransportContract, ARefusalEndsBothSidesAndFlushesWhatFollows) {
  Link link(*harness_);
  Operation wrong = link.read(0, 8, 2);
  wrong.remote_key ^= 0x5A;
  const std::array<Operation, 4> batch = {link.read(0, 8, 1, 8), wrong, link.read(0, 8, 3, 16),
                                          link.read(0, 8, 4, 24)};
  link.post(batch);
  expect_refused(link, 2);
  const auto& seen = link.client.seen;
  ASSERT_EQ(seen.size(), 5U);
  EXPECT_EQ(seen[0].status, Status::kOk);
  EXPECT_EQ(seen[2].status, Status::kFlushed);
  EXPECT_EQ(seen[3].status, Status::kFlushed);
  ASSERT_TRUE(link.server.until_disconnected());
  EXPECT_EQ(link.server.seen.back().connection, link.passive.get());
}

TEST_P(TransportContract, AMessageLongerThanTheReceiveBufferEndsTheConnection) {
  Link link(*harness_);
  link.post(link.send(0, QueueOptions{}.receive_bytes + 64, 5));
  ASSERT_TRUE(link.client.until_disconnected());
  EXPECT_TRUE(!harness_->confirms_messages() || link.client.seen[0].status != Status::kOk);
  ASSERT_TRUE(link.server.until_disconnected());
  EXPECT_EQ(link.server.count(Kind::kReceive), 0U);
}

TEST_P(TransportContract, AbortFlushesWhatIsOutstandingThenSaysSoOnce) {
  Link link(*harness_);
  std::vector<Operation> batch;
  for (std::uint64_t i = 0; i < 100; ++i)
    batch.push_back(link.read(0, 8192, i, 8192 * i));
  link.post(batch);
  link.active->abort();
  link.active->abort();
  EXPECT_FALSE(link.active->alive());
  ASSERT_TRUE(link.client.until_disconnected());
  const auto& seen = link.client.seen;
  ASSERT_EQ(seen.size(), 101U) << "every operation is reported";
  bool flushing = false;
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(seen[i].context, i);
    flushing = flushing || seen[i].status == Status::kFlushed;
    EXPECT_EQ(seen[i].status, flushing ? Status::kFlushed : Status::kOk);
  }
  ASSERT_TRUE(link.server.until_disconnected());
  EXPECT_EQ(link.client.poll_once(), 0U);
  EXPECT_EQ(link.server.count(Kind::kDisconnected), 1U);
}

TEST_P(TransportContract, UnsignaledOperationsThatFailAreReported) {
  Link link(*harness_);
  std::vector<Operation> batch;
  for (std::uint64_t i = 0; i < 3; ++i) {
    batch.push_back(link.read(0, 8, i, 8 * i));
    batch.back().signaled = false;
    batch.back().remote_key ^= 0x5A;
  }
  link.post(batch);
  expect_refused(link, 0);
  EXPECT_EQ(link.client.seen.size(), 4U);
}

// Connections of two ends, until they are to end.
class Passing {
 public:
  Passing(Harness& harness, const LinkOptions& options)
      : harness_(harness),
        options_(options),
        listener_(need(harness.server().listen(harness.listen_address()))),
        client(harness, harness.client(), options.queue),
        server(harness, harness.server(), options.queue) {}

  void connect() {
    std::tie(active, passive) = join(harness_, *listener_, client, server, options_);
    ASSERT_TRUE(active != nullptr && passive != nullptr);
  }
  // As many messages as fit, `most` at most; of several packets each where there are packets.
  std::size_t send(std::size_t bytes, std::size_t most) {
    std::vector<Operation> batch;
    for (std::size_t i = 0; i < most; ++i)
      batch.push_back(Operation::send(client.piece(0, bytes), client.region->local_key(), i));
    return need(active->post(batch));
  }

 private:
  Harness& harness_;
  LinkOptions options_;
  std::unique_ptr<Listener> listener_;

 public:
  End client;
  End server;
  std::unique_ptr<Connection> active;
  std::unique_ptr<Connection> passive;
};

// Whatever a connection had taken when it ended: with the device or held by the user, no buffer of
// the queue is missing afterwards. RKV_ABORTS says how many connections end so.
TEST_P(TransportContract, EndingsLoseNoReceiveBuffers) {
  const char* const wanted = std::getenv("RKV_ABORTS");
  const int endings = wanted != nullptr ? std::atoi(wanted) : 24;
  constexpr std::size_t kBuffers = 32;
  constexpr std::size_t kBytes = 4096;
  LinkOptions options;
  options.queue = {.receive_buffers = kBuffers, .receive_bytes = kBytes};
  options.client = {.sends_in_flight = kBuffers};
  Passing pair(*harness_, options);
  for (int i = 0; i < endings; ++i) {
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    EXPECT_GT(pair.send(kBytes, kBuffers), 0U);
    if (i % 2 == 0) pair.server.poll_once();
    if (i % 3 == 0) pair.passive->abort();
    if (i % 4 == 0) pair.server.poll_once();
    pair.passive.reset();
    pair.active.reset();
    pair.server.seen.clear();
    pair.client.seen.clear();
  }
  // Buffers of the last ending may come back later. Then a message must wait for one.
  if (!harness_->holds_messages()) return;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  std::size_t sent = 0;
  std::vector<std::uint32_t> held;
  const Deadline deadline = pair.server.soon();
  while (held.size() < kBuffers && !deadline.passed()) {
    sent += pair.send(64, kBuffers - sent);
    pair.client.poll_once();
    std::array<Completion, 16> some;
    const std::size_t count = pair.server.queue->poll(some);
    for (const Completion& one : std::span(some).first(count)) {
      if (one.kind == Kind::kReceive) held.push_back(one.receive_buffer);
    }
    if (count == 0) pair.server.queue->wait(pair.server.soon(1));
  }
  EXPECT_EQ(held.size(), kBuffers) << "after " << endings << " endings";
  pair.server.queue->release(held);
}

TEST_P(TransportContract, DestroyingAConnectionTellsThePeer) {
  Link link(*harness_);
  link.active.reset();
  ASSERT_TRUE(link.server.until_disconnected());
  EXPECT_FALSE(link.passive->alive());
  link.passive.reset();
  EXPECT_EQ(link.server.poll_once(), 0U);
}

TEST_P(TransportContract, TheServerMayEndItToo) {
  Link link(*harness_);
  link.passive.reset();
  ASSERT_TRUE(link.client.until_disconnected());
  EXPECT_FALSE(link.active->alive());
}

TEST_P(TransportContract, DestroyingWithWorkOutstandingFreesTheBuffersAndSparesTheOthers) {
  Link link(*harness_);
  auto [other, other_server] =
      join(*harness_, *link.listener, link.client, link.server, LinkOptions{});
  ASSERT_NE(other, nullptr);
  constexpr std::size_t kReads = 50;
  std::vector<Operation> batch;
  for (std::uint64_t i = 0; i < kReads; ++i)
    batch.push_back(link.read(0, 4096, i, 65536 + 4096 * i));
  const std::array<Operation, 2> theirs = {link.read(0, 8, 1001), link.read(8, 8, 1002, 8)};
  EXPECT_EQ(need(other->post(theirs)), 2U);
  link.post(batch);
  link.active.reset();
  std::memset(link.client.at(65536), 0x77, 4096 * kReads);
  ASSERT_TRUE(link.client.until_seen(2)) << "the other connection's completions were lost";
  ASSERT_EQ(link.client.seen.size(), 2U);
  for (const Seen& one : link.client.seen) {
    EXPECT_EQ(one.connection, other.get());
    EXPECT_TRUE(one.ok());
  }
  ASSERT_TRUE(link.server.until_disconnected());
  EXPECT_TRUE(std::ranges::all_of(link.client.piece(65536, 4096 * kReads),
                                  [](std::byte b) { return b == std::byte{0x77}; }));
  EXPECT_TRUE(other->alive());
}

TEST_P(TransportContract, MessagesSentBeforeTheEndAreDelivered) {
  Link link(*harness_);
  for (std::uint64_t i = 0; i < 10; ++i)
    link.post(link.send(0, 8, i));
  ASSERT_TRUE(link.client.until_seen(10));  // kSend: they are in the peer's receive buffers
  link.active.reset();
  ASSERT_TRUE(link.server.until_disconnected());
  EXPECT_EQ(link.server.count(Kind::kReceive), 10U);
  EXPECT_EQ(link.server.seen.back().kind, Kind::kDisconnected);
}

TEST_P(TransportContract, RegionsAndQueuesOutliveTheTransportsHandle) {
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Region> region;
  {
    const auto other = GetParam().open();
    ASSERT_NE(other, nullptr);
    queue = need(other->client().create_queue({}));
    region = need(other->client().allocate(4096, Access::kLocal));
  }
  std::array<Completion, 1> none;
  EXPECT_EQ(queue->poll(none), 0U);
  region->bytes()[0] = std::byte{1};
}

}  // namespace
}  // namespace rkv::rdma::contract
