#include "common/bytes.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace rkv {
namespace {

RC_GTEST_PROP(SharedCopy, RoundTripsAndZeroesTheLastWord, (const std::vector<std::uint8_t>& data)) {
  std::vector<std::uint64_t> shared(data.size() / 8 + 2, ~std::uint64_t{0});
  auto* base = reinterpret_cast<std::byte*>(shared.data());
  copy_to_shared(base, std::as_bytes(std::span(data)));
  std::vector<std::byte> back(data.size());
  copy_from_shared(back, base);
  RC_ASSERT(std::ranges::equal(back, std::as_bytes(std::span(data))));
  const std::size_t padded = round_up(data.size(), 8);
  for (std::size_t i = data.size(); i < padded; ++i)
    RC_ASSERT(base[i] == std::byte{0});
  RC_ASSERT(base[padded] == std::byte{0xFF});  // nothing beyond the last word
}

TEST(Bytes, RoundUp) {
  EXPECT_EQ(round_up(0, 32), 0U);
  EXPECT_EQ(round_up(1, 32), 32U);
  EXPECT_EQ(round_up(32, 32), 32U);
}

}  // namespace
}  // namespace rkv
