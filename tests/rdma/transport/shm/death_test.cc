// Processes that are killed: what the other side learns, and that it learns it in time.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

#include "common/random.h"
#include "tests/rdma/transport/shm/harness.h"
#include "tests/rdma/transport/shm/peer.h"
#include "tests/system/process.h"

namespace rkv::rdma::shm {
namespace {

using contract::End;
using contract::need;
using testing_support::Process;
using Status = Completion::Status;

std::uint16_t port_of(Process& server) {
  EXPECT_TRUE(server.wait_for_output("ready")) << server.output();
  unsigned port = 0;
  EXPECT_EQ(std::sscanf(server.output().c_str(), "port %u", &port), 1) << server.output();
  return static_cast<std::uint16_t>(port);
}

// A client of a server in another process.
struct Client {
  ShmHarness* harness;
  End end;
  std::uint16_t port;
  std::unique_ptr<Connection> connection;
  Whereabouts where{};

  Client(ShmHarness& with, std::uint16_t at, PollMode mode = PollMode::kAdaptive)
      : harness(&with), end(with, with.client(), {.poll = mode}, Access::kLocal), port(at) {
    connection = need(
        with.client().connect(*end.queue, {}, with.connect_address(port), {}, end.soon(), nullptr));
    std::memcpy(&where, connection->private_data().data(), sizeof where);
  }
  Operation read(std::size_t length, std::uint64_t context) {
    return Operation::read(end.piece(0, length), 0, where.address, where.key, context);
  }
  // Status of one READ; kFailed also when it could not be posted.
  Status read_once() {
    const Operation one = read(4096, 1);
    if (!connection->post(std::span(&one, 1))) return Status::kFailed;
    end.seen.clear();
    EXPECT_TRUE(end.until_seen(1));
    return end.seen.empty() ? Status::kFailed : end.seen[0].status;
  }
};

TEST(ShmDeath, NoReadSucceedsOnceTheServerIsGone) {
  const std::uint64_t seed = random_from_kernel();
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int round = 0; round < 8; ++round) {
    ShmHarness harness;
    Process server({RKV_SHM_PEER, "serve", harness.directory()});
    Client client(harness, port_of(server));
    ASSERT_EQ(client.read_once(), Status::kOk);
    std::atomic<bool> gone = false;
    const std::uint64_t reads_before = random.below(5000);
    std::atomic<std::uint64_t> reads = 0;
    std::thread killer([&] {
      while (reads < reads_before)
        std::this_thread::yield();
      server.signal(SIGKILL);
      server.wait();
      gone = true;
    });
    bool refused = false;
    for (const Deadline end = client.end.soon(); !refused && !end.passed(); ++reads) {
      const bool was_gone = gone;
      const Status status = client.read_once();
      refused = status != Status::kOk;
      if (was_gone) {
        EXPECT_TRUE(refused) << "a dead server's memory was read";
      }
    }
    killer.join();
    EXPECT_TRUE(refused);
    EXPECT_TRUE(client.end.until_disconnected());
    EXPECT_FALSE(client.connection->alive());
  }
}

// Takes the memory of a dying process at once, as the kernel does when memory has run out.
void reap_memory(pid_t pid) {
  constexpr long kProcessMrelease =
      448;  // <sys/syscall.h> of Debian 12 knows it, older ones do not
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  while (syscall(kProcessMrelease, process.get(), 0) != 0 && errno == EAGAIN) {
  }
}

// The moment at which a successor may begin to acknowledge is when the port's lock comes free.
TEST(ShmDeath, WhenASuccessorHasThePortThePredecessorIsDeadToItsClients) {
  for (int round = 0; round < 40; ++round) {
    ShmHarness harness;
    Process server({RKV_SHM_PEER, "serve", harness.directory()});
    Client client(harness, port_of(server));
    ASSERT_EQ(client.read_once(), Status::kOk);
    server.signal(SIGKILL);
    if (round % 2 == 0) reap_memory(server.pid());
    Result<std::unique_ptr<Listener>> successor = fail(Code::kConflict, "");
    for (const Deadline end = client.end.soon(); !successor && !end.passed();)
      successor = harness.server().listen(harness.connect_address(client.port));
    ASSERT_TRUE(successor) << to_string(successor.error());
    EXPECT_NE(client.read_once(), Status::kOk);
  }
}

TEST(ShmDeath, AnIdleClientHearsOfItInEveryMode) {
  for (const PollMode mode : {PollMode::kAdaptive, PollMode::kBusy, PollMode::kEvent}) {
    ShmHarness harness;
    Process server({RKV_SHM_PEER, "serve", harness.directory()});
    Client client(harness, port_of(server), mode);
    server.signal(SIGKILL);
    EXPECT_TRUE(client.end.until_disconnected());
    EXPECT_EQ(client.end.seen.size(), 1U);
  }
}

TEST(ShmDeath, AServerThatStopsIsNotDeadAndADeadlineEndsTheWait) {
  ShmHarness harness;
  Process server({RKV_SHM_PEER, "serve", harness.directory()});
  Client client(harness, port_of(server));
  server.signal(SIGSTOP);
  EXPECT_EQ(client.read_once(), Status::kOk) << "its memory is still its word";
  const auto second =
      harness.client().connect(*client.end.queue, {}, harness.connect_address(client.port), {},
                               client.end.soon(50), nullptr);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kTimeout);
  server.signal(SIGCONT);
}

TEST(ShmDeath, ATransportThatEndsIsDeadToo) {
  ShmHarness harness;
  auto server = need(open_shm({.directory = harness.directory()}));
  auto region = need(server->allocate(4096, Access::kRemoteRead));
  auto listener = need(server->listen(":0"));
  auto queue = need(server->create_queue({}));
  End client(harness, harness.client());
  std::unique_ptr<Connection> active;
  std::unique_ptr<Connection> passive;
  harness.run_both(
      [&] {
        auto incoming = need(listener->next(client.soon()));
        passive = need(incoming->accept(*queue, {.grant = Access::kRemoteRead}, {}, client.soon()));
      },
      [&] {
        active = need(harness.client().connect(*client.queue, {},
                                               harness.connect_address(listener->port()), {},
                                               client.soon(), nullptr));
      });
  const Operation read =
      Operation::read(client.piece(0, 8), 0, region->address(), region->remote_key(), 1);
  EXPECT_EQ(need(active->post(std::span(&read, 1))), 1U);
  passive.reset();
  listener.reset();
  queue.reset();
  region.reset();
  server.reset();
  client.seen.clear();
  ASSERT_TRUE(client.until_disconnected());
  EXPECT_FALSE(active->post(std::span(&read, 1)));
}

TEST(ShmDeath, ClientsKilledAtAnyInstantHarmNobody) {
  const std::uint64_t seed = random_from_kernel();
  SCOPED_TRACE(seed);
  Random random(seed);
  ShmHarness harness;
  contract::LinkOptions options;
  contract::Link good(harness, options);
  const Whereabouts where{.address = good.server.region->address(),
                          .key = good.server.region->remote_key()};
  const Bytes welcome(reinterpret_cast<const std::byte*>(&where), sizeof where);
  const std::string port = std::to_string(good.listener->port());
  for (int round = 0; round < 25; ++round) {
    Process client({RKV_SHM_PEER, "hammer", harness.directory(), port});
    auto incoming = need(good.listener->next(good.server.soon()));
    ASSERT_NE(incoming, nullptr);
    auto accepted = incoming->accept(*good.server.queue, {.grant = Access::kRemoteReadAtomic},
                                     welcome, good.server.soon());
    ASSERT_TRUE(accepted);
    const std::size_t enough = random.below(300);
    ASSERT_TRUE(
        good.server.until([&] { return good.server.count(Completion::Kind::kReceive) >= enough; }));
    client.signal(SIGKILL);
    ASSERT_TRUE(good.server.until_disconnected());
    EXPECT_EQ(good.server.seen.back().connection, accepted->get());
    accepted->reset();
    good.server.seen.clear();
    // The other client notices nothing.
    good.client.seen.clear();
    std::memcpy(good.client.at(64), "still here", 10);
    good.post(good.send(64, 10, 1));
    good.post(good.read(0, 4096, 2));
    ASSERT_TRUE(good.client.until_seen(2));
    ASSERT_TRUE(good.server.until_seen(1));
    EXPECT_EQ(good.server.seen[0].message, "still here");
    EXPECT_TRUE(good.client.seen[1].ok());
    good.server.seen.clear();
  }
}

}  // namespace
}  // namespace rkv::rdma::shm
