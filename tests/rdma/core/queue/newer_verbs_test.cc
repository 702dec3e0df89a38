// Operations younger than rdma-core 44 or than SoftRoCE of Linux 6.1: refused by name there, and
// posted through the tables that newer headers have.
#include <type_traits>

#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

TEST(NewerOperations, AreRefusedByNameWhereTheDeviceLacksThem) {
  const Device device = need(Device::open_first_active());
  ASSERT_TRUE(need(device.attributes()).soft_roce);
  const auto pd = need(ProtectionDomain::allocate(device));
  const auto queue = need(CompletionQueue::create(device, {}));
  for (const auto& [operation, verb] : {std::pair(SendOps::kAtomicWrite, "ibv_wr_atomic_write"),
                                        std::pair(SendOps::kFlush, "ibv_wr_flush")}) {
    const auto refused =
        QueuePair::create(pd, queue, queue, {.operations = kAllSendOps | operation});
    ASSERT_FALSE(refused) << verb;
    EXPECT_EQ(refused.error().code, Code::kUnsupported);
    EXPECT_STREQ(refused.error().call, verb);
  }
}

// As later headers declare it.
struct LaterQueue {
  void (*wr_atomic_write)(LaterQueue*, std::uint32_t, std::uint64_t, const void*);
  void (*wr_flush)(LaterQueue*, std::uint32_t, std::uint64_t, std::size_t, std::uint8_t,
                   std::uint8_t);
};
std::string posted;

TEST(NewerOperations, GoThroughTheTablesOfLaterHeaders) {
  static_assert(detail::KnowsFlush<LaterQueue> && detail::KnowsAtomicWrite<LaterQueue>);
  LaterQueue queue{
      .wr_atomic_write =
          [](LaterQueue*, std::uint32_t rkey, std::uint64_t address, const void* bytes) {
            std::uint64_t value = 0;
            std::memcpy(&value, bytes, sizeof value);
            posted = std::to_string(value) + " to " + std::to_string(address) + " by " +
                     std::to_string(rkey);
          },
      .wr_flush =
          [](LaterQueue*, std::uint32_t rkey, std::uint64_t address, std::size_t length,
             std::uint8_t placement, std::uint8_t level) {
            posted = std::to_string(length) + " at " + std::to_string(address) + " by " +
                     std::to_string(rkey) + ": " + std::to_string(placement) + ", " +
                     std::to_string(level);
          }};
  const RemoteSpan span{.address = 4096, .length = 64, .rkey = 7};
  detail::atomic_write(&queue, span, 99);
  EXPECT_EQ(posted, "99 to 4096 by 7");
  detail::flush(&queue, span, FlushTo::kPersistent);
  EXPECT_EQ(posted, "64 at 4096 by 7: 2, 0");
}

TEST(NewerOperationsDeathTest, AbortOnAQueuePairThatWasMadeWithout) {
  LaterQueue queue{};
  EXPECT_DEATH(detail::flush(&queue, {}, FlushTo::kVisible), "made without kFlush");
}

}  // namespace
}  // namespace rkv::rdma
