// Sockets, directories, and strangers.
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "common/random.h"
#include "tests/rdma/transport/shm/harness.h"

namespace rkv::rdma::shm {
namespace {

using contract::End;
using contract::need;

std::string here(std::uint16_t port) {
  return "127.0.0.1:" + std::to_string(port);
}

Code connect_code(Transport& transport, const std::string& address) {
  const auto queue = need(transport.create_queue({}));
  const SteadyClock clock;
  const auto made = transport.connect(*queue, {}, address, {},
                                      Deadline::after_ms(clock, contract::kPatienceMs), nullptr);
  if (made) ADD_FAILURE() << "connected to " << address;
  return made ? Code::kInternal : made.error().code;
}

// Whether a well-behaved client gets through.
void expect_served(ShmHarness& harness, Listener& listener) {
  End client(harness, harness.client());
  End server(harness, harness.server());
  const auto [active, passive] = contract::join(harness, listener, client, server, {});
  ASSERT_NE(active, nullptr);
  const Operation read = Operation::read(client.piece(0, 8), 0, server.region->address(),
                                         server.region->remote_key(), 1);
  EXPECT_EQ(need(active->post(std::span(&read, 1))), 1U);
  ASSERT_TRUE(client.until_seen(1));
  EXPECT_TRUE(client.seen[0].ok());
}

TEST(ShmListener, OnePortHasOneServer) {
  const ShmHarness harness;
  const auto other = need(open_shm({.directory = harness.directory()}));
  auto& server = const_cast<ShmHarness&>(harness).server();
  const auto first = need(server.listen("0.0.0.0:0"));
  for (Transport* transport : {&server, other.get()}) {
    const auto second = transport->listen(here(first->port()));
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Code::kConflict);
    EXPECT_NE(second.error().text, nullptr);
  }
}

TEST(ShmListener, ASocketLeftByADeadServerIsReplacedAndUntilThenUnreachable) {
  ShmHarness harness;
  std::uint16_t port = 0;
  const std::string away = harness.directory() + "/away";
  {
    const auto dead = need(harness.server().listen("localhost:0"));
    port = dead->port();
    // As a kill leaves it: the name is there, nobody behind it.
    ASSERT_EQ(rename(socket_path(harness.directory(), port).c_str(), away.c_str()), 0);
  }
  ASSERT_EQ(rename(away.c_str(), socket_path(harness.directory(), port).c_str()), 0);
  EXPECT_EQ(connect_code(harness.client(), here(port)), Code::kUnreachable);
  const auto listener = need(harness.server().listen(here(port)));
  expect_served(harness, *listener);
}

TEST(ShmListener, OnlyThisHostIsReached) {
  ShmHarness harness;
  EXPECT_EQ(harness.server().listen("192.0.2.1:0").error().code, Code::kUnreachable);
  EXPECT_EQ(connect_code(harness.client(), "192.0.2.1:7471"), Code::kUnreachable);
  const auto listener = need(harness.server().listen(":0"));
  for (const char* host : {"localhost", "127.0.0.1", "127.3.2.1", "[::1]", "0.0.0.0"}) {
    End client(harness, harness.client());
    const auto made = harness.client().connect(
        *client.queue, {}, std::string(host) + ":" + std::to_string(listener->port()), {},
        client.soon(1), nullptr);
    ASSERT_FALSE(made) << "nobody accepts here";
    EXPECT_EQ(made.error().code, Code::kTimeout) << host << ' ' << to_string(made.error());
  }
}

TEST(ShmListener, ADirectoryThatOthersCanWriteIsRefused) {
  const TemporaryDirectory directory;
  const auto transport = need(open_shm({.directory = directory.path()}));
  EXPECT_TRUE(transport->listen(":0"));
  ASSERT_EQ(chmod(directory.path().c_str(), 0777), 0);
  EXPECT_EQ(transport->listen(":0").error().code, Code::kPermission);
  ASSERT_EQ(chmod(directory.path().c_str(), 0700), 0);
  // A link could be led elsewhere behind our back.
  const std::string link = directory.path() + "/link";
  ASSERT_EQ(symlink(directory.path().c_str(), link.c_str()), 0);
  EXPECT_EQ(need(open_shm({.directory = link}))->listen(":0").error().code, Code::kPermission);
  // Made where it is missing, for us alone.
  const std::string missing = directory.path() + "/missing";
  const auto listener = need(need(open_shm({.directory = missing}))->listen(":0"));
  struct stat status{};
  ASSERT_EQ(stat(missing.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
  ASSERT_EQ(stat(socket_path(missing, listener->port()).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST(ShmListener, AnotherUsersDirectoryIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  const TemporaryDirectory directory;
  ASSERT_EQ(chown(directory.path().c_str(), 12345, 12345), 0);
  const auto transport = need(open_shm({.directory = directory.path()}));
  EXPECT_EQ(transport->listen(":0").error().code, Code::kPermission);
}

TEST(ShmListener, TheEnvironmentNamesTheDirectory) {
  const TemporaryDirectory directory;
  setenv("RKV_SHM_DIR", directory.path().c_str(), 1);
  const auto listener = need(need(open_shm({}))->listen(":0"));
  unsetenv("RKV_SHM_DIR");
  EXPECT_EQ(access(socket_path(directory.path(), listener->port()).c_str(), F_OK), 0);
}

// ---- strangers ----

TEST(ShmStrangers, SilentOnesHoldUpNobody) {
  ShmHarness harness;
  const auto listener = need(harness.server().listen(":0"));
  std::vector<Fd> silent;
  for (int i = 0; i < 20; ++i)
    silent.push_back(call(harness.directory(), listener->port()));
  const SteadyClock clock;
  const Nanos start = clock.now();
  expect_served(harness, *listener);
  EXPECT_LT(clock.now() - start, 1'500 * kNanosPerMs) << "as long as a silent one is listened to";
  // Too many of them: the oldest are hung up on, and clients still get through.
  for (int i = 0; i < 200; ++i) {
    silent.push_back(call(harness.directory(), listener->port()));
    EXPECT_EQ(need(listener->next(Deadline::after_ms(clock, 0))), nullptr);
  }
  expect_served(harness, *listener);
  std::array<std::byte, 8> buffer;
  EXPECT_EQ(await_packet(silent.front(), buffer, nullptr).result, Packet::Result::kEnd);
}

TEST(ShmStrangers, ASlowGreetingIsHeardInItsTurn) {
  ShmHarness harness;
  const auto listener = need(harness.server().listen(":0"));
  const SteadyClock clock;
  const Fd slow = call(harness.directory(), listener->port());
  EXPECT_EQ(need(listener->next(Deadline::after_ms(clock, 0))), nullptr);
  EXPECT_EQ(need(listener->next(Deadline::after_ms(clock, 0))), nullptr);
  ASSERT_EQ(send_packet(slow.get(), packet_of(Hello{.receive_bytes = 64})), 0);
  EXPECT_NE(need(listener->next(Deadline::after_ms(clock, contract::kPatienceMs))), nullptr);
}

TEST(ShmStrangers, AnotherVersionIsToldSo) {
  ShmHarness harness;
  const auto listener = need(harness.server().listen(":0"));
  Hello hello{.receive_bytes = 4096};
  hello.header.version = kVersion + 1;
  const Fd caller = call(harness.directory(), listener->port());
  std::array<std::byte, 300> longer{};  // whatever follows the header in that version
  std::memcpy(longer.data(), &hello, sizeof hello);
  ASSERT_EQ(send_packet(caller.get(), longer), 0);
  const SteadyClock clock;
  EXPECT_EQ(need(listener->next(Deadline::after_ms(clock, 0))), nullptr);
  std::array<std::byte, 64> buffer;
  const Packet packet = await_packet(caller, buffer, nullptr);
  WrongVersion answer;
  EXPECT_TRUE(decode(Bytes(buffer).first(packet.length), PacketKind::kWrongVersion, &answer));
}

// A server of another version, or of nothing that we know, as a client of ours meets it.
Code code_after(const ShmHarness& harness, Bytes answer, int descriptors) {
  const std::uint16_t port = 4711;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = socket_path(harness.directory(), port);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  unlink(path.c_str());
  const Fd listening(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind(listening.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(listening.get(), 1), 0);
  std::thread server([&] {
    const Fd caller(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::array<std::byte, 256> buffer;
    await_packet(caller, buffer, nullptr);
    const std::vector<int> passed(static_cast<std::size_t>(descriptors), listening.get());
    send_packet(caller.get(), answer, passed);
  });
  const Code code = connect_code(const_cast<ShmHarness&>(harness).client(), here(port));
  server.join();
  return code;
}

TEST(ShmStrangers, AnAnswerThatMakesNoSenseIsATypedError) {
  const ShmHarness harness;
  const std::size_t before = count_descriptors();
  WrongVersion other{.header = {.kind = PacketKind::kWrongVersion}};
  other.header.version = kVersion + 7;
  EXPECT_EQ(code_after(harness, packet_of(other), 0), Code::kVersionMismatch);
  EXPECT_EQ(code_after(harness, as_bytes("what is this"), 0), Code::kCorrupt);
  Accept accept{.receive_bytes = 64, .to_server_bytes = 32768, .to_client_bytes = 32768};
  EXPECT_EQ(code_after(harness, packet_of(accept), 0), Code::kCorrupt);
  EXPECT_EQ(code_after(harness, packet_of(accept), 3), Code::kCorrupt) << "sockets, no memory";
  EXPECT_EQ(code_after(harness, packet_of(accept), 200), Code::kCorrupt);
  accept.to_server_bytes = 12345;
  EXPECT_EQ(code_after(harness, packet_of(accept), 3), Code::kCorrupt);
  Reject reject{.length = 100'000};
  EXPECT_EQ(code_after(harness, packet_of(reject), 0), Code::kCorrupt);
  EXPECT_EQ(count_descriptors(), before);
}

TEST(ShmStrangers, RandomBytesAndDescriptorsAreDroppedWithoutATrace) {
  ShmHarness harness;
  const auto listener = need(harness.server().listen(":0"));
  const std::uint64_t seed = random_from_kernel();
  SCOPED_TRACE(seed);
  Random random(seed);
  const SteadyClock clock;
  const std::size_t before = count_descriptors();
  const Nanos patience = clock.now() + contract::kPatienceMs * kNanosPerMs;
  const auto until_closed = [&] {  // by a thread of the transport
    while (count_descriptors() > before && clock.now() < patience)
      std::this_thread::yield();
  };
  for (int round = 0; round < 300; ++round) {
    Hello hello{.receive_bytes = 4096};
    std::vector<std::byte> bytes(random.below(200) + 1);
    if (bytes.size() == sizeof hello) bytes.pop_back();  // a greeting's data may be random
    for (std::byte& one : bytes)
      one = static_cast<std::byte>(random());
    // Half of them look like ours at the beginning.
    if (random.below(2) == 0) {
      std::memcpy(bytes.data(), &hello, std::min(bytes.size(), random.below(sizeof hello)));
    }
    const Fd caller = call(harness.directory(), listener->port());
    const std::vector<int> passed(random.below(5), caller.get());
    ASSERT_EQ(send_packet(caller.get(), bytes, passed), 0);
    EXPECT_EQ(need(listener->next(Deadline::after_ms(clock, 0))), nullptr) << round;
  }
  until_closed();
  EXPECT_EQ(count_descriptors(), before);
  expect_served(harness, *listener);
}

TEST(ShmStrangers, AGreetingOutsideTheLimitsIsRefused) {
  ShmHarness harness;
  const auto listener = need(harness.server().listen(":0"));
  const SteadyClock clock;
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{kMaxReceiveBytes} + 1, ~std::uint64_t{0}}) {
    const RawClient client(harness.directory(), listener->port(), bytes);
    EXPECT_EQ(need(listener->next(Deadline::after_ms(clock, 0))), nullptr) << bytes;
  }
}

}  // namespace
}  // namespace rkv::rdma::shm
