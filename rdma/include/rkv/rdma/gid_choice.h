// Choosing a GID, with reasons. With a wrong GID a connection is established and its work then
// times out, which is the most common problem of RoCE users. The result explains the choice and the
// rejection of each other GID.
//
//   RKV_ASSIGN_OR_RETURN(GidChoice choice, choose_gid(device, 1, {.netdev = "eth2"}));
//   use(choice.chosen);
//   puts(choice.explain().c_str());
//   // GID 3 (192.0.2.7, RoCE v2, eth2) of port 1: RoCE v2, IPv4, on the requested interface
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
  std::optional<std::array<std::uint8_t, 16>> peer = {};  // the peer's GID, if known
};

struct RKV_EXPORT GidChoice {
  struct Other {
    GidEntry gid;
    std::string reason;  // why it was not chosen
  };
  GidEntry chosen;
  std::string reason;           // why it was chosen
  std::vector<Other> others;    // other GIDs of the port, in table order
  std::string explain() const;  // the choice and the others, one line each
};

// Criteria in this order: the requested interface; RoCE v2 before v1; the peer's address family; a
// routed address before a link-local one (reversed for a link-local peer); IPv4 before IPv6; more
// leading bits in common with the peer; the lower index. kNoDevice: the port has no GID, or none on
// that interface.
RKV_EXPORT Result<GidChoice> choose_gid(std::span<const GidEntry> table, std::uint8_t port,
                                        const GidPreferences& preferences = {});
RKV_EXPORT Result<GidChoice> choose_gid(const Device& device, std::uint8_t port,
                                        const GidPreferences& preferences = {});

}  // namespace rkv::rdma
