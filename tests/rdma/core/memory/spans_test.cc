// Spans of local and remote memory: bounds, the operations shared by all kinds, typed projections.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>

#include "rkv/rdma/lease.h"

namespace rkv::rdma {
namespace {

constexpr std::uint64_t kEnd = ~std::uint64_t{0};

// Every kind of local memory has the same functions for sub-spans.
template <class T>
concept CutsLikeTheOthers = requires(const T& memory, Bytes inside) {
  { memory.subspan(1, 2) } -> std::same_as<RegisteredSpan>;
  { memory.first(1) } -> std::same_as<RegisteredSpan>;
  { memory.last(1) } -> std::same_as<RegisteredSpan>;
  { memory.template element<int>(1) } -> std::same_as<RegisteredSpan>;
  { memory.piece(inside) } -> std::same_as<RegisteredSpan>;
  { memory.try_subspan(1, 2) } -> std::same_as<std::optional<RegisteredSpan>>;
  { memory.try_first(1) } -> std::same_as<std::optional<RegisteredSpan>>;
  { memory.try_last(1) } -> std::same_as<std::optional<RegisteredSpan>>;
  { memory.template try_element<int>(1) } -> std::same_as<std::optional<RegisteredSpan>>;
  { memory.try_piece(inside) } -> std::same_as<std::optional<RegisteredSpan>>;
};
static_assert(CutsLikeTheOthers<RegisteredSpan> && CutsLikeTheOthers<MemoryRegion>);

// Handles can be moved, and never copied.
template <class T>
constexpr bool kMoveOnly = std::is_move_constructible_v<T> && !std::is_copy_constructible_v<T> &&
                           !std::is_copy_assignable_v<T>;
static_assert(kMoveOnly<Pages>);
static_assert(kMoveOnly<Window> && kMoveOnly<Lease> && kMoveOnly<Lessor>);

TEST(RegisteredSpan, IsCutInEveryWordOrAborts) {
  std::array<std::byte, 64> memory{};
  const RegisteredSpan whole = RegisteredSpan::unchecked(memory, 5);
  EXPECT_EQ(whole.last(8).bytes().data(), memory.data() + 56);
  EXPECT_EQ(whole.element<std::uint64_t>(7).bytes().data(), memory.data() + 56);
  EXPECT_EQ(whole.piece(Bytes(memory).subspan(3, 4)).address(),
            reinterpret_cast<std::uint64_t>(memory.data() + 3));
  EXPECT_DEATH(std::ignore = whole.last(65), "past its end");
  EXPECT_DEATH(std::ignore = whole.element<std::uint64_t>(8), "past its end");
  EXPECT_DEATH(std::ignore = whole.piece({memory.data() + 60, 5}), "outside");
  EXPECT_FALSE(whole.try_subspan(60, 5));
  EXPECT_FALSE(whole.try_first(65));
  EXPECT_FALSE(whole.try_last(65));
  EXPECT_FALSE(whole.try_element<std::uint64_t>(8));
  EXPECT_FALSE(whole.try_element<std::uint64_t>(kEnd / 8 + 2));  // would be 16 bytes in if it
                                                                 // wrapped
  EXPECT_FALSE(whole.try_piece({memory.data() - 1, 2}));
  EXPECT_TRUE(whole.try_piece({memory.data() + 64, 0}));
}

TEST(RegisteredSpan, OfTheDeviceAloneHasNoBytes) {
  const RegisteredSpan counted = RegisteredSpan::device_only(0x100, 64, 9);
  EXPECT_EQ(counted.subspan(8, 8).sge().addr, 0x108U);
  EXPECT_FALSE(counted.subspan(8, 8).addressable());
  EXPECT_DEATH(std::ignore = counted.bytes(), "only the device");
  // Regions may have addresses from 0.
  EXPECT_EQ(RegisteredSpan::device_only(0, 64, 9).subspan(8, 8).sge().addr, 8U);
  EXPECT_FALSE(counted.try_piece({reinterpret_cast<const std::byte*>(0x108), 4}));
}

TEST(RemoteSpan, IsCutInTheSameWordsWithoutAborting) {
  constexpr RemoteSpan kWhole{.address = 0x1000, .length = 64, .rkey = 7};
  static_assert(kWhole.first(8) == kWhole.subspan(0, 8));
  static_assert(kWhole.last(8) == kWhole.subspan(56, 8));
  static_assert(kWhole.element<std::uint64_t>(7) == kWhole.last(8));
  static_assert(!kWhole.last(65) && !kWhole.first(65) && !kWhole.element<std::uint64_t>(8));
  static_assert(!kWhole.element<std::uint64_t>(kEnd / 8 + 2));
}

// Numbers near the limits, where arithmetic wraps, are as frequent as all others together.
std::uint64_t some_number(std::mt19937_64& random) {
  const std::uint64_t any = random();
  switch (any % 4) {
    case 0:
      return random();
    case 1:
      return kEnd - random() % 200;
    case 2:
      return random() % 200;
    default:
      return (std::uint64_t{1} << random() % 64) - random() % 3;
  }
}

// The expected sub-span, computed in arithmetic too wide to wrap.
__extension__ using Wide = unsigned __int128;
bool contains(const RemoteSpan& whole, const RemoteSpan& piece) {
  return piece.address >= whole.address &&
         Wide{piece.address} + piece.length <= Wide{whole.address} + whole.length &&
         Wide{piece.address} + piece.length <= Wide{kEnd} && piece.rkey == whole.rkey;
}

TEST(RemoteSpan, WhateverAPeerSendsNothingReachesOutsideItsClaim) {
  const std::uint64_t first = std::random_device()();
  std::mt19937_64 random(first);
  SCOPED_TRACE("seed " + std::to_string(first));
  std::size_t given = 0;
  for (int round = 0; round < 200'000; ++round) {
    RemoteSpan claim{.address = some_number(random),
                     .length = some_number(random),
                     .rkey = static_cast<std::uint32_t>(random())};
    claim = RemoteSpan::from_bytes(claim.to_bytes());
    const std::uint64_t a = some_number(random);
    const std::uint64_t b = some_number(random);
    const auto check = [&](const std::optional<RemoteSpan>& piece, std::uint64_t length) {
      if (!piece) return;
      ++given;
      ASSERT_TRUE(contains(claim, *piece)) << claim.address << " " << claim.length << " " << a;
      ASSERT_EQ(piece->length, length);
    };
    check(claim.subspan(a, b), b);
    check(claim.first(b), b);
    check(claim.last(b), b);
    check(claim.element<std::uint64_t>(a), sizeof(std::uint64_t));
    // A range within the bounds must be accepted: an implementation that refuses everything fails
    // here.
    if (Wide{claim.address} + claim.length <= Wide{kEnd} && Wide{a} + b <= Wide{claim.length}) {
      ASSERT_TRUE(claim.subspan(a, b));
    }
  }
  EXPECT_GT(given, 1000U);
}

// The check of the test above can fail.
TEST(RemoteSpan, TheJudgeOfPiecesSeesWhatReachesOutside) {
  const RemoteSpan whole{.address = 100, .length = 50};
  EXPECT_FALSE(contains(whole, {.address = 99, .length = 1}));
  EXPECT_FALSE(contains(whole, {.address = 149, .length = 2}));
  EXPECT_FALSE(contains(whole, {.address = 100, .length = kEnd}));
  EXPECT_TRUE(contains(whole, {.address = 149, .length = 1}));
}

TEST(Registration, ErrorsAboutLockedMemoryHaveTheNumbers) {
  const Error error{.code = Code::kOutOfMemory, .sys_errno = ENOMEM, .call = "ibv_reg_mr"};
  const LockedMemory limited{.limit_bytes = 65536, .used_bytes = 4096};
  const std::string text = explain_registration(error, 1 << 20, limited);
  EXPECT_NE(text.find("1024 KiB were asked for, 64 KiB may be locked, 4 KiB"), std::string::npos)
      << text;
  const LockedMemory free{.limit_bytes = 65536, .exempt = true};
  EXPECT_EQ(explain_registration(error, 1 << 20, free), to_string(error));
  EXPECT_NE(locked_memory().limit_bytes, 0U);
}

// The page size of the mapping that holds this byte, by the kernel's list; 0: there is none.
std::size_t page_bytes_of_mapping(const std::byte* byte) {
  const auto at = reinterpret_cast<std::uintptr_t>(byte);
  std::ifstream smaps("/proc/self/smaps");
  bool found = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) found = begin <= at && at < end;
    constexpr std::string_view kName = "KernelPageSize:";
    if (found && line.starts_with(kName)) return std::stoul(line.substr(kName.size())) * 1024;
  }
  return 0;
}

TEST(Pages, AreZeroedAndSayWhatTheyAre) {
  for (const PageSize size : {PageSize::kSmall, PageSize::k2MiB, PageSize::k1GiB}) {
    for (const bool shareable : {false, true}) {
      auto pages = Pages::map(10'000, {.size = size, .shareable = shareable});
      ASSERT_TRUE(pages) << to_string(pages.error());
      EXPECT_EQ(pages->size(), 10'000U);
      EXPECT_EQ(pages->page_bytes(), page_bytes_of_mapping(pages->bytes().data()));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages->bytes().data()) % pages->page_bytes(), 0U);
      EXPECT_EQ(pages->fd() >= 0, shareable);
      for (const std::byte one : pages->bytes())
        ASSERT_EQ(one, std::byte{});
      pages->bytes()[9'999] = std::byte{1};
    }
  }
  EXPECT_EQ(Pages::map(0).error().code, Code::kInvalidArgument);
  EXPECT_EQ(Pages::map(~std::size_t{0}).error().code, Code::kOutOfMemory);
  EXPECT_EQ(Pages::map(std::size_t{1} << 62).error().code, Code::kOutOfMemory);
}

TEST(Pages, WithoutFallbackTheSizeIsKept) {
  const auto pages = Pages::map(1, {.size = PageSize::k1GiB, .fall_back = false});
  if (pages) {
    EXPECT_EQ(pages->page_bytes(), std::size_t{1} << 30);
  } else {
    EXPECT_EQ(pages.error().code, Code::kOutOfMemory);
    EXPECT_NE(to_string(pages.error()).find("nr_hugepages"), std::string::npos);
  }
}

TEST(Pages, AreSharedByDescriptor) {
  auto mine = Pages::map(8192, {.shareable = true});
  ASSERT_TRUE(mine);
  auto other = Pages::of_descriptor(mine->fd(), 8192);
  ASSERT_TRUE(other) << to_string(other.error());
  mine->bytes()[8191] = std::byte{42};
  EXPECT_EQ(other->bytes()[8191], std::byte{42});
  EXPECT_NE(other->fd(), mine->fd());
  // An access past the end of a mapped file kills the process, so the range is refused.
  EXPECT_EQ(Pages::of_descriptor(mine->fd(), 8193).error().code, Code::kInvalidArgument);
  EXPECT_EQ(Pages::of_descriptor(mine->fd(), 0).error().code, Code::kInvalidArgument);
  EXPECT_FALSE(Pages::of_descriptor(-1, 1));
  Pages moved = std::move(*mine);
  EXPECT_EQ(mine->fd(), -1);
  *other = std::move(moved);
  EXPECT_EQ(other->bytes()[8191], std::byte{42});
}

}  // namespace
}  // namespace rkv::rdma
