// The device's clock: ticks of completion time stamps as nanoseconds, and as times of this host.
//
//   RKV_ASSIGN_OR_RETURN(DeviceClock clock, DeviceClock::open(device));
//   RKV_ASSIGN_OR_RETURN(ClockCorrelation at, clock.correlate());
//   ... for (auto& c : queue.poll()) ...
//   const Nanos when = at.host_ns(c.timestamp());    // as SteadyClock tells it
//   const Nanos took = clock.scale().ns(clock.scale().ticks_between(first, second));
//
// Time stamps are as wide as the device's mask and wrap: two of them can be compared when less than
// half a round lies between them, and TickScale::round_ns() says how long a round is. SoftRoCE has
// no clock: kUnsupported.
//
// Thread safety: values; DeviceClock may be read by several threads.
// Source: ibv_query_rt_values_ex(3), ibv_query_device_ex(3).
#pragma once

#include <cstdint>
#include <span>

#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/device.h"
#include "rkv/result.h"

namespace rkv::rdma {

// How ticks count: the arithmetic, without a device.
class RKV_EXPORT TickScale {
 public:
  // kUnsupported where either is 0, which is how a device says that it has no clock.
  // kInvalidArgument for a mask that is not 2^n - 1.
  static Result<TickScale> from(std::uint64_t frequency_khz, std::uint64_t mask);

  std::uint64_t frequency_khz() const { return khz_; }
  std::uint64_t mask() const { return mask_; }
  // From one stamp to a later one, over at most one wrap.
  std::uint64_t ticks_between(std::uint64_t earlier, std::uint64_t later) const {
    return (later - earlier) & mask_;
  }
  // The same where it is not known which was earlier: the nearer way round, negative when `b` was
  // first. Half a round is taken as positive.
  std::int64_t nearest(std::uint64_t a, std::uint64_t b) const {
    const std::uint64_t forward = ticks_between(a, b);
    const std::uint64_t backward = ticks_between(b, a);
    return forward <= backward ? static_cast<std::int64_t>(forward)
                               : -static_cast<std::int64_t>(backward);
  }
  // Rounded to the nearest nanosecond; what does not fit becomes the largest that does.
  Nanos ns(std::uint64_t ticks) const;
  Nanos signed_ns(std::int64_t ticks) const;
  // Rounded down. REQUIRES: ns >= 0.
  std::uint64_t ticks(Nanos ns) const;
  Nanos round_ns() const { return ns(mask_); }  // a whole round

 private:
  TickScale(std::uint64_t khz, std::uint64_t mask) : khz_(khz), mask_(mask) {}
  std::uint64_t khz_;
  std::uint64_t mask_;
};

// The device's clock, read between two readings of the host's.
struct ClockSample {
  Nanos before = 0;
  std::uint64_t ticks = 0;
  Nanos after = 0;
  Nanos width() const { return after - before; }
  Nanos middle() const { return before + width() / 2; }
};

// Which time of the host a tick is. It ages: clocks run apart by some microseconds a second; call
// follow() every now and then, at the latest after a quarter of TickScale::round_ns().
class RKV_EXPORT ClockCorrelation {
 public:
  // The narrowest of the samples counts. kInvalidArgument: none, or one that ends before it begins.
  static Result<ClockCorrelation> from(const TickScale& scale,
                                       std::span<const ClockSample> samples);

  // Stamps from half a round before the sample to half a round after it.
  Nanos host_ns(std::uint64_t ticks) const;
  // How far off a stamp taken near the sample may be: half of the sample's width.
  Nanos uncertainty_ns() const { return (anchor_.width() + 1) / 2; }
  // Goes on from a newer sample, and measures with it how fast the device's clock really runs.
  // REQUIRES: less than half a round has passed. A sample not newer than the last is ignored; from
  // one so near to it, for the width of the two, that the rate would be off by more than 10 ppm,
  // the rate is not measured.
  void follow(const ClockSample& newer);
  // Nanoseconds of the host in a second of the device's nominal clock, less 10^9: 0 until follow().
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
  // kUnsupported, naming the verb, where the device tells no clock or cannot be asked for its time.
  static Result<DeviceClock> open(const Device& device);

  const TickScale& scale() const { return scale_; }
  // Now, in ticks. A system call on most devices (ibv_query_rt_values_ex(3)).
  Result<std::uint64_t> read() const;
  Result<ClockSample> sample() const;
  // Of `samples` samples the narrowest, since an interrupted one says little.
  Result<ClockCorrelation> correlate(std::size_t samples = 16) const;

 private:
  DeviceClock(Device device, const TickScale& scale) : device_(std::move(device)), scale_(scale) {}
  Device device_;
  TickScale scale_;
};

}  // namespace rkv::rdma
