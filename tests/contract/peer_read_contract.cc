// Contract: the side that accepted READs memory of the side that connected, where that grants it.
#include "link.h"

namespace rkv::rdma::contract {
namespace {

using Kind = Completion::Kind;
using Status = Completion::Status;

LinkOptions granting() {
  LinkOptions options;
  options.client.grant = Access::kRemoteRead;
  return options;
}
// A READ by the server of `region`, which is the client's.
Operation read(Link& link, const Region& region, std::size_t offset, std::size_t length,
               std::uint64_t context, std::size_t to = 0) {
  return Operation::read(link.server.piece(to, length), link.server.region->local_key(),
                         region.address() + offset, region.remote_key(), context);
}
void post(Link& link, std::span<const Operation> batch) {
  EXPECT_EQ(need(link.passive->post(batch)), batch.size());
}
void post(Link& link, const Operation& one) {
  post(link, std::span(&one, 1));
}
// The READ with this context is refused, and the connection is over on both sides.
void expect_refused(Link& link, std::uint64_t context) {
  ASSERT_TRUE(link.server.until_disconnected());
  const auto& seen = link.server.seen;
  const auto refused = std::ranges::find_if(
      seen, [&](const Seen& s) { return s.context == context && s.kind == Kind::kRead; });
  ASSERT_NE(refused, seen.end());
  EXPECT_EQ(refused->status, link.status_of_refusal);
  EXPECT_EQ(seen.back().kind, Kind::kDisconnected);
  EXPECT_FALSE(link.passive->alive());
  link.passive.reset();  // a handshake that is not quite over is broken off by this at the latest
  EXPECT_TRUE(link.client.until_disconnected());
}

TEST_P(TransportContract, PeerReadFetchesWhatIsThere) {
  Link link(*harness_, granting());
  constexpr std::size_t kBytes = 300'000;
  for (std::size_t i = 0; i < kBytes; ++i)
    *link.client.at(i) = static_cast<std::byte>(i * 13 + 1);
  post(link, read(link, *link.client.region, 3, kBytes - 3, 77, 3));
  ASSERT_TRUE(link.server.until_seen(1));
  EXPECT_EQ(link.server.seen[0].kind, Kind::kRead);
  EXPECT_EQ(link.server.seen[0].status, Status::kOk);
  EXPECT_EQ(link.server.seen[0].context, 77U);
  EXPECT_EQ(link.server.seen[0].connection, link.passive.get());
  EXPECT_EQ(std::memcmp(link.server.at(3), link.client.at(3), kBytes - 3), 0);
}

TEST_P(TransportContract, PeerReadMoreThanTheReadDepthCompleteInOrderAmongMessages) {
  Link link(*harness_, granting());
  EXPECT_GE(link.passive->limits().reads_in_flight, 1U);
  constexpr std::size_t kCount = 100;
  std::vector<Operation> batch;
  for (std::size_t i = 0; i < kCount; ++i) {
    store_le<std::uint64_t>(link.client.at(i * 8), i * 3);
    batch.push_back(read(link, *link.client.region, i * 8, 8, i, i * 8));
  }
  batch.push_back(
      Operation::send(link.server.piece(0, 8), link.server.region->local_key(), kCount));
  post(link, batch);
  ASSERT_TRUE(link.server.until_seen(kCount + 1));
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(link.server.seen[i].context, i);
    EXPECT_EQ(link.server.word(i * 8), i * 3);
  }
  EXPECT_EQ(link.server.seen[kCount].kind, Kind::kSend);
  ASSERT_TRUE(link.client.until([&] { return link.client.count(Kind::kReceive) == 1; }));
}

TEST_P(TransportContract, PeerReadBothSidesReadEachOther) {
  Link link(*harness_, granting());
  store_le<std::uint64_t>(link.client.at(0), 11);
  store_le<std::uint64_t>(link.server.at(0), 22);
  post(link, read(link, *link.client.region, 0, 8, 1, 64));
  link.post(link.read(0, 8, 2, 64));
  ASSERT_TRUE(link.server.until_seen(1));
  ASSERT_TRUE(link.client.until_seen(1));
  EXPECT_EQ(link.server.word(64), 11U);
  EXPECT_EQ(link.client.word(64), 22U);
}

TEST_P(TransportContract, PeerReadARegionMadeAfterConnectingIsReadAndOneDestroyedIsNot) {
  Link link(*harness_, granting());
  for (std::uint64_t i = 0; i < 5; ++i) {
    const auto region = need(harness_->client().allocate(10'000, Access::kRemoteRead));
    store_le(region->bytes().data() + 9'992, i);
    post(link, read(link, *region, 9'992, 8, i));
    ASSERT_TRUE(link.server.until_seen(i + 1));
    EXPECT_EQ(link.server.seen[i].status, Status::kOk);
    EXPECT_EQ(link.server.word(0), i);
  }
  auto region = need(harness_->client().allocate(4096, Access::kRemoteRead));
  const Operation late = read(link, *region, 0, 8, 9);
  region.reset();
  post(link, late);
  expect_refused(link, 9);
}

TEST_P(TransportContract, PeerReadPastTheEndIsRefused) {
  Link link(*harness_, granting());
  post(link, read(link, *link.client.region, link.client.region->bytes().size() - 4, 8, 5));
  expect_refused(link, 5);
}

TEST_P(TransportContract, PeerReadAWrongKeyIsRefused) {
  Link link(*harness_, granting());
  Operation wrong = read(link, *link.client.region, 0, 8, 5);
  wrong.remote_key ^= 0x5A;
  post(link, wrong);
  expect_refused(link, 5);
}

TEST_P(TransportContract, PeerReadAWrongAddressIsRefused) {
  for (const std::uint64_t address : {std::uint64_t{0}, ~std::uint64_t{0} - 7}) {
    Link link(*harness_, granting());
    Operation wrong = read(link, *link.client.region, 0, 8, 5);
    wrong.remote_address = address;
    post(link, wrong);
    expect_refused(link, 5);
  }
}

TEST_P(TransportContract, PeerReadMemoryThatIsTheClientsAloneIsRefused) {
  Link link(*harness_, granting());
  const auto own = need(harness_->client().allocate(4096, Access::kLocal));
  post(link, read(link, *own, 0, 8, 5));
  expect_refused(link, 5);
}

TEST_P(TransportContract, PeerReadAClientThatLeavesEndsTheReadsOnIt) {
  Link link(*harness_, granting());
  std::vector<Operation> batch;
  for (std::uint64_t i = 0; i < 50; ++i)
    batch.push_back(read(link, *link.client.region, 0, 100'000, i));
  post(link, batch);
  link.active->abort();
  ASSERT_TRUE(link.client.until_disconnected());
  ASSERT_TRUE(link.server.until_disconnected());
  EXPECT_EQ(link.server.count(Kind::kRead), 50U) << "each is reported, whatever became of it";
  EXPECT_EQ(link.server.seen.back().kind, Kind::kDisconnected);
}

}  // namespace
}  // namespace rkv::rdma::contract
