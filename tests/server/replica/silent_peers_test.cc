// Connections that say nothing.
#include "server/replica/silent_peers.h"

#include <gtest/gtest.h>

namespace rkv::server {
namespace {

using Numbers = std::vector<std::uint64_t>;
constexpr Nanos kStart = 1000 * kNanosPerSecond;

TEST(SilentPeers, EndWhenTheirTimeIsOver) {
  SilentPeers peers;
  peers.connected(1, kStart);
  peers.connected(2, kStart + 1);
  peers.connected(3, kStart + 1);
  peers.forget(2);
  EXPECT_EQ(peers.take_overdue(kStart + SilentPeers::kLimit - 1), Numbers{});
  EXPECT_EQ(peers.take_overdue(kStart + SilentPeers::kLimit), Numbers{1});
  EXPECT_EQ(peers.take_overdue(kStart + SilentPeers::kLimit), Numbers{}) << "once";
  EXPECT_EQ(peers.take_overdue(kStart + SilentPeers::kLimit + 1), Numbers{3});
}

TEST(SilentPeers, AreBounded) {
  SilentPeers peers;
  for (std::uint64_t peer = 1; peer <= SilentPeers::kMost; ++peer)
    peers.connected(peer, kStart);
  EXPECT_EQ(peers.take_overdue(kStart), Numbers{});
  peers.connected(1000, kStart);
  peers.connected(1001, kStart);
  EXPECT_EQ(peers.take_overdue(kStart), (Numbers{1, 2})) << "the oldest";
}

}  // namespace
}  // namespace rkv::server
