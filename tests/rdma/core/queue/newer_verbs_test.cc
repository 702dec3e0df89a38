// Operations younger than rdma-core 44 or than SoftRoCE of Linux 6.1: refused by name where the
// device or the headers lack them, and posted through the tables that newer headers have.
#include <tuple>
#include <type_traits>

#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

TEST(NewerOperations, AreRefusedByNameWhereTheDeviceLacksThem) {
  const Device device = need(Device::open_first_active());
  ibv_device_attr_ex limits{};
  ASSERT_EQ(ibv_query_device_ex(device.raw(), nullptr, &limits), 0);
  // The kernel's bits, as in the library.
  const bool writes = (limits.device_cap_flags_ex & (std::uint64_t{1} << 40)) != 0;
  const bool flushes = (limits.device_cap_flags_ex & (std::uint64_t{3} << 38)) != 0;
  const auto pd = need(ProtectionDomain::allocate(device));
  const auto queue = need(CompletionQueue::create(device, {}));
  for (const auto& [operation, verb, offered] :
       {std::tuple(SendOps::kAtomicWrite, "ibv_wr_atomic_write",
                   writes && detail::KnowsAtomicWrite<ibv_qp_ex>),
        std::tuple(SendOps::kFlush, "ibv_wr_flush", flushes && detail::KnowsFlush<ibv_qp_ex>)}) {
    const auto refused =
        QueuePair::create(pd, queue, queue, {.operations = kAllSendOps | operation});
    ASSERT_EQ(refused.has_value(), offered) << verb;
    if (offered) continue;
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
