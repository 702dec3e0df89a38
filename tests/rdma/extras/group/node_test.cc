// Nodes that join each other on real verbs, and memory near a device without a NUMA node.
#include "rkv/rdma/group/node.h"

#include "rkv/rdma/numa.h"
#include "world.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

TEST(Nodes, JoinAndSpeakWithEachOther) {
  constexpr std::uint32_t kSize = 4;
  World world(kSize);
  world.run([&](Node& node) {
    EXPECT_EQ(node.size(), kSize);
    EXPECT_EQ(node.peers().size(), kSize - 1);
    MemoryRegion region = need(MemoryRegion::allocate(node.domain(), 4096, kEverything));
    store_le<std::uint64_t>(region.bytes().data(), 1000 + node.rank());
    const std::vector<RemoteSpan> all = need(node.share(region.remote(), World::late()));
    ASSERT_EQ(all.size(), kSize);
    EXPECT_EQ(all[node.rank()], region.remote());
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      if (rank == node.rank()) continue;
      EXPECT_EQ(node.rank_of(node.peer_of(rank)), rank);
      // Immediately: join() returned when all channels were connected.
      need(node.channel(rank).read(region.local(64, 8), *all[rank].subspan(0, 8), World::late()));
      EXPECT_EQ(load_le<std::uint64_t>(region.bytes().data() + 64), 1000 + rank);
    }
    need(node.exchange().meet(World::late()));
  });
}

TEST(Nodes, OfOneHaveNobodyToSpeakWith) {
  World world(1);
  const ProtectionDomain pd = need(ProtectionDomain::allocate(world.device()));
  Node node = need(Node::join(pd, world.cluster(), 0, std::move(world.door(0)), World::late()));
  EXPECT_EQ(node.peers().size(), 0U);
  EXPECT_EQ(need(node.share({}, World::late())).size(), 1U);
  EXPECT_DEATH(std::ignore = node.peer_of(0), "no channel leads");
}

TEST(Nodes, SayWhoIsMissing) {
  World world(3);
  const ProtectionDomain pd = need(ProtectionDomain::allocate(world.device()));
  std::string problem;
  const Result<Node> node =
      Node::join(pd, world.cluster(), 0, std::move(world.door(0)), soon(100), {}, &problem);
  ASSERT_FALSE(node);
  EXPECT_EQ(code_of(node), Code::kTimeout);
  EXPECT_NE(problem.find("rank 1"), std::string::npos) << problem;
  EXPECT_EQ(code_of(Node::join(pd, world.cluster(), 3, soon())), Code::kInvalidArgument);
  // Rank 1's address is in use: its port is open in this process.
  EXPECT_EQ(code_of(Node::join(pd, world.cluster(), 1, soon())), Code::kConflict);
}

// Rank 1 is an exchange that sends an invalid endpoint.
TEST(Nodes, AnEndpointThatCannotBeIsTheErrorOfItsRank) {
  for (const std::size_t length : {0U, 7U, 35U, 1000U}) {
    World world(2);
    std::thread other([&] {
      Exchange exchange =
          need(Exchange::connect(world.cluster(), 1, std::move(world.door(1)), World::late()));
      std::ignore = exchange.all_gather(std::vector(length, std::byte{0xFF}), World::late());
    });
    const ProtectionDomain pd = need(ProtectionDomain::allocate(world.device()));
    std::string problem;
    const Result<Node> node =
        Node::join(pd, world.cluster(), 0, std::move(world.door(0)), World::late(), {}, &problem);
    other.join();
    ASSERT_FALSE(node);
    EXPECT_EQ(code_of(node), Code::kCorrupt) << length;
    EXPECT_EQ(problem, "rank 1");
  }
}

TEST(NumaOnDevice, ADeviceInSoftwareHasNoNodeAndAPlacedRegionWorks) {
  World world(1);
  const ProtectionDomain pd = need(ProtectionDomain::allocate(world.device()));
  if (need(world.device().attributes()).soft_roce) {
    const Result<unsigned> node = numa_node_of(world.device());
    ASSERT_FALSE(node);
    EXPECT_EQ(code_of(node), Code::kUnsupported);
    EXPECT_STREQ(node.error().call, "numa_node");
  }
  // Kernels that run SoftRoCE have NUMA nodes, if only one.
  const NumaMemory pages = need(NumaMemory::allocate(1 << 16, 0, NumaPolicy::kStrict));
  const MemoryRegion region = need(MemoryRegion::attach(pd, pages.bytes(), kEverything));
  EXPECT_EQ(region.size(), std::size_t{1} << 16);
  std::thread([] { need(bind_thread(0, NumaPolicy::kStrict)); }).join();
}

}  // namespace
}  // namespace rkv::rdma
