// Connections that say nothing.
#include "server/group/replica/silent_peers.h"

#include <gtest/gtest.h>

namespace rkv::server {
namespace {

using Numbers = std::vector<std::uint64_t>;
constexpr Nanos kSilentSince = 1000 * kNanosPerSecond;

TEST(SilentPeers, EndWhenTheirTimeIsOver) {
  SilentPeers peers;
  peers.connected(1, kSilentSince);
  peers.connected(2, kSilentSince + 1);
  peers.connected(3, kSilentSince + 1);
  peers.forget(2);
  EXPECT_EQ(peers.take_overdue(kSilentSince + SilentPeers::kLimit - 1), Numbers{});
  EXPECT_EQ(peers.take_overdue(kSilentSince + SilentPeers::kLimit), Numbers{1});
  EXPECT_EQ(peers.take_overdue(kSilentSince + SilentPeers::kLimit), Numbers{}) << "once";
  EXPECT_EQ(peers.take_overdue(kSilentSince + SilentPeers::kLimit + 1), Numbers{3});
}

TEST(SilentPeers, AreBounded) {
  SilentPeers peers;
  for (std::uint64_t peer = 1; peer <= SilentPeers::kMost; ++peer)
    peers.connected(peer, kSilentSince);
  EXPECT_EQ(peers.take_overdue(kSilentSince), Numbers{});
  peers.connected(1000, kSilentSince);
  peers.connected(1001, kSilentSince);
  EXPECT_EQ(peers.take_overdue(kSilentSince), (Numbers{1, 2})) << "the oldest";
}

}  // namespace
}  // namespace rkv::server
