// Regions that come and go while clients are connected, and READs of any piece of them.
#include "common/random.h"
#include "tests/rdma/transport/shm/harness.h"

namespace rkv::rdma::shm {
namespace {

using contract::need;
using Status = Completion::Status;

class ShmRegions : public ::testing::Test {
 protected:
  contract::Link link_for(Access grant) {
    contract::LinkOptions options;
    options.server.grant = grant;
    return contract::Link(harness_, options);
  }
  // READs through `link` and tells how it ended.
  static Status read(contract::Link& link, const Region& region, std::uint64_t offset,
                     std::size_t length, std::uint32_t key = 0) {
    link.client.seen.clear();
    link.post(Operation::read(link.client.piece(0, length), 0, region.address() + offset,
                              key != 0 ? key : region.remote_key(), 1));
    EXPECT_TRUE(link.client.until_seen(1));
    return link.client.seen[0].status;
  }
  ShmHarness harness_;
};

TEST_F(ShmRegions, ALaterRegionReachesClientsThatAreConnected) {
  contract::Link link = link_for(Access::kRemoteRead);
  for (std::uint64_t i = 0; i < 50; ++i) {
    const auto region = need(harness_.server().allocate(4096 + i, Access::kRemoteRead));
    store_le(region->bytes().data() + i, i);
    ASSERT_EQ(read(link, *region, i, 8), Status::kOk) << i;
    EXPECT_EQ(link.client.word(0), i);
  }
}

TEST_F(ShmRegions, ARegionWhoseClientDoesNotListenIsThereWhenItIsAskedFor) {
  contract::Link link = link_for(Access::kRemoteRead);
  std::vector<std::unique_ptr<Region>> regions;
  for (std::uint64_t i = 0; i < 100; ++i) {
    regions.push_back(need(harness_.server().allocate(4096, Access::kRemoteRead)));
    store_le(regions.back()->bytes().data(), i);
  }
  for (std::uint64_t i = 0; i < regions.size(); ++i) {
    ASSERT_EQ(read(link, *regions[i], 0, 8), Status::kOk);
    EXPECT_EQ(link.client.word(0), i);
  }
}

TEST_F(ShmRegions, ManyRegionsArePassedToAClientThatComesLater) {
  std::vector<std::unique_ptr<Region>> regions;
  for (std::uint64_t i = 0; i < 2 * kRegionsPerPacket + 3; ++i) {
    regions.push_back(need(harness_.server().allocate(4096, Access::kRemoteRead)));
    store_le(regions.back()->bytes().data(), i);
  }
  contract::Link link = link_for(Access::kRemoteRead);
  for (std::uint64_t i = 0; i < regions.size(); ++i) {
    ASSERT_EQ(read(link, *regions[i], 0, 8), Status::kOk);
    EXPECT_EQ(link.client.word(0), i);
  }
}

TEST_F(ShmRegions, AClientThatNeverListensIsCutOffAndTheServerGoesOn) {
  const auto listener = need(harness_.server().listen(":0"));
  contract::End server(harness_, harness_.server());
  RawClient deaf(harness_.directory(), listener->port());
  const auto connection = accept_on(*listener, server);
  std::size_t made = 0;
  const auto make_until_cut = [&] {
    const auto region = harness_.server().allocate(4096, Access::kRemoteRead);
    EXPECT_TRUE(region);
    return server.count(Completion::Kind::kDisconnected) != 0 || ++made == 100'000;
  };
  const Deadline end = server.soon();
  while (!make_until_cut() && !end.passed())
    server.poll_once();
  EXPECT_EQ(server.count(Completion::Kind::kDisconnected), 1U) << made;
}

// Descriptor numbers are reused: news for a closed connection must not reach another one.
TEST_F(ShmRegions, WhoIsGrantedNothingHearsOfNoRegion) {
  const auto listener = need(harness_.server().listen(":0"));
  contract::End server(harness_, harness_.server());
  {
    RawClient granted(harness_.directory(), listener->port());
    const auto connection = accept_on(*listener, server);
  }
  RawClient client(harness_.directory(), listener->port());
  const auto connection = accept_on(*listener, server, Access::kLocal);
  client.finish();
  ASSERT_TRUE(client.connected);
  const auto region = need(harness_.server().allocate(4096, Access::kRemoteRead));
  std::array<std::byte, kMaxPacketBytes> buffer;
  std::vector<Fd> descriptors;
  const Packet packet = receive_packet(client.socket.get(), buffer, &descriptors);
  EXPECT_EQ(packet.result, Packet::Result::kNothing);
  EXPECT_TRUE(descriptors.empty());
}

// A descriptor opened read-only could be opened again for writing.
TEST_F(ShmRegions, WhoMayOnlyReadGetsNoRegionWithAtomics) {
  const auto with_atomics = need(harness_.server().allocate(4096, Access::kRemoteReadAtomic));
  contract::Link one = link_for(Access::kRemoteRead);
  contract::Link other = link_for(Access::kRemoteRead);
  const auto later = need(harness_.server().allocate(4096, Access::kRemoteReadAtomic));
  EXPECT_EQ(read(one, *with_atomics, 0, 8), Status::kRemoteAccess);
  EXPECT_EQ(read(other, *later, 0, 8), Status::kRemoteAccess) << "it is announced to nobody";
}

TEST_F(ShmRegions, AnyPieceInsideIsReadAndNoneThatReachesOut) {
  const std::uint64_t seed = random_from_kernel();
  SCOPED_TRACE(seed);
  Random random(seed);
  const std::size_t size = 10'007;
  const auto region = need(harness_.server().allocate(size, Access::kRemoteRead));
  for (std::byte& one : region->bytes())
    one = static_cast<std::byte>(random());
  contract::Link link = link_for(Access::kRemoteRead);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t offset = random.below(size);
    const std::size_t length = random.below(size - offset + 1);
    ASSERT_EQ(read(link, *region, offset, length), Status::kOk) << offset << ' ' << length;
    EXPECT_EQ(std::memcmp(link.client.at(0), region->bytes().data() + offset, length), 0);
  }
  const std::uint64_t end = size;
  const std::uint64_t wraps = ~std::uint64_t{0} - region->address() - 3;
  for (const auto& [offset, length] : {std::pair<std::uint64_t, std::size_t>{end - 4, 5},
                                       {end + 1, 0},
                                       {end, 1},
                                       {std::uint64_t{0} - 1, 2},
                                       {wraps, 100},
                                       {0, size + 1}}) {
    contract::Link fresh = link_for(Access::kRemoteRead);
    EXPECT_EQ(read(fresh, *region, offset, length), Status::kRemoteAccess) << offset;
  }
}

TEST_F(ShmRegions, ACrookedAtomicIsRefused) {
  contract::Link link = link_for(Access::kRemoteReadAtomic);
  link.post(link.atomic(Operation::Kind::kFetchAdd, 4, 1, 0, 1));
  ASSERT_TRUE(link.client.until_disconnected());
  EXPECT_EQ(link.client.seen[0].status, Status::kRemoteAccess);
  EXPECT_EQ(link.server.word(0), 0U);
}

TEST_F(ShmRegions, AServerThatEndsItsConnectionEndsItsReads) {
  contract::Link link = link_for(Access::kRemoteReadAtomic);
  EXPECT_EQ(read(link, *link.server.region, 0, 8), Status::kOk);
  link.passive.reset();
  const Operation again = link.read(0, 8, 2);
  link.client.seen.clear();
  if (link.active->post(std::span(&again, 1))) {
    ASSERT_TRUE(link.client.until_seen(1));
    EXPECT_NE(link.client.seen[0].status, Status::kOk);
  }
}

}  // namespace
}  // namespace rkv::rdma::shm
