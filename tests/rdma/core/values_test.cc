// Values that need no device: flags, timers, spans, and the rules that the types enforce.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <limits>
#include <memory>
#include <ratio>
#include <thread>
#include <tuple>
#include <type_traits>

#include "rkv/rdma/connect.h"
#include "rkv/rdma/datagram_service.h"
#include "rkv/rdma/locked.h"

namespace rkv::rdma {
namespace {

// Handles own an object of the device: they can be moved and never copied.
template <class T>
constexpr bool kMoveOnly = std::is_move_constructible_v<T> && !std::is_copy_constructible_v<T> &&
                           !std::is_copy_assignable_v<T>;
static_assert(kMoveOnly<ProtectionDomain> && kMoveOnly<MemoryRegion> && kMoveOnly<QueuePair>);
static_assert(kMoveOnly<CompletionQueue> && kMoveOnly<CompletionChannel>);
static_assert(kMoveOnly<SharedReceiveQueue> && kMoveOnly<EventChannel> && kMoveOnly<CmId>);
static_assert(kMoveOnly<CmEvent> && kMoveOnly<ConnectRequest> && kMoveOnly<CmListener>);
static_assert(kMoveOnly<DatagramId> && kMoveOnly<DatagramRequest> && kMoveOnly<DatagramListener>);
static_assert(kMoveOnly<DatagramResolver> && kMoveOnly<DatagramPeer>);
// Neither kind of id converts to the other.
static_assert(!std::is_constructible_v<CmId, DatagramId> &&
              !std::is_constructible_v<DatagramId, CmId>);
// A batch belongs to the scope that opened it.
static_assert(!std::is_move_constructible_v<Batch> && !std::is_copy_constructible_v<Batch>);
// Submitting needs an rvalue, so that the end of a batch is visible in the code.
template <class T>
concept SubmitsAsLvalue = requires(T& batch) { batch.submit(); };
static_assert(!SubmitsAsLvalue<Batch>);
// An SGE cannot be constructed from bare bytes, nor flags from numbers or from other flags.
static_assert(!std::is_constructible_v<RegisteredSpan, MutableBytes>);
static_assert(!std::is_constructible_v<RegisteredSpan, MutableBytes, std::uint32_t>);
static_assert(!std::is_convertible_v<int, AccessFlags> && !std::is_convertible_v<int, OpFlags>);
template <class A, class B>
concept Combines = requires(A a, B b) { a | b; };
static_assert(Combines<AccessFlags, AccessFlags> && !Combines<AccessFlags, OpFlags>);

// A value under a lock cannot be moved away.
static_assert(!std::is_move_constructible_v<Locked<QueuePair>>);

TEST(LockedValues, AreReachedByOneThreadAtATimeAndComeOutAgain) {
  constexpr int kTimes = 20'000;
  Locked<std::unique_ptr<int>> count(std::make_unique<int>(0));
  const auto work = [&] {
    for (int i = 0; i < kTimes; ++i)
      count.with([](std::unique_ptr<int>& of) { ++*of; });
  };
  std::thread other(work);
  work();
  other.join();
  const auto& same = count;
  EXPECT_EQ(same.with([](const std::unique_ptr<int>& of) { return *of; }), 2 * kTimes);
  EXPECT_EQ(*std::move(count).take(), 2 * kTimes);
}

TEST(AccessFlags, RemoteStoresNeedLocalWrite) {
  using enum AccessFlags;
  EXPECT_TRUE(is_registrable(kNone));
  EXPECT_TRUE(is_registrable(kRemoteRead));
  EXPECT_FALSE(is_registrable(kRemoteWrite));
  EXPECT_FALSE(is_registrable(kRemoteAtomic | kRemoteRead));
  EXPECT_TRUE(is_registrable(kRemoteAtomic | kLocalWrite));
  EXPECT_TRUE(has(kRemoteRead | kLocalWrite, kLocalWrite));
  EXPECT_FALSE(has(kRemoteRead, kRemoteRead | kLocalWrite));
}

TEST(AckTimeout, RoundsUpAtEveryStep) {
  using namespace std::chrono_literals;
  for (std::uint8_t code = 1; code <= 31; ++code) {
    const AckTimeout exact = AckTimeout::from_code(code);
    EXPECT_EQ(exact.time().count(), std::int64_t{4096} << code);
    EXPECT_EQ(AckTimeout::try_at_least(exact.time()), exact);
    EXPECT_EQ(AckTimeout::try_at_least(exact.time() - 1ns), exact);
    const auto next = AckTimeout::try_at_least(exact.time() + 1ns);
    if (code < 31) {
      EXPECT_EQ(next, AckTimeout::from_code(code + 1));
      // Less than a nanosecond more, in a type that can say it.
      using Picoseconds = std::chrono::duration<std::int64_t, std::pico>;
      EXPECT_EQ(AckTimeout::try_at_least(Picoseconds(exact.time()) + Picoseconds(1)),
                AckTimeout::from_code(code + 1));
    } else {
      EXPECT_FALSE(next);
    }
  }
  EXPECT_EQ(AckTimeout::try_at_least(0s)->code(), 1);  // code 0 means unlimited
  EXPECT_EQ(AckTimeout::try_at_least(-1h)->code(), 1);
  static_assert(AckTimeout::at_least(60ms).code() == 14);
  static_assert(AckTimeout::at_least(AckTimeout::kLongest).code() == 31);
}

template <class Timer>
void expect_refusals_of_what_it_cannot_say() {
  EXPECT_TRUE(Timer::try_at_least(Timer::kLongest));
  EXPECT_FALSE(Timer::try_at_least(Timer::kLongest + std::chrono::nanoseconds(1)));
  EXPECT_FALSE(Timer::try_at_least(std::chrono::hours(3)));
  EXPECT_FALSE(Timer::try_at_least(std::chrono::hours::max()));
  using Seconds = std::chrono::duration<double>;
  EXPECT_TRUE(Timer::try_at_least(Seconds(Timer::kLongest)));
  EXPECT_FALSE(Timer::try_at_least(Seconds(1e30)));
  EXPECT_FALSE(Timer::try_at_least(Seconds(std::numeric_limits<double>::infinity())));
  EXPECT_FALSE(Timer::try_at_least(Seconds(std::numeric_limits<double>::quiet_NaN())));
}
TEST(AckTimeout, RefusesATimeAboveItsLongest) {
  expect_refusals_of_what_it_cannot_say<AckTimeout>();
}
TEST(RnrTimer, RefusesATimeAboveItsLongest) {
  expect_refusals_of_what_it_cannot_say<RnrTimer>();
}

TEST(AckTimeout, HasNoOtherCodesThanTheWire) {
  for (const int code : {0, 32, 200, 255}) {
    const auto number = static_cast<std::uint8_t>(code);
    EXPECT_FALSE(AckTimeout::try_from_code(number)) << code;
    EXPECT_DEATH(std::ignore = AckTimeout::from_code(number), "AckTimeout is 1 to 31");
  }
  EXPECT_EQ(AckTimeout::try_from_code(31), AckTimeout::from_code(31));
}

TEST(RnrTimer, HasNoOtherCodesThanTheWire) {
  for (const int code : {32, 64, 255}) {
    const auto number = static_cast<std::uint8_t>(code);
    EXPECT_FALSE(RnrTimer::try_from_code(number)) << code;
    EXPECT_DEATH(std::ignore = RnrTimer::from_code(number), "RnrTimer is 0 to 31");
  }
  EXPECT_EQ(RnrTimer::try_from_code(0), RnrTimer::from_code(0));
}

TEST(RnrTimer, RoundsUpAtEveryStepAndKnowsThatZeroIsTheLongest) {
  using namespace std::chrono_literals;
  for (std::uint8_t code = 0; code < 32; ++code) {
    const RnrTimer exact = RnrTimer::from_code(code);
    EXPECT_EQ(RnrTimer::try_at_least(exact.time()), exact);
    EXPECT_EQ(RnrTimer::try_at_least(exact.time() - 1ns), exact);
    if (code > 1) {
      const RnrTimer shorter = RnrTimer::from_code(code - 1);
      EXPECT_LT(shorter.time(), exact.time());
      EXPECT_EQ(RnrTimer::try_at_least(shorter.time() + 1ns), exact);
    }
    if (code > 0) {
      EXPECT_LT(exact.time(), RnrTimer::from_code(0).time());
    }
  }
  EXPECT_EQ(RnrTimer::try_at_least(0us)->code(), 1);
  EXPECT_EQ(RnrTimer::try_at_least(-1us)->code(), 1);
  EXPECT_EQ(RnrTimer::try_at_least(491'521us)->code(), 0);
  static_assert(RnrTimer::at_least(600us).code() == 12);
  static_assert(RnrTimer::at_least(RnrTimer::kLongest).code() == 0);
  EXPECT_EQ(kDefaultRnrTimer.time(), 640us);
}

TEST(ReadDepths, ZeroIsTheDevicesMaximumAndNothingExceedsIt) {
  DeviceAttributes device;
  device.max_reads_as_initiator = 128;
  device.max_reads_as_responder = 16;
  EXPECT_EQ(read_depths({}, device).initiator, 128);
  EXPECT_EQ(read_depths({}, device).responder, 16);
  EXPECT_EQ(read_depths({.reads_as_initiator = 4, .reads_as_responder = 32}, device).initiator, 4);
  EXPECT_EQ(read_depths({.reads_as_initiator = 4, .reads_as_responder = 32}, device).responder, 16);
  device.max_reads_as_initiator = 1000;
  EXPECT_EQ(read_depths({}, device).initiator, 254);
}

TEST(RemoteSpan, PiecesStayInside) {
  constexpr RemoteSpan kWhole{.address = 0x1000, .length = 64, .rkey = 7};
  static_assert(kWhole.subspan(0, 64) == kWhole);
  EXPECT_EQ(kWhole.subspan(16, 8), (RemoteSpan{.address = 0x1010, .length = 8, .rkey = 7}));
  EXPECT_TRUE(kWhole.subspan(64, 0));
  EXPECT_FALSE(kWhole.subspan(64, 1));
  EXPECT_FALSE(kWhole.subspan(65, 0));
  EXPECT_FALSE(kWhole.subspan(1, 64));
  EXPECT_FALSE(kWhole.subspan(~std::uint64_t{0}, 2));
  EXPECT_EQ(kWhole.at(16, 8).value(), *kWhole.subspan(16, 8));
  EXPECT_EQ(kWhole.at(60, 8).error().code, Code::kCorrupt);
}

TEST(RemoteSpan, AClaimThatWrapsAroundIsRefused) {
  constexpr RemoteSpan kForged{.address = ~std::uint64_t{0} - 7, .length = ~std::uint64_t{0}};
  EXPECT_FALSE(kForged.subspan(8, 1));
  EXPECT_FALSE(kForged.subspan(0, 16));
  EXPECT_TRUE(kForged.subspan(0, 7));
}

TEST(RemoteSpan, WireFormIsTwentyBytesBigEndian) {
  constexpr RemoteSpan kSpan{
      .address = 0x0102030405060708, .length = 0x1112131415161718, .rkey = 0x21222324};
  const auto bytes = kSpan.to_bytes();
  constexpr std::array<unsigned char, 20> kExpected = {1,    2,    3,    4,    5,    6,    7,
                                                       8,    0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
                                                       0x17, 0x18, 0x21, 0x22, 0x23, 0x24};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(std::to_integer<unsigned>(bytes[i]), kExpected[i]) << i;
  }
  EXPECT_EQ(RemoteSpan::from_bytes(bytes), kSpan);
}

TEST(RegisteredSpan, PiecesStayInside) {
  std::array<std::byte, 64> memory{};
  const RegisteredSpan whole = RegisteredSpan::unchecked(memory, 5);
  const RegisteredSpan piece = whole.subspan(16, 8);
  EXPECT_EQ(piece.sge().addr, reinterpret_cast<std::uint64_t>(memory.data() + 16));
  EXPECT_EQ(piece.sge().length, 8U);
  EXPECT_EQ(piece.sge().lkey, 5U);
  EXPECT_DEATH(std::ignore = whole.subspan(60, 5), "past its end");
  EXPECT_DEATH(std::ignore = whole.subspan(~std::size_t{0}, 2), "past its end");
}

TEST(RegisteredSpan, LengthsAreNotCutTo32Bits) {
  std::byte* const base = nullptr;
  const auto whole = RegisteredSpan::unchecked({base, (std::size_t{1} << 32) + 8}, 5);
  EXPECT_EQ(whole.subspan(std::size_t{1} << 32, 8).size(), 8U);
  EXPECT_DEATH(std::ignore = whole.sge(), "2 GiB");
}

TEST(GidEntry, PrintsAsTheAddressItIs) {
  GidEntry gid;
  gid.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, 1};
  EXPECT_TRUE(gid.is_ipv4());
  EXPECT_EQ(gid.to_string(), "192.0.2.1");
  gid.gid = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  EXPECT_FALSE(gid.is_ipv4());
  EXPECT_EQ(gid.to_string(), "fe80::1");
}

TEST(PrivateData, KeepsACopy) {
  std::array<std::byte, 56> from{};
  from[0] = std::byte{42};
  const PrivateData data{Bytes(from)};
  from[0] = std::byte{0};
  ASSERT_EQ(data.bytes().size(), 56U);
  EXPECT_EQ(data.bytes()[0], std::byte{42});
  EXPECT_TRUE(PrivateData().bytes().empty());
}

}  // namespace
}  // namespace rkv::rdma
