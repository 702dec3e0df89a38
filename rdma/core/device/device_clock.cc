#include "rkv/rdma/device_clock.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "rkv/check.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

// The product of two 64-bit numbers needs 128 bits: 2^64 ticks times 10^6 does not fit in 64.
__extension__ using Wide = unsigned __int128;
constexpr Wide kNanosTimesKhz = 1'000'000;

}  // namespace

Result<TickScale> TickScale::from(std::uint64_t frequency_khz, std::uint64_t mask) {
  if (frequency_khz == 0 || mask == 0) {
    return fail_call(Code::kUnsupported, "ibv_query_device_ex", 0,
                     "the device has no clock for completions: its frequency or its mask is 0");
  }
  if ((mask & (mask + 1)) != 0) {
    return fail_call(Code::kInvalidArgument, "ibv_query_device_ex", 0,
                     "the mask of completion time stamps is not 2^n - 1");
  }
  return TickScale(frequency_khz, mask);
}

Nanos TickScale::ns(std::uint64_t ticks) const {
  const Wide rounded = (Wide{ticks} * kNanosTimesKhz + khz_ / 2) / khz_;
  constexpr auto kMost = std::numeric_limits<Nanos>::max();
  return rounded > Wide{static_cast<std::uint64_t>(kMost)} ? kMost : static_cast<Nanos>(rounded);
}

Nanos TickScale::signed_ns(std::int64_t ticks) const {
  return ticks >= 0 ? ns(static_cast<std::uint64_t>(ticks))
                    : -ns(std::uint64_t{0} - static_cast<std::uint64_t>(ticks));
}

std::uint64_t TickScale::ticks(Nanos ns) const {
  RKV_CHECK(ns >= 0, "ticks() needs a time that is not negative");
  return static_cast<std::uint64_t>(Wide{static_cast<std::uint64_t>(ns)} * khz_ / kNanosTimesKhz);
}

Result<ClockCorrelation> ClockCorrelation::from(const TickScale& scale,
                                                std::span<const ClockSample> samples) {
  if (samples.empty() ||
      std::ranges::any_of(samples, [](const ClockSample& s) { return s.after < s.before; })) {
    return fail(
        Code::kInvalidArgument,
        "a clock correlation needs at least one sample, and no sample may end before it begins");
  }
  return ClockCorrelation(scale, *std::ranges::min_element(samples, {}, &ClockSample::width));
}

Nanos ClockCorrelation::host_ns(std::uint64_t ticks) const {
  const Nanos nominal = scale_.signed_ns(scale_.nearest(anchor_.ticks, ticks));
  // Only the small difference uses floating point, so its 53-bit precision loses nothing.
  const auto correction = std::llround(static_cast<double>(nominal) * (rate_ - 1));
  return anchor_.middle() + nominal + correction;
}

void ClockCorrelation::follow(const ClockSample& newer) {
  const Nanos host = newer.middle() - anchor_.middle();
  const std::uint64_t ticks = scale_.ticks_between(anchor_.ticks, newer.ticks);
  const Nanos device = scale_.ns(ticks);
  if (host <= 0 || device <= 0) return;
  // The position of a reading within its sample is unknown, so the rate's error is up to blur /
  // host.
  constexpr Nanos kHostPerBlur = 100'000;
  const Nanos blur = anchor_.width() / 2 + newer.width() / 2;
  if (blur <= host / kHostPerBlur) {
    rate_ = static_cast<double>(host) / static_cast<double>(device);
  } else if (ticks < scale_.mask() / 8) {
    return;  // the older anchor will give a better rate later, and is not too old yet
  }
  anchor_ = newer;
}

Result<DeviceClock> DeviceClock::open(const Device& device) {
  ibv_device_attr_ex raw{};
  RKV_RETURN_IF_ERROR(
      from_errno("ibv_query_device_ex", ibv_query_device_ex(device.raw(), nullptr, &raw)));
  RKV_ASSIGN_OR_RETURN(const TickScale scale,
                       TickScale::from(raw.hca_core_clock, raw.completion_timestamp_mask));
  DeviceClock out(device.share(), scale);
  const Result<std::uint64_t> now = out.read();
  if (!now) return std::unexpected(now.error());
  return out;
}

Result<std::uint64_t> DeviceClock::read() const {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  RKV_RETURN_IF_ERROR(
      from_errno("ibv_query_rt_values_ex", ibv_query_rt_values_ex(device_.raw(), &values)));
  if ((values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0) {
    return fail_call(Code::kUnsupported, "ibv_query_rt_values_ex", 0,
                     "the device does not report its clock");
  }
  // Drivers put all ticks into tv_nsec, which is wide enough for them.
  return static_cast<std::uint64_t>(values.raw_clock.tv_nsec) & scale_.mask();
}

Result<ClockSample> DeviceClock::sample() const {
  const SteadyClock host;
  ClockSample out;
  out.before = host.now();
  RKV_ASSIGN_OR_RETURN(out.ticks, read());
  out.after = host.now();
  return out;
}

Result<ClockCorrelation> DeviceClock::correlate(std::size_t samples) const {
  std::vector<ClockSample> taken(std::max<std::size_t>(samples, 1));
  for (ClockSample& one : taken) {
    RKV_ASSIGN_OR_RETURN(one, sample());
  }
  return ClockCorrelation::from(scale_, taken);
}

}  // namespace rkv::rdma
