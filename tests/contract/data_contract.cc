// Contract: what operations do, how many may be posted, what is reported.
#include "link.h"

namespace rkv::rdma::contract {
namespace {

using Kind = Completion::Kind;

TEST_P(TransportContract, MessagesArriveInOrderThroughMoreMessagesThanBuffers) {
  Link link(*harness_);
  constexpr std::size_t kMessages = 300;  // the queue has 64 receive buffers
  // As a client's credits do it: a message that has been sent may not have arrived.
  constexpr std::size_t kMostUnderWay = 32;
  std::size_t posted = 0;
  const auto more = [&] {
    while (posted < kMessages && posted - link.client.count(Kind::kSend) < kMostUnderWay &&
           posted - link.server.count(Kind::kReceive) < kMostUnderWay) {
      const std::size_t at = posted % 64 * 16;
      store_le<std::uint64_t>(link.client.at(at), posted);
      link.post(link.send(at, 8 + posted % 8, posted));
      ++posted;
    }
    link.client.poll_once();
    return link.server.count(Kind::kReceive) == kMessages;
  };
  // Either side's news lets the test go on, so neither is waited for without end.
  const Deadline end = link.server.soon();
  while (!more() && !end.passed()) {
    if (link.server.poll_once() == 0) link.client.queue->wait(link.client.soon(1));
  }
  ASSERT_TRUE(link.server.until_seen(kMessages));
  ASSERT_TRUE(link.client.until([&] { return link.client.count(Kind::kSend) == kMessages; }));
  for (std::size_t i = 0; i < kMessages; ++i) {
    const Seen& got = link.server.seen[i];
    EXPECT_EQ(got.connection, link.passive.get());
    ASSERT_EQ(got.message.size(), 8 + i % 8);
    EXPECT_EQ(load_le<std::uint64_t>(as_bytes(got.message).data()), i);
    EXPECT_EQ(link.client.seen[i].context, i);
    EXPECT_TRUE(link.client.seen[i].ok());
  }
}

TEST_P(TransportContract, AMessageMayFillAReceiveBuffer) {
  Link link(*harness_);
  const std::size_t length = QueueOptions{}.receive_bytes;
  std::memset(link.client.at(0), 'z', length);
  link.post(link.send(0, length, 1));
  ASSERT_TRUE(link.server.until_seen(1));
  EXPECT_EQ(link.server.seen[0].message, std::string(length, 'z'));
}

TEST_P(TransportContract, InlineMessagesAreTakenAtOnceAndNeedNoRegion) {
  Link link(*harness_);
  std::string text(link.active->limits().inline_bytes, 'x');
  Operation send =
      Operation::send({reinterpret_cast<std::byte*>(text.data()), text.size()}, /*local_key=*/0, 1);
  send.inline_data = true;
  link.post(send);
  std::ranges::fill(text, 'y');
  ASSERT_TRUE(link.server.until_seen(1));
  EXPECT_EQ(link.server.seen[0].message, std::string(text.size(), 'x'));
}

TEST_P(TransportContract, BothSidesMaySend) {
  Link link(*harness_);
  const Operation reply =
      Operation::send(link.server.piece(0, 4), link.server.region->local_key(), 9);
  std::memcpy(link.server.at(0), "pong", 4);
  link.post(link.send(0, 4, 1));
  ASSERT_TRUE(link.server.until_seen(1));
  EXPECT_EQ(need(link.passive->post(std::span(&reply, 1))), 1U);
  ASSERT_TRUE(link.client.until([&] { return link.client.count(Kind::kReceive) == 1; }));
  EXPECT_EQ(link.client.seen.back().message, "pong");
}

TEST_P(TransportContract, ReadsFetchWhatIsThere) {
  Link link(*harness_);
  constexpr std::size_t kBytes = 100'000;  // many packets
  for (std::size_t i = 0; i < kBytes; ++i)
    *link.server.at(i) = static_cast<std::byte>(i * 13);
  link.post(link.read(0, kBytes, 77));
  ASSERT_TRUE(link.client.until_seen(1));
  EXPECT_EQ(link.client.seen[0].kind, Kind::kRead);
  EXPECT_EQ(link.client.seen[0].context, 77U);
  EXPECT_EQ(link.client.seen[0].connection, link.active.get());
  EXPECT_EQ(std::memcmp(link.client.at(0), link.server.at(0), kBytes), 0);
}

TEST_P(TransportContract, AReadAtOnceIsOverOrHasNotBegun) {
  Link link(*harness_);
  constexpr std::size_t kBytes = 1000;
  for (std::size_t i = 0; i < kBytes; ++i)
    *link.server.at(i) = static_cast<std::byte>(i * 13);
  const std::vector<std::byte> before(link.client.at(0), link.client.at(kBytes));
  const Operation first = link.read(0, kBytes, 77);
  const bool read = link.active->read_at_once(first.local, first.remote_address, first.remote_key);
  EXPECT_EQ(read, harness_->reads_at_once());
  EXPECT_EQ(link.active->limits().reads_at_once, harness_->reads_at_once());
  const std::byte* expected = read ? link.server.at(0) : before.data();
  EXPECT_EQ(std::memcmp(link.client.at(0), expected, kBytes), 0);
  // Without a completion, of which the next READ's is the first.
  link.post(link.read(0, kBytes, 78));
  ASSERT_TRUE(link.client.until_seen(1));
  EXPECT_EQ(link.client.seen[0].context, 78U);
  EXPECT_EQ(std::memcmp(link.client.at(0), link.server.at(0), kBytes), 0);
}

TEST_P(TransportContract, AReadAtOnceThatIsRefusedIsForPostToSay) {
  Link link(*harness_);
  const Operation read = link.read(0, 8, 5);
  EXPECT_FALSE(link.active->read_at_once(read.local, read.remote_address, read.remote_key ^ 0x5AU));
  EXPECT_TRUE(link.active->alive());
  link.post(link.read(0, 8, 6));
  ASSERT_TRUE(link.client.until_seen(1));
  EXPECT_TRUE(link.client.seen[0].ok());
  EXPECT_EQ(link.client.seen[0].context, 6U);
}

TEST_P(TransportContract, ABatchOfReadsCompletesInOrderBeyondTheReadDepth) {
  Link link(*harness_);
  const std::size_t count = std::min<std::size_t>(link.active->limits().sends_in_flight, 250);
  std::vector<Operation> batch;
  for (std::size_t i = 0; i < count; ++i) {
    store_le<std::uint64_t>(link.server.at(i * 8), i * 3);
    batch.push_back(link.read(i * 8, 8, i, i * 8));
  }
  link.post(batch);
  ASSERT_TRUE(link.client.until_seen(count));
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(link.client.seen[i].context, i);
    EXPECT_EQ(link.client.word(i * 8), i * 3);
  }
}

TEST_P(TransportContract, CompareSwapStoresOnAMatchAndAlwaysTellsTheOldValue) {
  Link link(*harness_);
  if (!harness_->client().has_atomics()) return link.expect_no_atomics();
  store_le<std::uint64_t>(link.server.at(64), 5);
  link.post(link.atomic(Operation::Kind::kCompareSwap, 64, 5, 6, 1));
  ASSERT_TRUE(link.client.until_seen(1));
  EXPECT_EQ(link.client.seen[0].kind, Kind::kCompareSwap);
  EXPECT_EQ(link.client.word(0), 5U);
  EXPECT_EQ(link.server.word(64), 6U);
  link.post(link.atomic(Operation::Kind::kCompareSwap, 64, 5, 7, 2));
  ASSERT_TRUE(link.client.until_seen(2));
  EXPECT_TRUE(link.client.seen[1].ok()) << "a mismatch is an answer, not an error";
  EXPECT_EQ(link.client.word(0), 6U);
  EXPECT_EQ(link.server.word(64), 6U);
}

TEST_P(TransportContract, FetchAddAddsAndTellsTheOldValue) {
  Link link(*harness_);
  if (!harness_->client().has_atomics()) return link.expect_no_atomics();
  store_le<std::uint64_t>(link.server.at(64), ~std::uint64_t{0});
  link.post(link.atomic(Operation::Kind::kFetchAdd, 64, 3, 0, 1));
  ASSERT_TRUE(link.client.until_seen(1));
  EXPECT_EQ(link.client.seen[0].kind, Kind::kFetchAdd);
  EXPECT_EQ(link.client.word(0), ~std::uint64_t{0});
  EXPECT_EQ(link.server.word(64), 2U);  // modulo 2^64
}

// Each old value is returned once, to one of the two sides, and nothing that was added is missing.
TEST_P(TransportContract, OurOwnAtomicsAreAtomicWithThePeers) {
  constexpr std::uint64_t kOfEach = 300;
  Link link(*harness_);
  store_le<std::uint64_t>(link.server.at(64), 0);
  auto made = harness_->server().create_atomics(*link.server.region);
  if (!harness_->server().has_atomics()) {
    EXPECT_EQ(made.error().code, Code::kUnsupported);
    return;
  }
  const auto own = need(std::move(made));
  auto* const word = reinterpret_cast<std::uint64_t*>(link.server.at(64));
  std::vector<std::uint64_t> told;
  std::vector<std::uint64_t> told_here;
  harness_->run_both(
      [&] {
        for (std::uint64_t i = 0; i < kOfEach; ++i) {
          link.post(link.atomic(Operation::Kind::kFetchAdd, 64, 1, 0, i));
          ASSERT_TRUE(link.client.until_seen(i + 1));
          told.push_back(link.client.word(0));
        }
      },
      [&] {
        for (std::uint64_t i = 0; i < kOfEach; ++i) {
          if (i % 2 == 0) {
            told_here.push_back(need(own->fetch_add(word, 1)));
            continue;
          }
          std::uint64_t expected = 0;
          for (;;) {
            const std::uint64_t old = need(own->compare_swap(word, expected, expected + 1));
            if (old == expected) break;
            expected = old;
          }
          told_here.push_back(expected);
        }
      });
  EXPECT_EQ(link.server.word(64), 2 * kOfEach);
  told.insert(told.end(), told_here.begin(), told_here.end());
  std::ranges::sort(told);
  EXPECT_EQ(std::ranges::adjacent_find(told), told.end());
  EXPECT_LT(told.back(), 2 * kOfEach);
}

TEST_P(TransportContract, OurOwnCompareSwapTellsTheOldValue) {
  Link link(*harness_);
  if (!harness_->server().has_atomics()) return link.expect_no_atomics();
  store_le<std::uint64_t>(link.server.at(64), 5);
  const auto own = need(harness_->server().create_atomics(*link.server.region));
  auto* const word = reinterpret_cast<std::uint64_t*>(link.server.at(64));
  EXPECT_EQ(need(own->compare_swap(word, 5, 6)), 5U);
  EXPECT_EQ(link.server.word(64), 6U);
  EXPECT_EQ(need(own->compare_swap(word, 5, 7)), 6U);
  EXPECT_EQ(link.server.word(64), 6U);
  EXPECT_EQ(need(own->fetch_add(word, ~std::uint64_t{0})), 6U);
  EXPECT_EQ(link.server.word(64), 5U);
}

TEST_P(TransportContract, PostTakesWhatFitsAndTheRestAfterPolling) {
  LinkOptions options;
  options.client.sends_in_flight = 8;
  Link link(*harness_, options);
  std::vector<Operation> batch;
  for (std::uint64_t i = 0; i < 40; ++i)
    batch.push_back(link.read(0, 8, i, 8 * i));
  const std::size_t first = need(link.active->post(batch));
  EXPECT_EQ(first, 8U);
  std::span<const Operation> rest = std::span(batch).subspan(first);
  const auto more = [&] {
    rest = rest.subspan(need(link.active->post(rest)));
    return link.client.seen.size() == 40;
  };
  ASSERT_TRUE(link.client.until(more));
  for (std::uint64_t i = 0; i < 40; ++i)
    EXPECT_EQ(link.client.seen[i].context, i);
}

TEST_P(TransportContract, UnsignaledOperationsAreSilentAndNeverClogTheQueue) {
  LinkOptions options;
  options.client.sends_in_flight = 16;
  Link link(*harness_, options);
  const bool atomics = harness_->client().has_atomics();
  std::size_t left = 500;
  const auto post_silently = [&] {
    while (left != 0) {
      Operation one =
          atomics ? link.atomic(Operation::Kind::kFetchAdd, 0, 1, 0, 4711) : link.read(0, 8, 4711);
      one.local = link.client.piece(64 + 8 * (left % 32), 8);  // no two in flight share it
      one.signaled = false;
      if (need(link.active->post(std::span(&one, 1))) == 0) break;
      --left;
    }
    return left == 0;
  };
  ASSERT_TRUE(link.client.until(post_silently));
  const Operation last = link.read(0, 8, 1, 64);
  bool posted = false;
  ASSERT_TRUE(link.client.until([&] {
    posted = posted || need(link.active->post(std::span(&last, 1))) == 1;
    return !link.client.seen.empty();
  }));
  ASSERT_EQ(link.client.seen.size(), 1U) << "only the signaled one is reported";
  EXPECT_EQ(link.client.seen[0].context, 1U);
  EXPECT_EQ(link.server.word(0), atomics ? 500U : 0U);
}

TEST_P(TransportContract, AnEmptyBatchIsNothing) {
  Link link(*harness_);
  EXPECT_EQ(need(link.active->post({})), 0U);
  EXPECT_EQ(link.client.poll_once(), 0U);
}

}  // namespace
}  // namespace rkv::rdma::contract
