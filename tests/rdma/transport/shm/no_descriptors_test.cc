// Descriptors that are passed to a process that has none left: it says so, and blames nobody.
//
// Not under the sanitizers: UBSan looks whether an object is one by way of a pipe, and takes it for
// none where there are no descriptors left.
#ifndef __SANITIZE_ADDRESS__
#include <sys/mman.h>
#include <sys/resource.h>

#include <mutex>
#include <optional>
#include <thread>

#include "common/log.h"
#include "rdma/transport/shm/peer_regions.h"
#include "rdma/transport/shm/shared.h"
#include "tests/rdma/transport/shm/harness.h"

namespace rkv::rdma::shm {
namespace {

using contract::need;

// This process gets no further descriptor while this lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

bool says_it(const char* text) {
  return text != nullptr && std::string_view(text).find("ulimit -n") != std::string_view::npos;
}

// A server that answers each caller with an accept, by hand.
TEST(ShmNoDescriptors, AClientThatConnectsSaysSo) {
  constexpr std::uint16_t kPort = 7471;
  const TemporaryDirectory directory;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = socket_path(directory.path(), kPort);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const Fd listening(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listening.get(), 1), 0);
  const Fd memory(memfd_create("rkv-test", MFD_CLOEXEC));

  std::optional<NoDescriptors> none;
  Fd caller;
  std::thread server([&] {
    caller = Fd(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::array<std::byte, kMaxPacketBytes> hello;
    EXPECT_EQ(await_packet(caller, hello, nullptr).result, Packet::Result::kPacket);
    none.emplace();
    const int passed[] = {memory.get(), memory.get(), memory.get()};
    EXPECT_EQ(send_packet(caller.get(), packet_of(Accept{}), passed), 0);
  });
  const auto transport = need(open_shm({.directory = directory.path()}));
  const auto queue = need(transport->create_queue({}));
  const SteadyClock clock;
  const auto connected =
      transport->connect(*queue, {}, "127.0.0.1:" + std::to_string(kPort), {},
                         Deadline::after_ms(clock, contract::kPatienceMs), nullptr);
  server.join();
  none.reset();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, Code::kBusy) << to_string(connected.error());
  EXPECT_TRUE(says_it(connected.error().text)) << to_string(connected.error());
}

TEST(ShmNoDescriptors, AConnectedClientSaysSoWhenTheServerHasMoreMemory) {
  static std::mutex mutex;
  static std::string told;
  set_log_sink([](LogLevel, std::string_view text) {
    const std::scoped_lock lock(mutex);
    told += text;
  });
  ShmHarness harness;
  contract::Link link(harness, {});
  const auto later = need(harness.server().allocate(4096, Access::kRemoteRead));
  {
    const NoDescriptors none;
    link.post(
        Operation::read(link.client.piece(0, 8), 0, later->address(), later->remote_key(), 1));
    EXPECT_TRUE(link.client.until_seen(1));
  }
  set_log_sink({});
  EXPECT_EQ(link.client.seen[0].status, Completion::Status::kFailed);
  const std::scoped_lock lock(mutex);
  EXPECT_TRUE(says_it(told.c_str())) << told;
}

TEST(ShmNoDescriptors, AServerDoesNotBlameItsClient) {
  Shared shared{""};
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Fd client(ends[0]);
  const Fd server(ends[1]);
  const Fd memory(memfd_create("rkv-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  Regions said;
  said.count = 1;
  said.entries[0] = {.address = 0, .length = 4096, .key = 1};
  const int passed[] = {memory.get()};
  ASSERT_EQ(send_packet(client.get(), packet_of(said).first(said.bytes()), passed), 0);
  PeerRegions regions(&shared);
  const NoDescriptors none;
  const char* const why = regions.receive(server.get(), 0);
  EXPECT_TRUE(says_it(why)) << (why != nullptr ? why : "nothing");
}

}  // namespace
}  // namespace rkv::rdma::shm
#endif
