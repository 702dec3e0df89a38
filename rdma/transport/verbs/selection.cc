#include "rdma/transport/verbs/selection.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma::verbs {
namespace {

// Returns the device of a local address, or the device that leads to a remote address.
Result<Device> device_of(const std::string& address, int within_ms) {
  const SteadyClock clock;
  const Deadline deadline = Deadline::after_ms(clock, within_ms);
  RKV_ASSIGN_OR_RETURN(const HostPort where, parse_host_port(address));
  RKV_ASSIGN_OR_RETURN(const std::vector<SocketAddress> all, resolve(where, deadline));
  SocketAddress peer = all.front();
  if (peer.is_wildcard()) return Device::of_connection_manager();
  {
    SocketAddress local = peer;
    local.set_port(0);
    RKV_ASSIGN_OR_RETURN(const EventChannel channel, EventChannel::create());
    RKV_ASSIGN_OR_RETURN(CmId id, CmId::create(channel));
    if (id.bind(local) && id.has_device()) return id.device();
  }
  if (peer.port() == 0) peer.set_port(1);
  RKV_ASSIGN_OR_RETURN(const Connector connector, Connector::resolve(peer, {}, deadline));
  return connector.device();
}

Result<Device> choose_device(const VerbsOptions& options) {
  if (!options.device.empty() || options.address.empty()) {
    return Device::of_connection_manager(options.device);
  }
  return device_of(options.address, options.find_ms);
}

Result<GidEntry> choose_gid(const Device& device, std::uint8_t port, int index) {
  if (index < 0) return device.routable_gid(port);
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, device.attributes());
  if (limits.iwarp) {
    return fail(Code::kInvalidArgument,
                "an iWARP device has no GIDs to choose from: name an address instead");
  }
  RKV_ASSIGN_OR_RETURN(const std::vector<GidEntry> gids, device.gid_table());
  const auto found = std::ranges::find_if(gids, [&](const GidEntry& gid) {
    return gid.port == port && std::cmp_equal(gid.index, index);
  });
  if (found == gids.end()) {
    return fail_call(Code::kNoDevice, "ibv_query_gid_table", 0,
                     "the port has no GID at this index: `rdma link` and "
                     "/sys/class/infiniband/DEVICE/ports/PORT/gids show its GIDs");
  }
  return *found;
}

}  // namespace

Result<Selection> select(const VerbsOptions& options) {
  RKV_ASSIGN_OR_RETURN(Device device, choose_device(options));
  std::uint8_t port = options.port;
  if (port == 0) {
    RKV_ASSIGN_OR_RETURN(port, device.first_active_port());
  }
  RKV_ASSIGN_OR_RETURN(GidEntry gid, choose_gid(device, port, options.gid_index));
  return Selection{.device = std::move(device), .port = port, .gid = std::move(gid)};
}

}  // namespace rkv::rdma::verbs
