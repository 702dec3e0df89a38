// Shared memory: what a peer can do to it, and what happens when there is not enough.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "common/random.h"
#include "tests/rdma/transport/shm/harness.h"

namespace rkv::rdma::shm {
namespace {

using contract::need;

constexpr std::size_t kBytes = std::size_t{3} * 4096;

void* map(int fd, int protection) {
  return mmap(nullptr, kBytes, protection, MAP_SHARED, fd, 0);
}

// A peer holds this descriptor, and may do with it whatever the kernel allows.
void expect_sealed(int fd) {
  EXPECT_EQ(map(fd, PROT_READ | PROT_WRITE), MAP_FAILED) << "a writable mapping";
  void* readable = map(fd, PROT_READ);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_NE(mprotect(readable, kBytes, PROT_READ | PROT_WRITE), 0) << "a mapping made writable";
  munmap(readable, kBytes);
  EXPECT_LT(pwrite(fd, "x", 1, 0), 0) << "a write";
  EXPECT_NE(ftruncate(fd, 0), 0) << "shrinking it: every reader would crash";
  EXPECT_NE(ftruncate(fd, 2 * kBytes), 0) << "growing it";
  EXPECT_NE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0) << "a hole";
  EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0) << "more seals";
}

// ---- how much memory there is

class FakeRoot {
 public:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = directory_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::uint64_t available() const { return available_memory(directory_.path()); }

 private:
  TemporaryDirectory directory_;
};

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(ShmAvailable, IsWhatTheMachineHasWithoutALimit) {
  const FakeRoot root;
  root.write("/proc/meminfo",
             "MemTotal: 900 kB\nMemFree: 10 kB\nMemAvailable:  300 kB\nBuffers: 1 kB\n");
  EXPECT_EQ(root.available(), 300U * 1024);
  root.write("/sys/fs/cgroup/memory.max", "max\n");
  root.write("/sys/fs/cgroup/memory.current", "12345\n");
  EXPECT_EQ(root.available(), 300U * 1024);
}

TEST(ShmAvailable, IsWhatIsLeftOfTheLimitAndNotTheLimit) {
  const FakeRoot root;
  root.write("/proc/meminfo", "MemAvailable: 8388608 kB\n");
  root.write("/sys/fs/cgroup/memory.max", std::to_string(400 * kMiB));
  root.write("/sys/fs/cgroup/memory.current", std::to_string(390 * kMiB));
  EXPECT_EQ(root.available(), 10 * kMiB);
  // Cached files are given up for it; shared memory, which is "file" too, is not.
  root.write(
      "/sys/fs/cgroup/memory.stat",
      "anon 5\nfile 314572800\nshmem 209715200\ninactive_file 73400320\nactive_file 31457280\n");
  EXPECT_EQ(root.available(), 110 * kMiB);
  root.write("/sys/fs/cgroup/memory.current", std::to_string(600 * kMiB));
  EXPECT_EQ(root.available(), 0U);
}

TEST(ShmAvailable, CountsTheLimitsAboveOurOwn) {
  const FakeRoot root;
  root.write("/proc/meminfo", "MemAvailable: 8388608 kB\n");
  root.write("/proc/self/cgroup", "0::/system.slice/kvserver.service\n");
  const std::string slice = "/sys/fs/cgroup/system.slice";
  root.write(slice + "/kvserver.service/memory.max", std::to_string(700 * kMiB));
  root.write(slice + "/kvserver.service/memory.current", std::to_string(100 * kMiB));
  EXPECT_EQ(root.available(), 600 * kMiB);
  root.write(slice + "/memory.max", std::to_string(500 * kMiB));
  root.write(slice + "/memory.current", std::to_string(450 * kMiB));
  EXPECT_EQ(root.available(), 50 * kMiB);
}

// A greeting that claims to take 4 MiB costs a server what its own messages are long.
TEST(ShmAvailable, AHandshakeTakesMemoryByWhatTheServerSends) {
  ShmHarness harness;
  const auto listener = need(harness.server().listen(":0"));
  contract::End server(harness, harness.server());
  RawClient client(harness.directory(), listener->port(), kMaxReceiveBytes);
  const auto incoming = need(listener->next(server.soon()));
  const auto connection =
      need(incoming->accept(*server.queue, {.send_bytes = 132'160}, {}, server.soon()));
  client.finish();
  ASSERT_TRUE(client.connected);
  EXPECT_EQ(client.accept.to_client_bytes, ring_bytes(132'160));
  std::vector<std::byte> longest(132'160);
  const Operation fits = Operation::send(longest, 0, 1);
  EXPECT_EQ(need(connection->post(std::span(&fits, 1))), 1U);
  ASSERT_TRUE(server.until_seen(1));
  EXPECT_TRUE(server.seen[0].ok());
  longest.push_back({});
  const Operation too_long = Operation::send(longest, 0, 2);
  EXPECT_EQ(need(connection->post(std::span(&too_long, 1))), 1U);
  ASSERT_TRUE(server.until_seen(2));
  EXPECT_FALSE(server.seen[1].ok());
}

TEST(ShmSeals, NobodyElseWritesReadableMemoryByAnyDoor) {
  const SharedMemory shared = need(make_shared_memory("test", kBytes, Sealing::kOthersRead));
  expect_sealed(shared.fd.get());
  const std::string door = "/proc/self/fd/" + std::to_string(shared.fd.get());
  const Fd again(open(door.c_str(), O_RDWR | O_CLOEXEC));
  if (again) expect_sealed(again.get());
  shared.memory.data()[0] = std::byte{7};  // its maker still can
  const Mapping seen = need(map_received(shared.fd.get(), kBytes, false));
  EXPECT_EQ(seen.data()[0], std::byte{7});
}

TEST(ShmSeals, SwappableMemoryCanBeWrittenButNotShrunk) {
  const SharedMemory shared = need(make_shared_memory("test", kBytes, Sealing::kOthersWrite));
  const Mapping theirs = need(map_received(shared.fd.get(), kBytes, true));
  theirs.data()[5] = std::byte{9};
  EXPECT_EQ(shared.memory.data()[5], std::byte{9});
  EXPECT_NE(ftruncate(shared.fd.get(), 0), 0);
  EXPECT_NE(ftruncate(shared.fd.get(), 2 * kBytes), 0);
}

// The very descriptors that a client receives for a READ region and for a link.
TEST(ShmSeals, AClientReceivesDescriptorsThatCannotWriteRegions) {
  ShmHarness harness;
  contract::End server(harness, harness.server());
  const auto readable = need(harness.server().allocate(kBytes, Access::kRemoteRead));
  const auto listener = need(harness.server().listen(harness.listen_address()));
  RawClient client(harness.directory(), listener->port());
  const auto connection = accept_on(*listener, server);
  client.finish();
  ASSERT_TRUE(client.connected);
  std::array<std::byte, kMaxPacketBytes> buffer;
  std::vector<Fd> regions;
  const Packet packet = await_packet(client.socket, buffer, &regions);
  ASSERT_EQ(packet.result, Packet::Result::kPacket);
  Regions said;
  std::memcpy(&said, buffer.data(), packet.length);
  ASSERT_EQ(said.count, 1U) << "the region of `server` has atomics, which are not granted";
  EXPECT_EQ(said.entries[0].key, readable->remote_key());
  expect_sealed(regions[0].get());
  for (std::size_t page : {1U, 2U}) {  // the queue's page and the host's
    EXPECT_EQ(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, client.descriptors[page].get(), 0),
        MAP_FAILED);
  }
}

TEST(ShmMemory, TooMuchIsOutOfMemoryAndNoCrash) {
  const auto transport = need(open_shm({}));
  for (const Access access : {Access::kRemoteRead, Access::kRemoteReadAtomic, Access::kLocal}) {
    for (const std::size_t length : {std::size_t{1} << 46, std::size_t{1} << 62, ~std::size_t{0}}) {
      if (access == Access::kLocal && length < std::size_t{1} << 47) continue;  // overcommitted
      const auto region = transport->allocate(length, access);
      ASSERT_FALSE(region) << length;
      EXPECT_EQ(region.error().code, Code::kOutOfMemory) << to_string(region.error());
    }
    const auto nothing = transport->allocate(0, access);
    ASSERT_FALSE(nothing);
    EXPECT_EQ(nothing.error().code, Code::kInvalidArgument);
  }
}

// Whether huge pages have been asked for where a mapping begins: its flag "hg" in the kernel's
// list. Nothing: there is no mapping that begins there.
std::optional<bool> wants_huge_pages(const std::byte* start) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string address = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(start));
  bool found = false;
  for (std::string line; std::getline(smaps, line);) {
    found = found || line.starts_with(address);
    if (found && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return std::nullopt;
}

TEST(ShmMemory, AsksForHugePagesWhereOneFits) {
  constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
  // A kernel that has none refuses the wish.
  const bool kernel_has_them = std::filesystem::exists("/sys/kernel/mm/transparent_hugepage");
  for (const Sealing sealing : {Sealing::kOthersRead, Sealing::kOthersWrite}) {
    const SharedMemory large = need(make_shared_memory("test", 2 * kHugePageBytes, sealing));
    const SharedMemory small = need(make_shared_memory("test", kHugePageBytes - 4096, sealing));
    EXPECT_EQ(wants_huge_pages(large.memory.data()), kernel_has_them);
    EXPECT_EQ(wants_huge_pages(small.memory.data()), false);
    std::ranges::fill(MutableBytes(large.memory.data(), large.memory.size()), std::byte{7});
  }
}

TEST(ShmMemory, ReceivedMemoryMustBeWhatItIsSaidToBe) {
  const SharedMemory shared = need(make_shared_memory("test", kBytes, Sealing::kOthersRead));
  EXPECT_TRUE(map_received(shared.fd.get(), kBytes, false));
  EXPECT_EQ(map_received(shared.fd.get(), kBytes + 1, false).error().code, Code::kCorrupt);
  EXPECT_EQ(map_received(shared.fd.get(), 0, false).error().code, Code::kCorrupt);
  const Fd unsealed(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), kBytes), 0);
  EXPECT_EQ(map_received(unsealed.get(), kBytes, false).error().code, Code::kCorrupt);
  const Fd file(open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(map_received(file.get(), kBytes, false).error().code, Code::kCorrupt);
}

TEST(ShmMemory, CopiesAnyLengthFromAnyPlace) {
  alignas(8) std::array<std::byte, 96> from;
  for (std::size_t i = 0; i < from.size(); ++i)
    from[i] = static_cast<std::byte>(i + 1);
  for (std::size_t offset = 0; offset < 24; ++offset) {
    for (std::size_t length = 0; length < 64; ++length) {
      std::array<std::byte, 80> to{};
      copy_out({to.data() + 1, length}, from.data() + offset);
      EXPECT_EQ(std::memcmp(to.data() + 1, from.data() + offset, length), 0);
      EXPECT_EQ(to[0], std::byte{});
      EXPECT_EQ(to[length + 1], std::byte{}) << "beyond the end: " << offset << ' ' << length;
    }
  }
}

}  // namespace
}  // namespace rkv::rdma::shm
