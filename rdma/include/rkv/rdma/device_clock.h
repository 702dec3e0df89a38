// The device's clock: converts ticks of completion time stamps to nanoseconds and to times of this
// host.
//
//   RKV_ASSIGN_OR_RETURN(DeviceClock clock, DeviceClock::open(device));
//   RKV_ASSIGN_OR_RETURN(ClockCorrelation at, clock.correlate());
//   ... for (auto& c : queue.poll()) ...
//   const Nanos when = at.host_ns(c.timestamp());    // in SteadyClock's time
//   const Nanos took = clock.scale().ns(clock.scale().ticks_between(first, second));
//
// Time stamps are as wide as the device's mask and wrap. Two stamps are comparable if they are less
// than half a round apart; TickScale::round_ns() is the length of a round. SoftRoCE has no clock:
// kUnsupported.
//
// Thread safety: values; several threads may read a DeviceClock.
// Source: ibv_query_rt_values_ex(3), ibv_query_device_ex(3).
#pragma once

#include <cstdint>
#include <span>

#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/device.h"
#include "rkv/result.h"

namespace rkv::rdma {

// The arithmetic of ticks, without a device.
class RKV_EXPORT TickScale {
 public:
  // kUnsupported if either is 0, by which a device reports that it has no clock. kInvalidArgument
  // for a mask that is not 2^n - 1.
  static Result<TickScale> from(std::uint64_t frequency_khz, std::uint64_t mask);

  std::uint64_t frequency_khz() const { return khz_; }
  std::uint64_t mask() const { return mask_; }
  // Ticks from a stamp to a later one, over at most one wrap.
  std::uint64_t ticks_between(std::uint64_t earlier, std::uint64_t later) const {
    return (later - earlier) & mask_;
  }
  // The same if the order is unknown: the difference of at most half a round, negative if `b` was
  // first. Exactly half a round is positive.
  std::int64_t nearest(std::uint64_t a, std::uint64_t b) const {
    const std::uint64_t forward = ticks_between(a, b);
    const std::uint64_t backward = ticks_between(b, a);
    return forward <= backward ? static_cast<std::int64_t>(forward)
                               : -static_cast<std::int64_t>(backward);
  }
  // Rounded to the nearest nanosecond; saturates at the largest value.
  Nanos ns(std::uint64_t ticks) const;
  Nanos signed_ns(std::int64_t ticks) const;
  // Rounded down. REQUIRES: ns >= 0.
  std::uint64_t ticks(Nanos ns) const;
  Nanos round_ns() const { return ns(mask_); }  // length of a whole round

 private:
  TickScale(std::uint64_t khz, std::uint64_t mask) : khz_(khz), mask_(mask) {}
  std::uint64_t khz_;
  std::uint64_t mask_;
};

// A reading of the device's clock between two readings of the host's.
struct ClockSample {
  Nanos before = 0;
  std::uint64_t ticks = 0;
  Nanos after = 0;
  Nanos width() const { return after - before; }
  Nanos middle() const { return before + width() / 2; }
};

// Maps a tick to a time of the host. Its error grows with time, because clocks diverge by some
// microseconds a second. Call follow() regularly, at the latest after a quarter of
// TickScale::round_ns().
class RKV_EXPORT ClockCorrelation {
 public:
  // Uses the narrowest sample. kInvalidArgument: no sample, or a sample that ends before it begins.
  static Result<ClockCorrelation> from(const TickScale& scale,
                                       std::span<const ClockSample> samples);

  // The host time of a stamp between half a round before the sample and half a round after it.
  Nanos host_ns(std::uint64_t ticks) const;
  // The error bound for a stamp taken near the sample: half of the sample's width.
  Nanos uncertainty_ns() const { return (anchor_.width() + 1) / 2; }
  // Switches to a newer sample and measures the device clock's real rate with it. A sample not
  // newer than the last is ignored. If the two samples are too wide for their distance, the rate
  // would be off by more than 10 ppm and is not measured. The call then has no effect until an
  // eighth of a round has passed since the last sample.
  // REQUIRES: less than half a round has passed.
  void follow(const ClockSample& newer);
  // Host nanoseconds per second of the device's nominal clock, minus 10^9; 0 until follow().
  double drift_ppb() const { return (rate_ - 1) * 1e9; }

 private:
  ClockCorrelation(const TickScale& scale, const ClockSample& anchor)
      : scale_(scale), anchor_(anchor) {}
  TickScale scale_;
  ClockSample anchor_;
  double rate_ = 1;  // measured over nominal
};

class RKV_EXPORT DeviceClock {
 public:
  // kUnsupported, naming the verb, if the device has no clock or its time cannot be read.
  static Result<DeviceClock> open(const Device& device);

  const TickScale& scale() const { return scale_; }
  // The current time in ticks. A system call on most devices (ibv_query_rt_values_ex(3)).
  Result<std::uint64_t> read() const;
  Result<ClockSample> sample() const;
  // Correlates by the narrowest of `samples` samples, since an interrupted sample is imprecise.
  Result<ClockCorrelation> correlate(std::size_t samples = 16) const;

 private:
  DeviceClock(Device device, const TickScale& scale) : device_(std::move(device)), scale_(scale) {}
  Device device_;
  TickScale scale_;
};

}  // namespace rkv::rdma
