// Why a queue pair that is connected without a connection manager takes the route it takes, and
// what to look at when it does not work.
//
//   const auto qp = std::move(prepared).handshake(peer);
//   if (!qp) std::puts(to_string(qp.error()).c_str());
//   if (!qp) std::puts(need(prepared.explain_route(peer)).to_string().c_str());
//
// Most RoCE connections that fail, fail for one of three reasons: the GID is of the wrong kind or
// index, UDP port 4791 is filtered, or the network carries less than the MTU. None of them shows
// before work is posted; then it ends with IBV_WC_RETRY_EXC_ERR.
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

// What two endpoints come to. handshake() uses this and nothing else.
struct Route {
  AddressAttributes address;
  Mtu mtu = Mtu::k1024;  // the smaller of both
  ReadDepths depths{};   // ours as initiator, the peer's towards us; 0 where there are no READs
};
// kInvalidArgument names the field that is wrong: queue pair numbers above 24 bits, link layers
// that differ, a peer on RoCE without GID, one on InfiniBand with neither LID nor GID.
RKV_EXPORT Result<Route> choose_route(std::uint8_t port, const GidEntry& gid, const Endpoint& self,
                                      const Endpoint& peer);

struct RKV_EXPORT RouteReport {
  std::vector<std::string> decisions;  // what was chosen, and why
  std::vector<std::string> problems;   // what will not work, or probably not
  std::vector<std::string> advice;     // what to look at when packets do not arrive
  std::string to_string() const;       // all of it, a line each
};
// `gids`: all of the device's, to name a better one.
RKV_EXPORT RouteReport explain_route(const PortAttributes& port, const GidEntry& gid,
                                     const std::vector<GidEntry>& gids, const Endpoint& self,
                                     const Endpoint& peer);

}  // namespace rkv::rdma
