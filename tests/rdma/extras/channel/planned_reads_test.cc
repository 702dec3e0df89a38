// Planned READs on real verbs: the same bytes as by single READs, with fewer READs.
#include "common/random.h"
#include "pair.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

struct Places {
  ChannelPair pair{{.sends = 16, .receives = 1, .send_sge = 8}};
  Random random{42};
  std::size_t used = 0;

  Places() {
    for (std::byte& byte : pair.server_memory.bytes())
      byte = static_cast<std::byte>(random());
  }
  // `gap`: bytes between destinations, so that they cannot be joined.
  ReadRange range(std::size_t offset, std::size_t length, std::size_t gap = 1) {
    const ReadRange out = {.from = pair.remote(offset, length), .to = pair.mine(used, length)};
    used += length + gap;
    return out;
  }
  bool is_right(const ReadRange& one) {
    const std::size_t offset = one.from.address - pair.server_memory.remote().address;
    return std::memcmp(one.to.bytes().data(), pair.theirs(offset, one.to.size()).bytes().data(),
                       one.to.size()) == 0;
  }
};

// Devices grant more pieces to a queue pair with inline data than a batch takes.
TEST(PlannedReads, HaveNoMorePiecesThanTheChannelAllows) {
  ChannelPair pair{{.send_sge = 3, .inline_bytes = 256}};
  EXPECT_EQ(need(pair.client->read_limits()).max_sge, 3U);
}

TEST(PlannedReads, BringTheSameBytesAsSingleOnes) {
  Places places;
  std::vector<ReadRange> ranges;
  for (int i = 0; i < 300; ++i) {
    const std::size_t length = 1 + places.random.below(i % 50 == 0 ? 9000 : 300);
    ranges.push_back(places.range(places.random.below(20'000), length, places.random.below(2)));
  }
  ReadPlanLimits limits = need(places.pair.client->read_limits());
  EXPECT_EQ(limits.max_sge, 8U);
  EXPECT_EQ(limits.send_slots, 16U);
  EXPECT_GE(limits.max_message_bytes, 1U << 20);
  limits.max_message_bytes = 4000;
  limits.gap_bytes = 32;
  limits.scratch = places.pair.mine(ChannelPair::kBytes - 64, 64);
  const ReadPlan plan = need(ReadPlan::make(ranges, limits));
  need(places.pair.client->read_all(plan, soon()));
  std::vector<std::vector<std::byte>> planned;
  for (const ReadRange& one : ranges) {
    EXPECT_TRUE(places.is_right(one));
    planned.emplace_back(one.to.bytes().begin(), one.to.bytes().end());
  }
  std::ranges::fill(places.pair.client_memory.bytes(), std::byte{0});
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    need(places.pair.client->read(ranges[i].to, ranges[i].from, soon()));
    EXPECT_TRUE(std::ranges::equal(ranges[i].to.bytes(), planned[i]));
  }
  EXPECT_LT(plan.size(), ranges.size() / 2);
}

// 64 neighbouring ranges: one READ if their destinations are neighbours too; eight if they are not
// and a READ has eight pieces; 64 if the peer's memory has gaps that may not be read.
TEST(PlannedReads, AreAsFewAsStated) {
  for (const auto& [stride, gap, allowed, expected] : {std::array<std::size_t, 4>{64, 0, 0, 1},
                                                       {64, 1, 0, 8},
                                                       {72, 1, 0, 64},
                                                       {72, 0, 0, 64},
                                                       {72, 1, 8, 16}}) {
    Places places;
    std::vector<ReadRange> ranges;
    for (std::size_t i = 0; i < 64; ++i)
      ranges.push_back(places.range(i * stride, 64, gap));
    ReadPlanLimits limits = need(places.pair.client->read_limits());
    limits.gap_bytes = allowed;
    limits.scratch = places.pair.mine(ChannelPair::kBytes - 64, 64);
    const ReadPlan plan = need(ReadPlan::make(ranges, limits));
    EXPECT_EQ(plan.size(), expected) << stride << " " << gap << " " << allowed;
    need(places.pair.client->read_all(plan, soon()));
    EXPECT_TRUE(std::ranges::all_of(ranges, [&](const auto& one) { return places.is_right(one); }));
  }
}

TEST(PlannedReads, ThatFailBreakTheChannelAndLeaveNothingOutstanding) {
  Places places;
  std::vector<ReadRange> ranges;
  for (std::size_t i = 0; i < 100; ++i)
    ranges.push_back(places.range(i * 128, 64));
  ranges[50].from.rkey ^= 0x5555;
  const ReadPlan plan = need(ReadPlan::make(ranges, need(places.pair.client->read_limits())));
  const Status failed = places.pair.client->read_all(plan, soon());
  ASSERT_FALSE(failed);
  EXPECT_STREQ(failed.error().call, "RDMA READ");
  EXPECT_TRUE(places.pair.client->broken());
  EXPECT_EQ(code_of(places.pair.client->read_all(plan, soon())), Code::kDisconnected);
}

TEST(PlannedReads, WiderThanTheChannelAreRefused) {
  Places places;
  const std::array ranges = {places.range(0, 8)};
  ReadPlanLimits limits = need(places.pair.client->read_limits());
  limits.read_depth = limits.send_slots = limits.completion_slots = 17;
  const ReadPlan plan = need(ReadPlan::make(ranges, limits));
  EXPECT_EQ(code_of(places.pair.client->read_all(plan, soon())), Code::kInvalidArgument);
  EXPECT_FALSE(places.pair.client->broken());
}

}  // namespace
}  // namespace rkv::rdma
