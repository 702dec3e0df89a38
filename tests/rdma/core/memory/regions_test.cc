// Regions of every kind on a real provider: supported kinds work, others are refused by name.
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "rkv/rdma/read_only_region.h"
#include "rkv/rdma/window.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

ProtectionDomain some_domain() {
  return need(ProtectionDomain::allocate(need(Device::open_first_active())));
}

// READs `from` into the client's memory; returns true if that succeeded.
bool reads(Loopback& loop, const RemoteSpan& from) {
  Batch batch = loop.client.qp->batch();
  batch.read(1, OpFlags::kSignaled, loop.client.memory.local(0, from.length), from);
  need(std::move(batch).submit());
  return loop.client.completion().ok();
}

// Either the call works or the error names the verb.
template <class T>
bool lacks(const Result<T>& result, const char* verb) {
  if (result) return false;
  EXPECT_EQ(result.error().code, Code::kUnsupported) << to_string(result.error());
  EXPECT_STREQ(result.error().call, verb);
  EXPECT_NE(result.error().text, nullptr);
  return true;
}

bool is_soft_roce(const ProtectionDomain& pd) {
  return need(pd.device().attributes()).soft_roce;
}

// Pages of a file that this process may not write.
class MappedFile {
 public:
  explicit MappedFile(std::string_view text) {
    std::FILE* const file = std::tmpfile();
    std::fwrite(text.data(), 1, text.size(), file);
    std::fflush(file);
    bytes_ = {static_cast<const std::byte*>(
                  mmap(nullptr, text.size(), PROT_READ, MAP_PRIVATE, fileno(file), 0)),
              text.size()};
    std::fclose(file);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() { munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }
  Bytes bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

TEST(ReadOnlyRegions, OfAMappedFileAreSentAndReadAndNeverWritten) {
  const MappedFile file("what a file says");
  Loopback loop;
  const ReadOnlyRegion region =
      need(ReadOnlyRegion::attach(loop.pd, file.bytes(), AccessFlags::kRemoteRead));
  ASSERT_TRUE(reads(loop, *region.remote().first(16)));
  EXPECT_EQ(as_text(Bytes(loop.client.memory.bytes()).first(16)), "what a file says");

  need(loop.client.qp->op(1).signaled().write(region.subspan(7, 9), loop.server.memory.remote()));
  ASSERT_TRUE(loop.client.completion().ok());
  EXPECT_EQ(as_text(Bytes(loop.server.memory.bytes()).first(9)), "file says");

  need(loop.client.qp->op(2).signaled().write(loop.client.memory.first(4), region.remote()));
  EXPECT_FALSE(loop.client.completion().ok());
  EXPECT_EQ(as_text(file.bytes()), "what a file says");
}

TEST(ReadOnlyRegions, TakeNoRightToWrite) {
  const auto pd = some_domain();
  const std::array<std::byte, 64> memory{};
  for (const AccessFlags access :
       {AccessFlags::kLocalWrite, AccessFlags::kLocalWrite | AccessFlags::kRemoteWrite,
        AccessFlags::kLocalWrite | AccessFlags::kRemoteAtomic}) {
    EXPECT_EQ(ReadOnlyRegion::attach(pd, memory, access).error().code, Code::kInvalidArgument);
  }
  EXPECT_TRUE(ReadOnlyRegion::attach(pd, memory));
}

TEST(Regions, WhatSoftRoceLacksIsToldByName) {
  const auto pd = some_domain();
  const bool soft = is_soft_roce(pd);
  EXPECT_EQ(
      lacks(MemoryRegion::allocate(pd, 4096, AccessFlags::kLocalWrite | AccessFlags::kOnDemand),
            "ibv_reg_mr"),
      soft);
  if (!soft) return;
  EXPECT_TRUE(
      lacks(MemoryRegion::attach_dmabuf(pd, {.fd = 0, .length = 4096}, AccessFlags::kLocalWrite),
            "ibv_reg_dmabuf_mr"));
  const auto region = need(MemoryRegion::allocate(pd, 4096, AccessFlags::kLocalWrite));
  EXPECT_TRUE(lacks(region.advise(Advice::kPrefetch, region.local()), "ibv_advise_mr"));
}

TEST(Regions, MistakesAreFoundBeforeTheDeviceIsAsked) {
  const auto pd = some_domain();
  const auto refused = [](const auto& result) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Code::kInvalidArgument);
    EXPECT_EQ(result.error().call, nullptr);
    EXPECT_NE(result.error().text, nullptr);
  };
  refused(MemoryRegion::attach_dmabuf(pd, {.length = 0}, AccessFlags::kLocalWrite));
  refused(MemoryRegion::attach_dmabuf(pd, {.length = 64, .address = 1}, AccessFlags::kLocalWrite));
  refused(MemoryRegion::attach_dmabuf(pd, {.length = 64}, AccessFlags::kOnDemand));
}

TEST(Regions, ThatWereMovedAwayAreNotUsable) {
  Loopback loop;
  MemoryRegion now = std::move(loop.server.memory);
  EXPECT_TRUE(now.usable());
  // NOLINTNEXTLINE(bugprone-use-after-move): what this is about
  EXPECT_FALSE(loop.server.memory.usable());
  const auto window = need(Window::allocate(loop.pd, WindowType::kTwo));
  EXPECT_EQ(window.check({.region = &loop.server.memory, .length = 8}).error().code,
            Code::kInvalidArgument);
}

TEST(Regions, EndBeforeTheirHandleDoes) {
  Loopback loop;
  EXPECT_TRUE(reads(loop, *loop.server.memory.remote().first(8)));
  const RemoteSpan old = *loop.server.memory.remote().first(8);
  need(loop.server.memory.deregister());
  EXPECT_FALSE(loop.server.memory.usable());
  EXPECT_EQ(loop.server.memory.size(), 0U);
  EXPECT_FALSE(loop.server.memory.try_subspan(0, 1));
  EXPECT_DEATH(std::ignore = loop.server.memory.rkey(), "has ended");
  EXPECT_FALSE(reads(loop, old));
}

TEST(Regions, CountedFromZeroAreNamedByOffset) {
  Loopback loop;
  auto made =
      MemoryRegion::allocate(loop.pd, 8192, AccessFlags::kRemoteRead | AccessFlags::kZeroBased);
  if (!made) {  // SoftRoCE of Linux 6.12 has none, and no attribute says so
    EXPECT_EQ(made.error().code, Code::kUnsupported) << to_string(made.error());
    return;
  }
  const MemoryRegion region = std::move(*made);
  EXPECT_EQ(region.remote().address, 0U);
  EXPECT_EQ(region.local(100, 8).address(), 100U);
  EXPECT_FALSE(region.local().addressable());
  EXPECT_EQ(region.piece(region.bytes().subspan(100, 8)).address(), 100U);
  store_le<std::uint64_t>(region.bytes().data() + 4096, 4711);
  ASSERT_TRUE(reads(loop, *region.remote().element<std::uint64_t>(512)));
  EXPECT_EQ(loop.client.word(0), 4711U);
}

// Requests free 2 MiB pages from the system for its lifetime. The system may have none.
class SomeHugePages {
 public:
  explicit SomeHugePages(unsigned count) : before_(set(count)) {}
  SomeHugePages(const SomeHugePages&) = delete;
  SomeHugePages& operator=(const SomeHugePages&) = delete;
  ~SomeHugePages() { set_to(before_); }

 private:
  static constexpr const char* kPlace = "/proc/sys/vm/nr_hugepages";
  static unsigned set(unsigned more) {
    unsigned now = 0;
    std::ifstream(kPlace) >> now;
    set_to(now + more);
    return now;
  }
  static void set_to(unsigned count) { std::ofstream(kPlace) << count; }
  unsigned before_;
};

TEST(Regions, OfHugePagesAreReadLikeOthers) {
  Loopback loop;
  const SomeHugePages some(4);
  for (const bool shareable : {false, true}) {
    auto pages = Pages::map(3 << 20, {.size = PageSize::k2MiB, .shareable = shareable});
    ASSERT_TRUE(pages);
    if (is_soft_roce(loop.pd)) {
      EXPECT_EQ(pages->page_bytes(), std::size_t{2} << 20);  // a machine without load has some
    }
    const auto region =
        need(MemoryRegion::attach(loop.pd, pages->bytes(), AccessFlags::kRemoteRead));
    store_le<std::uint64_t>(region.last(8).bytes().data(), 4711);
    ASSERT_TRUE(reads(loop, *region.remote().last(8)));
    EXPECT_EQ(loop.client.word(0), 4711U);
  }
}

// A hint that the kernel may ignore: what is read is the same.
TEST(Regions, OfRelaxedOrderingAreReadLikeOthers) {
  Loopback loop;
  const MemoryRegion region = need(MemoryRegion::allocate(
      loop.pd, 8192,
      AccessFlags::kLocalWrite | AccessFlags::kRemoteRead | AccessFlags::kRelaxedOrdering));
  EXPECT_TRUE(has(region.access(), AccessFlags::kRelaxedOrdering));
  std::memset(region.bytes().data(), 0x5A, region.size());
  std::memset(loop.client.at(0), 0, region.size());
  ASSERT_TRUE(reads(loop, region.remote()));
  EXPECT_EQ(std::memcmp(loop.client.at(0), region.bytes().data(), region.size()), 0);
}

// Lengths are 64 bits wide everywhere. If one were cut to 32 bits, the last mapping would be
// outside the region, or its first bytes would appear instead. Few pages, mapped many times; huge
// pages if available, since a device registers them much faster.
TEST(Regions, OfMoreThanFourGibibytesAreReadAtTheirEnd) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  constexpr std::size_t kPart = std::size_t{64} << 20;
  constexpr std::size_t kParts = 65;
  constexpr std::size_t kLength = kPart * kParts;
  static_assert(kLength > std::size_t{1} << 32);
  Loopback loop;
  const SomeHugePages some(2 * kPart / kHuge);
  const PageOptions options{.size = PageSize::k2MiB, .shareable = true};
  const Pages repeated = need(Pages::map(kPart, options));
  const Pages last = need(Pages::map(kPart, options));
  store_le<std::uint64_t>(repeated.bytes().data(), 1);
  store_le<std::uint64_t>(last.bytes().data(), 2);
  void* const room = mmap(nullptr, kLength + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(room, MAP_FAILED);
  const std::size_t skipped = kHuge - reinterpret_cast<std::uintptr_t>(room) % kHuge;
  const MutableBytes whole(static_cast<std::byte*>(room) + skipped, kLength);
  for (std::size_t part = 0; part < kParts; ++part) {
    ASSERT_NE(mmap(whole.data() + part * kPart, kPart, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_FIXED, part + 1 == kParts ? last.fd() : repeated.fd(), 0),
              MAP_FAILED);
  }
  {
    const auto region = need(MemoryRegion::attach(loop.pd, whole, AccessFlags::kRemoteRead));
    EXPECT_EQ(region.raw()->length, kLength);
    const RemoteSpan remote = RemoteSpan::from_bytes(region.remote().to_bytes());
    ASSERT_TRUE(reads(loop, *remote.subspan(kLength - kPart, 8)));
    EXPECT_EQ(loop.client.word(0), 2U);
    ASSERT_TRUE(reads(loop, *remote.first(8)));
    EXPECT_EQ(loop.client.word(0), 1U);
    EXPECT_EQ(region.last(8).size(), 8U);
    EXPECT_DEATH(std::ignore = region.local().sge(), "2 GiB");
  }
  munmap(room, kLength + kHuge);
}

// In a process that may not lock unlimited memory, like a user's process without root.
[[noreturn]] void register_above_the_limit() {
  __user_cap_header_struct who{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> rights{};
  const rlimit low{.rlim_cur = 65536, .rlim_max = 65536};
  const auto pd = some_domain();
  if (syscall(SYS_capset, &who, rights.data()) != 0 || setrlimit(RLIMIT_MEMLOCK, &low) != 0) {
    std::exit(2);
  }
  if (!MemoryRegion::allocate(pd, 4096, AccessFlags::kLocalWrite)) std::exit(3);
  const LockedMemory now = locked_memory();
  if (now.limit_bytes != 65536 || now.exempt) std::exit(4);
  const auto large = MemoryRegion::allocate(pd, 1 << 20, AccessFlags::kLocalWrite);
  if (large || large.error().code != Code::kOutOfMemory) std::exit(5);
  const std::string text = explain_registration(large.error(), 1 << 20, now);
  const bool numbers = text.find("ulimit -l") != std::string::npos &&
                       text.find("1024 KiB were asked for, 64 KiB may") != std::string::npos;
  std::exit(numbers ? 0 : 6);
}

TEST(Regions, AboveTheLockedMemoryLimitTheErrorHasTheNumbers) {
  EXPECT_EXIT(register_above_the_limit(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace rkv::rdma
