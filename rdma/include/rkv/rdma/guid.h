// Guid: the 64-bit identifier of a device or port, EUI-64, in host byte order.
//
//   const Guid guid = info.guid;
//   guid.to_string()          // "0002:c903:00a1:b2c3"
//   guid.oui()                // 0x0002c9: the manufacturer
//   Guid::parse("0002:c903:00a1:b2c3") == guid
//
// Thread safety: values. Source: ibv_get_device_guid(3); IEEE EUI-64.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rkv/export.h"

namespace rkv::rdma {

class RKV_EXPORT Guid {
 public:
  constexpr Guid() = default;
  constexpr explicit Guid(std::uint64_t host_order) : value_(host_order) {}
  // Parses sixteen hexadecimal digits, with or without a colon after each four; nothing else.
  static std::optional<Guid> parse(std::string_view text);

  constexpr std::uint64_t value() const { return value_; }
  // The organisation that assigned the GUID (IEEE lists them), 24 bits.
  constexpr std::uint32_t oui() const { return static_cast<std::uint32_t>(value_ >> 40); }
  // Whether it was assigned locally, by a driver or an administrator, and not by a manufacturer.
  // InfiniBand writes the bit as EUI-64 does, not inverted as in an IPv6 address.
  constexpr bool is_locally_assigned() const { return (value_ >> 57 & 1) != 0; }
  // Whether it is 0 or all ones, which are not GUIDs.
  constexpr bool is_reserved() const { return value_ == 0 || ~value_ == 0; }
  std::string to_string() const;

  friend constexpr auto operator<=>(const Guid&, const Guid&) = default;

 private:
  std::uint64_t value_ = 0;
};

}  // namespace rkv::rdma
