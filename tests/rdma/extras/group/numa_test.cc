// The part that needs no device. On a kernel without NUMA nodes the result is kUnsupported, naming
// the call.
#include "rkv/rdma/numa.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "code_of.h"

namespace rkv::rdma {
namespace {

using rkv::rdma::testing::code_of;

bool is_unsupported(const Error& error) {
  return error.code == Code::kUnsupported && error.call != nullptr;
}

TEST(ProcessorLists, AreReadAsTheKernelWritesThem) {
  EXPECT_EQ(parse_processor_list("0-3,8,10-11").value(),
            (std::vector<unsigned>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_processor_list("").value(), std::vector<unsigned>{});
  EXPECT_EQ(parse_processor_list("8191").value(), std::vector<unsigned>{8191});
  for (const char* wrong : {"a", "1-", "-1", "3-1", "1,,2", "1,", ",1", "8192", "0-99999999", "2,1",
                            "1-3,3", "1 2", "0x1"}) {
    EXPECT_EQ(code_of(parse_processor_list(wrong)), Code::kCorrupt) << wrong;
  }
}

TEST(NumaNodes, ThatAreNotThereAreTold) {
  EXPECT_EQ(code_of(processors_of_node(kMaxNumaNodes)), Code::kInvalidArgument);
  const auto missing = processors_of_node(kMaxNumaNodes - 1);
  if (!missing) {  // a machine with that many nodes
    EXPECT_FALSE(missing->empty());
  } else {
    EXPECT_TRUE(missing.error().code == Code::kNotFound || is_unsupported(missing.error()));
    EXPECT_EQ(code_of(bind_thread(kMaxNumaNodes - 1, NumaPolicy::kStrict)), missing.error().code);
  }
  EXPECT_EQ(code_of(NumaMemory::allocate(0, 0, NumaPolicy::kStrict)), Code::kInvalidArgument);
  EXPECT_EQ(code_of(place_memory({}, kMaxNumaNodes, NumaPolicy::kStrict)), Code::kInvalidArgument);
}

// The kernel's policy for this thread, and whether its mask is node 0.
std::pair<int, bool> policy_of_thread() {
  int mode = -1;
  unsigned long mask[kMaxNumaNodes / 64] = {};
  if (::syscall(SYS_get_mempolicy, &mode, mask, kMaxNumaNodes + 1, nullptr, 0) != 0)
    return {-1, false};
  return {mode, mask[0] == 1};
}

TEST(NumaNodes, BindAThreadOrSayThatTheKernelCannot) {
  for (const NumaPolicy policy : {NumaPolicy::kStrict, NumaPolicy::kPreferred}) {
    std::thread([&] {
      const Status bound = bind_thread(0, policy);
      if (!bound) {
        EXPECT_TRUE(is_unsupported(bound.error())) << to_string(bound.error());
        return;
      }
      const auto [mode, first] = policy_of_thread();
      EXPECT_EQ(mode, policy == NumaPolicy::kStrict ? MPOL_BIND : MPOL_PREFERRED);
      EXPECT_TRUE(first);
      cpu_set_t set;
      ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
      const auto near = processors_of_node(0);
      int inside = 0;
      for (const unsigned processor : *near)
        inside += CPU_ISSET(processor, &set) ? 1 : 0;
      EXPECT_GT(inside, 0);
      EXPECT_EQ(inside, CPU_COUNT(&set));
    }).join();
  }
}

TEST(NumaNodes, GivePagesOrSayThatTheKernelCannot) {
  Result<NumaMemory> memory = NumaMemory::allocate(10'000, 0, NumaPolicy::kStrict);
  if (!memory) {
    EXPECT_TRUE(is_unsupported(memory.error())) << to_string(memory.error());
    EXPECT_STREQ(memory.error().call, "mbind");
    return;
  }
  EXPECT_EQ(memory->bytes().size(), 10'000U);
  memory->bytes()[9'999] = std::byte{1};
  int mode = -1;
  unsigned long mask[kMaxNumaNodes / 64] = {};
  ASSERT_EQ(::syscall(SYS_get_mempolicy, &mode, mask, kMaxNumaNodes + 1, &memory->bytes()[9'999],
                      MPOL_F_ADDR),
            0);
  EXPECT_EQ(mode, MPOL_BIND);
  EXPECT_EQ(mask[0], 1UL) << "node 0 alone";
  const NumaMemory moved = std::move(*memory);
  EXPECT_EQ(moved.bytes()[9'999], std::byte{1});
  EXPECT_TRUE(memory->bytes().empty());  // NOLINT(bugprone-use-after-move)
}

TEST(NumaNodes, PlaceWholePagesOnly) {
  alignas(4096) static std::byte page[8192];
  EXPECT_DEATH(std::ignore = place_memory(MutableBytes(page).subspan(1), 0, NumaPolicy::kStrict),
               "begin at a page boundary");
}

}  // namespace
}  // namespace rkv::rdma
