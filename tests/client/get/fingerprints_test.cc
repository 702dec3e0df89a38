// The vector scan of a group finds what the plain one finds.
#include "client/get/fingerprints.h"

#include <gtest/gtest.h>

#include "common/random.h"

namespace rkv::client {
namespace {

TEST(Fingerprints, TheVectorScanAgreesWithThePlainOne) {
  Random random(7);
  constexpr std::uint16_t kFew[] = {0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x1234};
  for (int round = 0; round < 20'000; ++round) {
    Group group;
    group.checksum = random();  // the words before the slots must not count
    group.header = random();
    for (auto& slot : group.slots) {
      slot = random();
      if (random.below(2) == 0)
        slot = slot << 16 >> 16 | std::uint64_t{kFew[random.below(6)]} << 48;
      if (random.below(4) == 0) slot = 0;
    }
    for (const std::uint16_t wanted : kFew)
      ASSERT_EQ(slots_with(group, wanted), slots_with_plain(group, wanted)) << wanted;
    const Slot one{group.slots[random.below(kSlotsPerGroup)]};
    ASSERT_EQ(slots_with(group, one.fingerprint()), slots_with_plain(group, one.fingerprint()));
  }
}

TEST(Fingerprints, EachSlotHasItsBit) {
  for (std::size_t i = 0; i < kSlotsPerGroup; ++i) {
    Group group;
    group.slots[i] = std::uint64_t{0xABCD} << 48 | 0xABCDABCDABCD;
    EXPECT_EQ(slots_with(group, 0xABCD), 1U << i);
  }
}

}  // namespace
}  // namespace rkv::client
