// Explains the route of a queue pair that is connected without a connection manager, and what to
// check when it does not work.
//
//   const auto qp = std::move(prepared).handshake(peer);
//   if (!qp) {
//     RKV_ASSIGN_OR_RETURN(const RouteReport report, prepared.explain_route(peer));
//     std::puts(report.to_string().c_str());
//   }
//
// Most failing RoCE connections fail for one of three reasons: the GID has the wrong type or index,
// UDP port 4791 is filtered, or the network does not carry packets of the MTU. None of them is
// reported before work is posted, which then completes with IBV_WC_RETRY_EXC_ERR.
//
// Thread safety: values. Source: InfiniBand specification A17 (RoCE v2), ibv_query_gid_table(3).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rkv/export.h"
#include "rkv/rdma/address_handle.h"
#include "rkv/rdma/device.h"
#include "rkv/rdma/endpoint.h"
#include "rkv/result.h"

namespace rkv::rdma {

// The connection parameters that follow from two endpoints. handshake() uses only these.
struct Route {
  AddressAttributes address;
  Mtu mtu = Mtu::k1024;  // the smaller of both
  ReadDepths depths{};   // 0 if there are no READs
};
// kInvalidArgument names the faulty field: queue pair numbers above 24 bits, link layers that
// differ, a RoCE peer without GID, an InfiniBand peer with neither LID nor GID.
RKV_EXPORT Result<Route> choose_route(std::uint8_t port, const GidEntry& gid, const Endpoint& self,
                                      const Endpoint& peer);

struct RKV_EXPORT RouteReport {
  std::vector<std::string> decisions;  // choices, with reasons
  std::vector<std::string> problems;   // what will not work, or probably not
  std::vector<std::string> advice;     // what to check if packets do not arrive
  std::string to_string() const;       // everything, one line each
};
// `gids`: the device's GID table, used to suggest a better GID.
RKV_EXPORT RouteReport explain_route(const PortAttributes& port, const GidEntry& gid,
                                     const std::vector<GidEntry>& gids, const Endpoint& self,
                                     const Endpoint& peer);

}  // namespace rkv::rdma
