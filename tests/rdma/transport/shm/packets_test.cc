// Packets of the sockets over which peers meet: the last one before an end.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "rdma/transport/shm/protocol.h"
#include "tests/rdma/transport/shm/harness.h"

namespace rkv::rdma::shm {
namespace {

std::array<Fd, 2> pair_of_sockets() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

// A refusal is a packet and an end. Linux reports the end of a few in a hundred thousand while the
// packet lies in the queue, if the receiver asks at that moment.
TEST(ShmPackets, TheLastOneComesBeforeTheEnd) {
  constexpr int kRounds = 200'000;
  std::atomic<int> handed{-1};
  std::atomic<bool> over{false};
  std::thread peer([&] {
    while (!over.load()) {
      const Fd end(handed.exchange(-1));
      if (!end) continue;
      EXPECT_EQ(send_packet(end.get(), packet_of(Reject{})), 0);
    }
  });
  int missed = 0;
  std::array<std::byte, kMaxPacketBytes> buffer{};
  for (int i = 0; i < kRounds; ++i) {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    const Fd ours(ends[0]);
    handed.store(ends[1]);
    Packet packet;
    do
      packet = receive_packet(ours.get(), buffer);
    while (packet.result == Packet::Result::kNothing);
    if (packet.result != Packet::Result::kPacket) ++missed;
  }
  over.store(true);
  peer.join();
  EXPECT_EQ(missed, 0) << "of " << kRounds;
}

// It looks like an end to the kernel's caller.
TEST(ShmPackets, OneOfNoBytesEndsAndItsDescriptorsAreClosed) {
  auto [ours, theirs] = pair_of_sockets();
  auto [passed, watched] = pair_of_sockets();
  const std::array<int, 1> descriptors{passed.get()};
  ASSERT_EQ(send_packet(theirs.get(), {}, descriptors), 0);
  passed = {};
  std::array<std::byte, kMaxPacketBytes> buffer{};
  {
    std::vector<Fd> taken;
    EXPECT_EQ(receive_packet(ours.get(), buffer, &taken).result, Packet::Result::kEnd);
    EXPECT_EQ(taken.size(), 1U);
  }
  EXPECT_EQ(receive_packet(watched.get(), buffer).result, Packet::Result::kEnd)
      << "the descriptor is still open";
}

TEST(ShmPackets, TheEndIsTheEnd) {
  auto [ours, theirs] = pair_of_sockets();
  std::array<std::byte, kMaxPacketBytes> buffer{};
  EXPECT_EQ(receive_packet(ours.get(), buffer).result, Packet::Result::kNothing);
  theirs = {};
  EXPECT_EQ(receive_packet(ours.get(), buffer).result, Packet::Result::kEnd);
  EXPECT_EQ(peek_packet(ours.get(), buffer).packet.result, Packet::Result::kEnd);
}

}  // namespace
}  // namespace rkv::rdma::shm
