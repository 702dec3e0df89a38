// Read plans against a model: the peer's memory is an array, and a device carries out the READs in
// any order and byte by byte. Random plans print their seed.
#include "rkv/rdma/read_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <numeric>

#include "common/random.h"

namespace rkv::rdma {
namespace {

constexpr std::uint64_t kBase = 0x7000'0000'1000;
constexpr std::size_t kRemoteBytes = 4096;
constexpr std::size_t kLocalBytes = 16384;
constexpr std::byte kUntouched{0xEE};

std::byte content(std::uint32_t rkey, std::uint64_t address) {
  return static_cast<std::byte>(mix64(address * 31 + rkey) % 0xEE);  // never kUntouched
}

// Local memory with a scratch at its end, and destinations cut from it.
struct Memory {
  std::vector<std::byte> bytes = std::vector<std::byte>(kLocalBytes, kUntouched);
  std::size_t used = 0;
  RegisteredSpan take(std::size_t length, std::uint32_t lkey = 1, std::size_t gap = 0) {
    used += gap;
    const auto out = RegisteredSpan::unchecked(MutableBytes(bytes).subspan(used, length), lkey);
    used += length;
    return out;
  }
};

ReadRange range(Memory& memory, std::uint64_t offset, std::size_t length, std::uint32_t rkey = 7,
                std::size_t gap = 1) {
  return {.from = {.address = kBase + offset, .length = length, .rkey = rkey},
          .to = memory.take(length, 1, gap)};
}

ReadPlanLimits wide() {
  return {.max_sge = 16,
          .max_message_bytes = 1 << 20,
          .read_depth = 16,
          .send_slots = 64,
          .completion_slots = 64,
          .scratch = {}};
}

ReadPlan make(std::span<const ReadRange> ranges, const ReadPlanLimits& limits) {
  Result<ReadPlan> plan = ReadPlan::make(ranges, limits);
  EXPECT_TRUE(plan) << to_string(plan.error());
  return std::move(*plan);
}

// Carries out the READs, then the copies.
void carry_out(const ReadPlan& plan, Random& random) {
  std::vector<std::size_t> order(plan.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  for (const std::size_t index : order) {
    const ReadPlan::Read read = plan[index];
    std::vector<std::pair<std::byte*, std::uint64_t>> bytes;
    std::uint64_t address = read.from.address;
    for (const RegisteredSpan& piece : read.to) {
      for (std::byte& to : piece.bytes())
        bytes.emplace_back(&to, address++);
    }
    ASSERT_EQ(bytes.size(), read.from.length);
    std::ranges::shuffle(bytes, random);
    for (const auto& [to, from] : bytes)
      *to = content(read.from.rkey, from);
  }
  plan.copy();
}

TEST(ReadPlans, JoinWhatTouches) {
  Memory memory;
  const std::array ranges = {range(memory, 100, 50), range(memory, 0, 100), range(memory, 150, 10)};
  const ReadPlan plan = make(ranges, wide());
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_EQ(plan[0].from, (RemoteSpan{.address = kBase, .length = 160, .rkey = 7}));
  EXPECT_EQ(plan[0].to.size(), 3U);
  EXPECT_TRUE(plan[0].signaled);
  EXPECT_TRUE(plan.copies().empty());
  EXPECT_EQ(plan.read_bytes(), plan.requested_bytes());
}

TEST(ReadPlans, NeedOnePieceWhereDestinationsTouchToo) {
  Memory memory;
  const std::array ranges = {range(memory, 0, 64, 7, 0), range(memory, 64, 64, 7, 0)};
  ReadPlanLimits limits = wide();
  limits.max_sge = 1;
  const ReadPlan plan = make(ranges, limits);
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_EQ(plan[0].to.size(), 1U);
}

TEST(ReadPlans, DoNotJoinOtherKeysOrDistantRanges) {
  Memory memory;
  const std::array ranges = {range(memory, 0, 64, 7), range(memory, 64, 64, 8),
                             range(memory, 129, 64, 8)};
  EXPECT_EQ(make(ranges, wide()).size(), 3U);
}

TEST(ReadPlans, ReadAGapIntoTheScratchWhereThatIsAllowed) {
  Memory memory;
  const RegisteredSpan scratch = memory.take(32);
  const std::array ranges = {range(memory, 0, 64), range(memory, 96, 64), range(memory, 193, 64)};
  ReadPlanLimits limits = wide();
  limits.gap_bytes = 32;
  limits.scratch = scratch;
  const ReadPlan plan = make(ranges, limits);
  ASSERT_EQ(plan.size(), 2U);  // the second gap is 33 bytes long
  EXPECT_EQ(plan[0].from.length, 160U);
  EXPECT_EQ(plan.read_bytes(), plan.requested_bytes() + 32);
}

TEST(ReadPlans, ReadSharedBytesOnceAndCopyThem) {
  Memory memory;
  const std::array ranges = {range(memory, 0, 100), range(memory, 50, 100), range(memory, 60, 10)};
  const ReadPlan plan = make(ranges, wide());
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_EQ(plan[0].from.length, 150U);
  EXPECT_EQ(plan.copies().size(), 2U);
}

// Device memory and regions counted from zero have separate address spaces.
TEST(ReadPlans, ReachMemoryThatOnlyTheDeviceCanAddress) {
  Memory memory;
  const auto far = [](std::uint64_t address, std::size_t length, std::uint32_t lkey) {
    return RegisteredSpan::device_only(address, length, lkey);
  };
  const auto from = [](std::uint64_t offset, std::size_t length) {
    return RemoteSpan{.address = kBase + offset, .length = length, .rkey = 7};
  };
  const std::array apart = {ReadRange{.from = from(0, 64), .to = far(0, 64, 1)},
                            ReadRange{.from = from(64, 64), .to = far(64, 64, 1)},
                            ReadRange{.from = from(128, 64), .to = far(0, 64, 2)}};
  const ReadPlan plan = make(apart, wide());
  ASSERT_EQ(plan.size(), 1U);
  ASSERT_EQ(plan[0].to.size(), 2U) << "one piece of each key";
  EXPECT_FALSE(plan[0].to[0].addressable());
  EXPECT_EQ(plan[0].to[0].size(), 128U);

  const std::array same = {apart[0], ReadRange{.from = from(64, 64), .to = far(32, 64, 1)}};
  EXPECT_EQ(ReadPlan::make(same, wide()).error().code, Code::kInvalidArgument);

  // The shared part of two ranges cannot be copied there, so it is read twice.
  const std::array shared = {ReadRange{.from = from(0, 100), .to = far(0, 100, 1)},
                             ReadRange{.from = from(50, 100), .to = memory.take(100)}};
  const ReadPlan twice = make(shared, wide());
  EXPECT_TRUE(twice.copies().empty());
  EXPECT_EQ(twice.read_bytes(), 200U);
}

TEST(ReadPlans, AreCutAtTheLimitsOfTheDevice) {
  Memory memory;
  ReadPlanLimits limits = wide();
  limits.max_message_bytes = 100;
  const std::array one = {range(memory, 0, 250)};
  const ReadPlan by_length = make(one, limits);
  ASSERT_EQ(by_length.size(), 3U);
  EXPECT_EQ(by_length[2].from, (RemoteSpan{.address = kBase + 200, .length = 50, .rkey = 7}));
  std::vector<ReadRange> many;
  for (std::size_t i = 0; i < 10; ++i)
    many.push_back(range(memory, i * 8, 8));
  limits.max_sge = 4;
  EXPECT_EQ(make(many, limits).size(), 3U);
}

TEST(ReadPlans, SignalInTimeAndAtTheEnd) {
  Memory memory;
  std::vector<ReadRange> many;
  for (std::size_t i = 0; i < 21; ++i)
    many.push_back(range(memory, i * 16, 8));
  ReadPlanLimits limits = wide();
  limits.completion_slots = 8;
  const ReadPlan plan = make(many, limits);
  EXPECT_EQ(plan.window(), 8U);
  EXPECT_EQ(plan.signal_every(), 4U);
  EXPECT_FALSE(plan[2].signaled);
  EXPECT_TRUE(plan[3].signaled);
  EXPECT_FALSE(plan[18].signaled);
  EXPECT_TRUE(plan[20].signaled);
}

TEST(ReadPlans, NothingToReadIsDone) {
  const ReadPlan plan = make({}, wide());
  EXPECT_EQ(plan.size(), 0U);
  EXPECT_TRUE(ReadFlow(plan).done());
  Memory memory;
  const std::array empty = {range(memory, 5, 0)};
  EXPECT_EQ(make(empty, wide()).size(), 0U);
}

TEST(ReadPlans, MistakesAreRefused) {
  Memory memory;
  const auto refused = [](std::span<const ReadRange> ranges, const ReadPlanLimits& limits) {
    const Result<ReadPlan> plan = ReadPlan::make(ranges, limits);
    return !plan && plan.error().code == Code::kInvalidArgument;
  };
  ReadRange uneven = range(memory, 0, 64);
  uneven.from.length = 63;
  EXPECT_TRUE(refused({&uneven, 1}, wide()));
  ReadRange wraps = range(memory, 0, 64);
  wraps.from.address = ~std::uint64_t{0} - 10;
  EXPECT_TRUE(refused({&wraps, 1}, wide()));
  const ReadRange good = range(memory, 0, 64);
  const std::array twice = {good, good};
  EXPECT_TRUE(refused(twice, wide()));
  EXPECT_FALSE(refused({&good, 1}, wide()));
  for (std::uint32_t ReadPlanLimits::* field :
       {&ReadPlanLimits::max_sge, &ReadPlanLimits::read_depth, &ReadPlanLimits::send_slots,
        &ReadPlanLimits::completion_slots}) {
    ReadPlanLimits limits = wide();
    limits.*field = 0;
    EXPECT_TRUE(refused({&good, 1}, limits));
  }
  ReadPlanLimits limits = wide();
  limits.gap_bytes = 1;
  EXPECT_TRUE(refused({&good, 1}, limits));
  limits.scratch = good.to;
  EXPECT_TRUE(refused({&good, 1}, limits));
}

// ---- random plans ----

struct Case {
  Memory memory;
  std::vector<ReadRange> ranges;
  ReadPlanLimits limits;
};

Case random_case(Random& random) {
  Case out;
  const std::size_t most_bytes = 1 + random.below(200);
  const std::size_t count = random.below(30);
  const RegisteredSpan scratch = out.memory.take(64);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t length = random.below(most_bytes + 1);
    // Few offsets, so that ranges often touch and overlap.
    const std::uint64_t offset =
        random.below(4) == 0 ? random.below(kRemoteBytes - length) : random.below(8) * most_bytes;
    out.ranges.push_back(
        {.from = {.address = kBase + offset,
                  .length = length,
                  .rkey = static_cast<std::uint32_t>(7 + random.below(5) / 4)},
         .to = out.memory.take(length, 1 + static_cast<std::uint32_t>(random.below(4) / 3),
                               random.below(2))});
  }
  out.limits = {.max_sge = static_cast<std::uint32_t>(1 + random.below(6)),
                .max_message_bytes = 1 + random.below(300),
                .read_depth = static_cast<std::uint32_t>(1 + random.below(8)),
                .send_slots = static_cast<std::uint32_t>(1 + random.below(8)),
                .completion_slots = static_cast<std::uint32_t>(1 + random.below(8)),
                .gap_bytes = random.below(2) * random.below(65),
                .scratch = scratch};
  return out;
}

// The error of a plan that has been carried out; empty if there is none.
std::string wrong_with(const Case& from, const ReadPlan& plan) {
  std::vector<bool> wanted(kLocalBytes, false);
  for (const ReadRange& one : from.ranges) {
    for (std::size_t i = 0; i < one.to.size(); ++i) {
      const std::byte* at = one.to.bytes().data() + i;
      wanted[static_cast<std::size_t>(at - from.memory.bytes.data())] = true;
      if (*at != content(one.from.rkey, one.from.address + i)) return "a byte is not in its place";
    }
  }
  const std::size_t scratch = from.limits.gap_bytes;
  for (std::size_t i = 0; i < kLocalBytes; ++i) {
    if (!wanted[i] && i >= scratch && from.memory.bytes[i] != kUntouched) return "a stray byte";
  }
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const ReadPlan::Read read = plan[i];
    if (read.to.empty() || read.to.size() > from.limits.max_sge) return "too many pieces";
    if (read.from.length > from.limits.max_message_bytes) return "too long a READ";
    // Both ends of a READ were requested: no READ begins or ends in a gap or outside of the ranges.
    const auto covers = [&](std::uint64_t address) {
      return std::ranges::any_of(from.ranges, [&](const ReadRange& one) {
        return one.from.rkey == read.from.rkey && address >= one.from.address &&
               address < one.from.address + one.from.length;
      });
    };
    if (!covers(read.from.address)) return "a READ begins outside";
    if (!covers(read.from.address + read.from.length - 1)) return "a READ ends outside";
  }
  return {};
}

std::uint64_t seed_of_run() {
  const char* given = std::getenv("RKV_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : random_from_kernel();
}

TEST(ReadPlans, DeliverEveryByteToItsPlaceAndNoOther) {
  const std::uint64_t seed = seed_of_run();
  SCOPED_TRACE("RKV_SEED=" + std::to_string(seed));
  Random random(seed);
  std::size_t joined = 0;
  for (int round = 0; round < 1500; ++round) {
    Case one = random_case(random);
    const ReadPlan plan = make(one.ranges, one.limits);
    carry_out(plan, random);
    ASSERT_EQ(wrong_with(one, plan), "") << "round " << round;
    std::uint64_t gaps = 0;
    for (std::size_t i = 0; i < plan.size(); ++i)
      gaps += plan[i].from.length;
    ASSERT_EQ(gaps, plan.read_bytes());
    joined += plan.size() < one.ranges.size() ? 1 : 0;
  }
  EXPECT_GT(joined, 100U);  // the random cases are useful
}

// The check above can fail.
TEST(ReadPlans, ABrokenPlanIsNoticed) {
  Memory memory;
  Case one;
  one.limits = wide();
  one.ranges = {range(one.memory, 0, 100), range(one.memory, 50, 100)};
  const ReadPlan plan = make(one.ranges, one.limits);
  Random random(1);
  carry_out(plan, random);
  ASSERT_EQ(wrong_with(one, plan), "");
  one.ranges[1].to.bytes()[3] ^= std::byte{1};
  EXPECT_EQ(wrong_with(one, plan), "a byte is not in its place");
  one.ranges[1].to.bytes()[3] ^= std::byte{1};
  one.memory.bytes[one.memory.used] = std::byte{0};
  EXPECT_EQ(wrong_with(one, plan), "a stray byte");
}

// Queues with the lengths in the limits, and a device that completes in order, or fails.
struct Queues {
  const Case& from;
  const ReadPlan& plan;
  ReadFlow flow{plan, 1000};
  std::deque<std::size_t> sent;  // unfinished, and completed but not polled
  std::vector<WorkCompletion> completions;
  std::size_t unseen_sends = 0;  // slots that no polled completion has freed

  std::size_t next = 0;
  void post() {
    const std::size_t count = flow.may_post();
    flow.posted(count);
    unseen_sends += count;
    ASSERT_LE(unseen_sends, from.limits.send_slots) << "the send queue overruns";
    for (std::size_t i = 0; i < count; ++i)
      sent.push_back(next++);
    ASSERT_LE(sent.size() + completions.size(), from.limits.completion_slots)
        << "a failure now would overrun the completion queue";
    ASSERT_LE(sent.size(), from.limits.read_depth);
  }
  void finish_one() {
    if (sent.empty()) return;
    if (plan[sent.front()].signaled) {
      completions.push_back({.wr_id = 1000 + sent.front(), .kind = WorkKind::kRead});
    }
    sent.pop_front();
  }
  void poll() {
    for (const WorkCompletion& one : completions) {
      ASSERT_TRUE(flow.completed(one).value());
      unseen_sends = next - (one.wr_id - 1000 + 1);
    }
    completions.clear();
  }
};

TEST(ReadFlows, NeverOverrunAQueueAndAlwaysEnd) {
  const std::uint64_t seed = seed_of_run();
  SCOPED_TRACE("RKV_SEED=" + std::to_string(seed));
  Random random(seed);
  for (int round = 0; round < 2000; ++round) {
    Case one = random_case(random);
    const ReadPlan plan = make(one.ranges, one.limits);
    Queues queues{.from = one, .plan = plan, .sent = {}, .completions = {}};
    std::size_t steps = 0;
    while (!queues.flow.done() && !HasFatalFailure()) {
      ASSERT_LT(++steps, 100'000U) << "no end";
      switch (random.below(3)) {
        case 0:
          queues.post();
          break;
        case 1:
          queues.finish_one();
          break;
        default:
          queues.poll();
      }
    }
  }
}

TEST(ReadFlows, KnowTheirOwnCompletionsAndTellAFailure) {
  Memory memory;
  const std::array ranges = {range(memory, 0, 8), range(memory, 100, 8)};
  const ReadPlan plan = make(ranges, wide());
  ReadFlow flow(plan, 50);
  flow.posted(flow.may_post());
  EXPECT_EQ(flow.outstanding(), 2U);
  EXPECT_FALSE(flow.completed({.wr_id = 49}).value());
  EXPECT_FALSE(flow.completed({.wr_id = 52}).value());
  const Result<bool> failed = flow.completed({.wr_id = 50, .status = IBV_WC_REM_ACCESS_ERR});
  ASSERT_FALSE(failed);
  EXPECT_STREQ(failed.error().call, "RDMA READ");
  EXPECT_TRUE(flow.completed({.wr_id = 51}).value());
  EXPECT_TRUE(flow.done());
  EXPECT_DEATH(std::ignore = flow.completed({.wr_id = 51}), "not outstanding");
}

}  // namespace
}  // namespace rkv::rdma
