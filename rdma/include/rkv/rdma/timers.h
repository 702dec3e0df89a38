// Timers of a reliable connection, in the wire's encoding, converted from times by rounding up.
//
//   AckTimeout ack = AckTimeout::at_least(60ms);  // code 14: 67.1 ms
//   RnrTimer rnr = RnrTimer::at_least(600us);     // code 12: 640 us
//   std::optional<AckTimeout> given = AckTimeout::try_at_least(from_a_file);
//
// at_least() takes a constant, and a constant that no code can express does not compile. A time
// that is known only at run time goes through try_at_least(), which is then empty.
//
// Thread safety: values. Source: InfiniBand specification 9.7.5.2.8, tables 45 and 46.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

#include "rkv/check.h"
#include "rkv/clock.h"

namespace rkv::rdma {
namespace detail {

// True if `time` is a number of at most `longest`.
template <class Rep, class Period>
constexpr bool is_at_most(std::chrono::duration<Rep, Period> time,
                          std::chrono::nanoseconds longest) {
  if constexpr (std::is_floating_point_v<Rep>) {
    if (!(time.count() <= std::numeric_limits<Rep>::max())) return false;  // not a number, infinite
  }
  return saturated_nanos(time) <= longest.count();
}

}  // namespace detail

// The time a requester waits for an acknowledgement before it retransmits: 4.096 us * 2^code. The
// device may wait up to four times that. Code 0 means no time-out and is not offered.
class AckTimeout {
 public:
  static constexpr std::uint8_t kMaxCode = 31;
  static constexpr std::chrono::nanoseconds kLongest{8'796'093'022'208};  // code 31: 2 h 26 min

  // REQUIRES: code is 1 to 31. A constant outside that range does not compile.
  static constexpr AckTimeout from_code(std::uint8_t code) {
    RKV_CHECK(code >= 1 && code <= kMaxCode, "the code of an AckTimeout is 1 to 31");
    return AckTimeout(code);
  }
  // For a number from outside the program: empty if the code does not exist.
  static constexpr std::optional<AckTimeout> try_from_code(std::uint8_t code) {
    if (code < 1 || code > kMaxCode) return std::nullopt;
    return AckTimeout(code);
  }
  // The smallest encodable time of at least `time`, a constant of any duration type. Zero or less
  // gives the shortest. REQUIRES: time <= kLongest; else it does not compile.
  template <class Rep, class Period>
  static consteval AckTimeout at_least(std::chrono::duration<Rep, Period> time) {
    const std::optional<AckTimeout> found = try_at_least(time);
    RKV_CHECK(found.has_value(), "the time is longer than an AckTimeout can be");
    return *found;
  }
  // The same for a time from outside the program: empty if it is longer than kLongest.
  template <class Rep, class Period>
  static constexpr std::optional<AckTimeout> try_at_least(std::chrono::duration<Rep, Period> time) {
    if (!detail::is_at_most(time, kLongest)) return std::nullopt;
    std::uint8_t code = 1;
    while (AckTimeout(code).time().count() < saturated_nanos(time))
      ++code;
    return AckTimeout(code);
  }
  constexpr std::uint8_t code() const { return code_; }
  constexpr std::chrono::nanoseconds time() const {
    return std::chrono::nanoseconds(std::int64_t{4096} << code_);
  }
  friend constexpr bool operator==(AckTimeout, AckTimeout) = default;

 private:
  explicit constexpr AckTimeout(std::uint8_t code) : code_(code) {}
  std::uint8_t code_;
};

// The time a sender waits when no receive is posted. The codes are not monotonic: 0 is the longest
// (655.36 ms), 1 the shortest. librdmacm leaves it at 0, so a sender waits 655 ms whenever it finds
// a receive queue empty.
class RnrTimer {
 public:
  static constexpr std::uint8_t kMaxCode = 31;
  static constexpr std::chrono::microseconds kLongest{655'360};  // code 0

  // REQUIRES: code is 0 to 31. A constant outside that range does not compile.
  static constexpr RnrTimer from_code(std::uint8_t code) {
    RKV_CHECK(code <= kMaxCode, "the code of an RnrTimer is 0 to 31");
    return RnrTimer(code);
  }
  // For a number from outside the program: empty if the code does not exist.
  static constexpr std::optional<RnrTimer> try_from_code(std::uint8_t code) {
    if (code > kMaxCode) return std::nullopt;
    return RnrTimer(code);
  }
  // The shortest encodable time of at least `time`, a constant of any duration type. Zero or less
  // gives the shortest. REQUIRES: time <= kLongest; else it does not compile.
  template <class Rep, class Period>
  static consteval RnrTimer at_least(std::chrono::duration<Rep, Period> time) {
    const std::optional<RnrTimer> found = try_at_least(time);
    RKV_CHECK(found.has_value(), "the time is longer than an RnrTimer can be");
    return *found;
  }
  // The same for a time from outside the program: empty if it is longer than kLongest.
  template <class Rep, class Period>
  static constexpr std::optional<RnrTimer> try_at_least(std::chrono::duration<Rep, Period> time) {
    if (!detail::is_at_most(time, kLongest)) return std::nullopt;
    for (unsigned code = 1; code < kMicroseconds.size(); ++code) {
      if (saturated_nanos(RnrTimer(code).time()) >= saturated_nanos(time)) return RnrTimer(code);
    }
    return RnrTimer(0);
  }
  constexpr std::uint8_t code() const { return code_; }
  constexpr std::chrono::microseconds time() const {
    return std::chrono::microseconds(kMicroseconds[code_]);
  }
  friend constexpr bool operator==(RnrTimer, RnrTimer) = default;

 private:
  static constexpr std::array<std::uint32_t, 32> kMicroseconds = {
      655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
      480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
      20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
  explicit constexpr RnrTimer(unsigned code) : code_(static_cast<std::uint8_t>(code)) {}
  std::uint8_t code_;
};

// The defaults of this library for a connection.
inline constexpr AckTimeout kDefaultAckTimeout = AckTimeout::from_code(14);  // 67 ms per attempt
inline constexpr RnrTimer kDefaultRnrTimer = RnrTimer::from_code(12);        // 0.64 ms
// 7 means unlimited on SoftRoCE of Linux 6.1 instead of seven retries, so a peer that has ended
// would never be detected. With the ack time-out above, 6 retries end after about half a second.
inline constexpr std::uint8_t kMaxRetryCount = 6;
// 7 means unlimited. A late receive must not end the connection: the caller's deadlines bound the
// wait.
inline constexpr std::uint8_t kRnrRetryForever = 7;

}  // namespace rkv::rdma
