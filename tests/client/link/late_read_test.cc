// LINK-1 on the simulated network: a READ that is still under way when its caller's time is up does
// not land in memory that the caller has back.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "client/link/link.h"
#include "tests/sim/network/fabric.h"

namespace rkv::client {
namespace {

constexpr std::size_t kBytes = 64 << 10;
constexpr std::byte kPattern{0x77};
constexpr int kRounds = 50;

// Accepts connections, one after the other, and lets them READ its memory.
void serve(rdma::sim::Scheduler& scheduler, rdma::Transport& transport, rdma::Listener& listener) {
  const auto region = *transport.allocate(kBytes, rdma::Access::kRemoteRead);
  std::ranges::fill(region->bytes(), std::byte{0x11});
  const auto queue = *transport.create_queue({.receive_buffers = 4, .receive_bytes = 4096});
  for (int round = 0; round < kRounds; ++round) {
    const auto incoming = *listener.next(Deadline::after_ms(scheduler, 3'600'000));
    ASSERT_NE(incoming, nullptr);
    std::array<std::byte, kConnectAcceptBytes> accept{};
    encode(ConnectAccept{.epoch = 1,
                         .session = 2,
                         .credits = 4,
                         .max_message_bytes = kMaxMessageBytes,
                         .max_sent_bytes = 4096,
                         .root = {.address = region->address(),
                                  .remote_key = region->remote_key(),
                                  .length = kBytes}},
           accept);
    const auto connection =
        incoming->accept(*queue, {.sends_in_flight = 4, .grant = rdma::Access::kRemoteRead}, accept,
                         Deadline::after_ms(scheduler, 1000));
    ASSERT_TRUE(connection);
    rdma::Completion done;
    do {
      queue->wait(Deadline::after_ms(scheduler, 1000));
    } while (queue->poll({&done, 1}) == 0 || done.kind != rdma::Completion::Kind::kDisconnected);
  }
}

TEST(LateRead, LeavesMemoryAloneThatItsCallerHasBack) {
  const auto fabric = std::make_shared<rdma::sim::Fabric>(1);
  rdma::sim::Scheduler& scheduler = fabric->scheduler();
  const auto server = rdma::sim::open_sim(fabric, "server");
  const std::shared_ptr<rdma::Transport> here = rdma::sim::open_sim(fabric, "client");
  const auto listener = *server->listen("server:0");
  // The pieces of a READ arrive within 20 ms; an abort takes up to 5 ms to be noticed.
  fabric->faults().pieces = 16;
  fabric->faults().piece_spread = 20 * kNanosPerMs;
  fabric->faults().notice = 5 * kNanosPerMs;

  scheduler.spawn("server", [&] { serve(scheduler, *server, *listener); });
  int late = 0;
  int partly = 0;
  scheduler.spawn("client", [&] {
    Arena arena = *Arena::create(*here, 4, 4);
    const auto memory = *here->allocate(kBytes, rdma::Access::kLocal);
    Link link(*here, scheduler, arena,
              {.address = "server:" + std::to_string(listener->port()), .name = "late"});
    for (int round = 0; round < kRounds; ++round) {
      ASSERT_TRUE(link.connect(Deadline::after_ms(scheduler, 1000)));
      const RemoteWindow& root = link.accept().root;
      const ReadRequest read{.from = {.address = root.address, .remote_key = root.remote_key},
                             .to = memory->bytes(),
                             .local_key = memory->local_key()};
      std::ranges::fill(memory->bytes(), std::byte{0});
      const Deadline deadline(scheduler, scheduler.now() + (1 + round % 10) * kNanosPerMs);
      const Status ended = link.read({&read, 1}, deadline);
      if (ended) {  // it had few pieces, all of which were early
        link.close();
        continue;
      }
      EXPECT_EQ(ended.error().code, Code::kTimeout);
      ++late;
      // Whether some of it has landed, and some has not.
      const auto landed = std::ranges::count(memory->bytes(), std::byte{0x11});
      partly += landed != 0 && landed != static_cast<std::ptrdiff_t>(kBytes) ? 1 : 0;
      std::ranges::fill(memory->bytes(), kPattern);
      scheduler.sleep(100 * kNanosPerMs);
      const auto kept = std::ranges::count(memory->bytes(), kPattern);
      ASSERT_EQ(kept, static_cast<std::ptrdiff_t>(kBytes)) << "round " << round;
    }
  });
  EXPECT_EQ(scheduler.run(10'000'000, 3'600'000 * kNanosPerMs), std::nullopt);
  EXPECT_GT(late, kRounds / 2);
  EXPECT_GT(partly, late / 3);
}

}  // namespace
}  // namespace rkv::client
