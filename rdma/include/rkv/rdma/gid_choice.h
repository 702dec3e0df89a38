// Which GID to use, and why: the wrong one connects and then times out, which is what users of RoCE
// trip over most. The choice says what spoke for it and what against each of the others.
//
//   RKV_ASSIGN_OR_RETURN(GidChoice choice, choose_gid(device, 1, {.netdev = "eth2"}));
//   use(choice.chosen);
//   puts(choice.explain().c_str());
//   // GID 3 (192.0.2.7, RoCE v2, eth2) of port 1: RoCE v2, IPv4, on the interface asked for
//   //   not 0 (fe80::1, RoCE v2, eth2): link-local, which no router forwards
//
// Thread safety: values and free functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rkv/export.h"
#include "rkv/rdma/device.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct GidPreferences {
  std::string netdev = {};                                // empty: any interface
  std::optional<std::array<std::uint8_t, 16>> peer = {};  // the peer's GID, if it is known
};

struct RKV_EXPORT GidChoice {
  struct Other {
    GidEntry gid;
    std::string reason;  // why not this one
  };
  GidEntry chosen;
  std::string reason;           // why this one
  std::vector<Other> others;    // of the same port, in the table's order
  std::string explain() const;  // all of it, one line each
};

// In this order: the interface asked for; RoCE v2 before v1; the peer's address family; an address
// that is routed before a link-local one (the other way round for a link-local peer); IPv4 before
// IPv6; more leading bits in common with the peer; the lower index.
// kNoDevice: the port has none, or none on that interface.
RKV_EXPORT Result<GidChoice> choose_gid(std::span<const GidEntry> table, std::uint8_t port,
                                        const GidPreferences& preferences = {});
RKV_EXPORT Result<GidChoice> choose_gid(const Device& device, std::uint8_t port,
                                        const GidPreferences& preferences = {});

}  // namespace rkv::rdma
