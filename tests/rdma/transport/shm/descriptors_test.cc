// Descriptors that clients pass: traps whose close waits, more than there is room for, and what a
// server keeps for itself.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "rdma/transport/shm/listener.h"
#include "rdma/transport/shm/peer_regions.h"
#include "rdma/transport/shm/shared.h"
#include "tests/rdma/transport/shm/harness.h"

namespace rkv::rdma::shm {
namespace {

using contract::End;
using contract::need;

// A trap holds its closer for a minute; what is tested takes milliseconds.
constexpr int kTrapSeconds = 60;
constexpr std::int64_t kFarBelowMs = 20'000;

template <class Condition>
bool until(Condition condition) {
  const SteadyClock clock;
  const Deadline deadline = Deadline::after_ms(clock, contract::kPatienceMs);
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

class Stopwatch {
 public:
  std::int64_t ms() const { return (clock_.now() - start_) / kNanosPerMs; }

 private:
  SteadyClock clock_;
  Nanos start_ = clock_.now();
};

class ShmDescriptors : public ::testing::Test {
 protected:
  ShmDescriptors()
      : listener_(need(harness_.server().listen(":0"))), server_(harness_, harness_.server()) {}
  struct Pair {
    RawClient client;
    std::unique_ptr<Connection> connection;
  };
  Pair join() {
    Pair out{.client = RawClient(harness_.directory(), listener_->port()), .connection = {}};
    out.connection = accept_on(*listener_, server_);
    out.client.finish();
    return out;
  }
  bool until_ended(const Connection* connection) {
    return server_.until([&] {
      return std::ranges::any_of(server_.seen, [&](const auto& one) {
        return one.kind == Completion::Kind::kDisconnected && one.connection == connection;
      });
    });
  }

  ShmHarness harness_;
  std::unique_ptr<Listener> listener_;
  End server_;
};

TEST_F(ShmDescriptors, ATrapWithAWakeByteEndsItsConnectionAndHoldsUpNobody) {
  const Pair neighbour = join();
  Pair hostile = join();
  ASSERT_TRUE(hostile.client.connected);
  LingeringSocket trap(kTrapSeconds);
  const Stopwatch watch;
  const std::byte wake{1};
  const int passed[] = {trap.trap.get()};
  ASSERT_EQ(send_packet(hostile.client.socket.get(), Bytes(&wake, 1), passed), 0);
  trap.let_go();
  EXPECT_TRUE(until_ended(hostile.connection.get()));
  hostile.connection.reset();
  hostile.client.socket.reset();
  EXPECT_TRUE(neighbour.connection->alive());
  EXPECT_LT(watch.ms(), kFarBelowMs);
}

TEST_F(ShmDescriptors, ATrapWithAGreetingHoldsUpNoOtherCaller) {
  LingeringSocket trap(kTrapSeconds);
  const Stopwatch watch;
  const Fd caller = call(harness_.directory(), listener_->port());
  const int passed[] = {trap.trap.get()};
  ASSERT_EQ(send_packet(caller.get(), packet_of(Hello{.receive_bytes = 4096}), passed), 0);
  trap.let_go();
  EXPECT_EQ(need(listener_->next(server_.soon(0))), nullptr) << "a greeting with descriptors";
  EXPECT_TRUE(join().client.connected);
  EXPECT_LT(watch.ms(), kFarBelowMs);
}

// It lies in the socket when that is closed, which closes it.
TEST_F(ShmDescriptors, ATrapThatNobodyLookedAtHoldsUpNobodyEither) {
  LingeringSocket trap(kTrapSeconds);
  const Stopwatch watch;
  Pair hostile = join();
  const std::byte wake{1};
  const int passed[] = {trap.trap.get()};
  ASSERT_EQ(send_packet(hostile.client.socket.get(), Bytes(&wake, 1), passed), 0);
  trap.let_go();
  hostile.connection.reset();
  EXPECT_TRUE(join().client.connected);
  EXPECT_LT(watch.ms(), kFarBelowMs);
}

TEST_F(ShmDescriptors, ATrapThatIsSaidToBeMemoryEndsItsConnection) {
  LingeringSocket trap(kTrapSeconds);
  const Stopwatch watch;
  Pair hostile = join();
  Regions said;
  said.count = 1;
  said.entries[0] = {.address = 0x1000, .length = 4096, .key = 1};
  const int passed[] = {trap.trap.get()};
  ASSERT_EQ(send_packet(hostile.client.socket.get(), packet_of(said).first(said.bytes()), passed),
            0);
  trap.let_go();
  EXPECT_TRUE(until_ended(hostile.connection.get()));
  hostile.connection.reset();
  EXPECT_TRUE(join().client.connected);
  EXPECT_LT(watch.ms(), kFarBelowMs);
}

// The whole of a server ends at once, whatever lies in its sockets.
TEST(ShmDescriptorsEnd, ATrapDoesNotHoldUpTheEndOfATransport) {
  LingeringSocket trap(kTrapSeconds);
  const Stopwatch watch;
  {
    ShmHarness harness;
    const auto listener = need(harness.server().listen(":0"));
    const Fd caller = call(harness.directory(), listener->port());
    const int passed[] = {trap.trap.get()};
    ASSERT_EQ(send_packet(caller.get(), packet_of(Hello{.receive_bytes = 4096}), passed), 0);
    trap.let_go();
    const SteadyClock clock;
    EXPECT_EQ(need(listener->next(Deadline::after_ms(clock, 0))), nullptr);
  }
  EXPECT_LT(watch.ms(), kFarBelowMs);
}

TEST_F(ShmDescriptors, WhatComesUnaskedIsClosedWithItsConnection) {
  const std::size_t before = count_descriptors();
  for (int i = 0; i < 20; ++i) {
    Pair hostile = join();
    const std::byte wake{1};
    const std::vector<int> passed(10, hostile.client.socket.get());
    ASSERT_EQ(send_packet(hostile.client.socket.get(), Bytes(&wake, 1), passed), 0);
    EXPECT_TRUE(until_ended(hostile.connection.get()));
    server_.seen.clear();
  }
  EXPECT_TRUE(until([&] { return count_descriptors() == before; }))
      << count_descriptors() << " against " << before;
}

// ---- bounds

Fd sealed_memory() {
  Fd fd(memfd_create("rkv-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), 4096), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  return fd;
}

// A client's end of a socket, and the regions that come out of the server's.
struct Sharing {
  Shared shared{""};
  Fd client;
  Fd server;
  Fd memory = sealed_memory();

  Sharing() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    client = Fd(ends[0]);
    server = Fd(ends[1]);
  }
  const char* share(PeerRegions& regions, std::uint32_t first_key, std::size_t count, Nanos now,
                    std::size_t descriptors) {
    Regions said;
    said.count = count;
    for (std::size_t i = 0; i < count; ++i)
      said.entries[i] = {.address = 0, .length = 4096, .key = first_key + std::uint32_t(i)};
    const std::vector<int> passed(descriptors, memory.get());
    EXPECT_EQ(send_packet(client.get(), packet_of(said).first(said.bytes()), passed), 0);
    return regions.receive(server.get(), now);
  }
  const char* share(PeerRegions& regions, std::uint32_t first_key, std::size_t count = 1,
                    Nanos now = 0) {
    return share(regions, first_key, count, now, count);
  }
};

TEST(ShmBudget, IsSharedByAllClientsAndGivenBackWhenTheyGo) {
  Sharing all;
  all.shared.budget->set_limit(32);  // 24 of them for regions
  {
    PeerRegions one(&all.shared);
    EXPECT_EQ(all.share(one, 1, 16), nullptr);
    {
      PeerRegions other(&all.shared);
      EXPECT_EQ(all.share(other, 1, 8), nullptr);
      EXPECT_EQ(all.shared.budget->held(), 24U);
    }
    EXPECT_TRUE(until([&] { return all.shared.budget->held() == 16; }));
    PeerRegions third(&all.shared);
    EXPECT_EQ(all.share(third, 1, 8), nullptr);
    const std::size_t before = count_descriptors();
    const char* const refusal = all.share(third, 9, 1);
    ASSERT_NE(refusal, nullptr);
    EXPECT_NE(std::string_view(refusal).find("ulimit -n"), std::string_view::npos);
    EXPECT_EQ(count_descriptors(), before) << "what is refused is not even received";
    EXPECT_TRUE(all.shared.budget->take_socket()) << "callers are let in all the same";
  }
  EXPECT_TRUE(until([&] { return all.shared.budget->held() == 0; }));
}

TEST(ShmBudget, CountsWhatIsSentBeyondWhatIsSaid) {
  Sharing all;
  const std::size_t before = count_descriptors();
  PeerRegions regions(&all.shared);
  EXPECT_NE(all.share(regions, 1, 1, 0, 253), nullptr);
  EXPECT_TRUE(until([&] { return all.shared.budget->held() == 0; }));
  EXPECT_TRUE(until([&] { return count_descriptors() == before; }));
}

TEST(ShmBudget, ReplacingARegionGivesTheOldOneBack) {
  Sharing all;
  PeerRegions regions(&all.shared);
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(all.share(regions, 7, 1), nullptr);
  EXPECT_EQ(regions.size(), 1U);
  EXPECT_TRUE(until([&] { return all.shared.budget->held() == 1; }));
}

// (PEERREG-4)
TEST(ShmBudget, RegionsComeAtABoundedRate) {
  Sharing all;
  PeerRegions regions(&all.shared);
  const auto replace = [&](Nanos now) { return all.share(regions, 1, 16, now); };
  Nanos now = 1'000'000 * kNanosPerMs;
  for (std::size_t i = 0; i < kRegionsBurst / 16; ++i)
    ASSERT_EQ(replace(now), nullptr) << i;
  // From then on 16 every 1.6 ms, as many as they like.
  for (int i = 0; i < 100; ++i) {
    now += 16 * 1000 * kNanosPerMs / kRegionsPerSecond;
    ASSERT_EQ(replace(now), nullptr) << i;
  }
  const char* const refusal = replace(now);
  ASSERT_NE(refusal, nullptr);
  EXPECT_NE(std::string_view(refusal).find("a second"), std::string_view::npos);
  PeerRegions other(&all.shared);
  EXPECT_EQ(other.receive(all.server.get(), now), nullptr) << "each connection has its own";
}

// The limit of open files is one for the server's own files and its clients' (REAP-4).
TEST(ShmBudget, CallersBeyondItAreToldWhy) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  ShmHarness harness;
  rlimit few = files;
  few.rlim_cur = 2 * (count_descriptors() + 10);
  const std::size_t limit = few.rlim_cur / 2;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto listener = need(harness.server().listen(":0"));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  End server(harness, harness.server());
  std::vector<RawClient> clients;
  std::vector<std::unique_ptr<Connection>> connections;
  for (std::size_t i = 0; i < limit; ++i) {
    clients.emplace_back(harness.directory(), listener->port());
    const auto incoming = need(listener->next(server.soon()));
    connections.push_back(
        need(incoming->accept(*server.queue, {.sends_in_flight = 1}, {}, server.soon())));
  }
  RawClient last(harness.directory(), listener->port());
  const auto incoming = need(listener->next(server.soon()));
  ASSERT_NE(incoming, nullptr);
  const auto refused = incoming->accept(*server.queue, {}, {}, server.soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kBusy);
  EXPECT_NE(std::string_view(refused.error().text).find("ulimit -n"), std::string_view::npos);
  connections.clear();
  clients.clear();
}

// A client that asks for too much hears why before its connection ends.
TEST_F(ShmDescriptors, AGoodbyeSaysWhy) {
  const Pair pair = join();
  Regions said;
  said.count = 1;
  said.entries[0] = {.address = 0, .length = 8192, .key = 1};  // longer than it is
  const Fd memory = sealed_memory();
  const int passed[] = {memory.get()};
  ASSERT_EQ(send_packet(pair.client.socket.get(), packet_of(said).first(said.bytes()), passed), 0);
  ASSERT_TRUE(until_ended(pair.connection.get()));
  std::array<std::byte, kMaxPacketBytes> buffer;
  Goodbye goodbye;
  Packet packet = await_packet(pair.client.socket, buffer, nullptr);
  while (packet.result == Packet::Result::kPacket && packet.length != sizeof goodbye)
    packet = await_packet(pair.client.socket, buffer, nullptr);  // the server's own regions
  ASSERT_EQ(packet.result, Packet::Result::kPacket);
  ASSERT_TRUE(decode(Bytes(buffer).first(packet.length), PacketKind::kGoodbye, &goodbye));
  EXPECT_EQ(std::string_view(goodbye.reason.data(), goodbye.length),
            "it passed memory that does not match its description");
}

// ---- callers that cannot be taken in

// The error of the next calls of accept4 in this program; 0: the calls are made.
std::atomic<int> accept_error = 0;
std::atomic<int> accepts = 0;

TEST_F(ShmDescriptors, ACallerThatCannotBeTakenInIsNoReasonToSpin) {
  for (const int error : {ENFILE, ENOMEM, ENOBUFS, EMFILE}) {
    accept_error = error;
    accepts = 0;
    const RawClient client(harness_.directory(), listener_->port());
    EXPECT_EQ(need(listener_->next(server_.soon(500))), nullptr) << strerror(error);
    EXPECT_GE(accepts, 2) << "it is tried again";
    EXPECT_LE(accepts, 25) << strerror(error);
    accept_error = 0;
    EXPECT_NE(need(listener_->next(server_.soon())), nullptr) << "and then let in";
  }
}

}  // namespace
}  // namespace rkv::rdma::shm

// Stands before the C library's in this program.
extern "C" int accept4(int socket, sockaddr* address, socklen_t* length, int flags) {
  ++rkv::rdma::shm::accepts;
  if (const int error = rkv::rdma::shm::accept_error; error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_accept4, socket, address, length, flags));
}
