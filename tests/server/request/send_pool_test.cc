#include "server/request/send_pool.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/server/request/fake_transport.h"

namespace rkv::server {
namespace {

TEST(SendPool, BuffersAreDisjointAndComeBack) {
  test::FakeTransport transport;
  auto pool = SendPool::create(transport, 3, 2);
  ASSERT_TRUE(pool);
  for (int round = 0; round < 2; ++round) {
    std::set<std::pair<const std::byte*, const std::byte*>> taken;
    std::vector<std::uint32_t> indices;
    const auto take = [&](std::size_t length) {
      const auto buffer = pool->take(length);
      if (!buffer) return false;
      EXPECT_GE(buffer->bytes.size(), length);
      for (const auto& [begin, end] : taken)
        EXPECT_TRUE(buffer->bytes.data() + buffer->bytes.size() <= begin ||
                    end <= buffer->bytes.data());
      taken.emplace(buffer->bytes.data(), buffer->bytes.data() + buffer->bytes.size());
      indices.push_back(buffer->index);
      return true;
    };
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(take(SendPool::kSmallBytes));
    EXPECT_EQ(pool->small_free(), 0U);
    EXPECT_TRUE(take(40)) << "a large one serves when the small ones are out";
    EXPECT_TRUE(take(kMaxMessageBytes));
    EXPECT_FALSE(take(SendPool::kSmallBytes + 1));
    EXPECT_FALSE(take(1));
    for (const std::uint32_t index : indices)
      pool->give_back(index);
    EXPECT_EQ(pool->small_free(), 3U);
  }
}

}  // namespace
}  // namespace rkv::server
