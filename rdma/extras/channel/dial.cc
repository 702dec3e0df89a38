#include "rkv/rdma/dial.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "rdma/extras/channel/channel_parts.h"

namespace rkv::rdma {
namespace {

Result<std::vector<SocketAddress>> addresses_of(std::string_view text, const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(const HostPort where, parse_host_port(text));
  return resolve(where, deadline);
}

// Creates the queue pair on `pd`, posts the expected receive on it in state INIT, and lets
// `connect` turn it into a connection.
template <class Side, class Connect>
Result<std::unique_ptr<detail::ChannelState>> connect_channel(Side& side,
                                                              const ProtectionDomain& pd,
                                                              const DialOptions& options,
                                                              Connect connect) {
  RKV_ASSIGN_OR_RETURN(detail::ChannelParts parts, detail::make_parts(pd, options.channel));
  auto state = std::make_unique<detail::ChannelState>(
      std::move(parts.events), std::move(parts.queue), std::nullopt, options.channel);
  if (options.expected) {
    RKV_RETURN_IF_ERROR(side.prepare(parts.qp, options.link));
    RKV_RETURN_IF_ERROR(state->expect(parts.qp, *options.expected));
  }
  RKV_ASSIGN_OR_RETURN(CmConnection link, connect(std::move(parts.qp)));
  state->adopt(std::move(link));
  return state;
}

}  // namespace

Result<Channel> dial(const SocketAddress& address, const DialOptions& options,
                     const Deadline& deadline, PrivateData* refusal) {
  if (options.expected && options.domain == nullptr) {
    return fail(Code::kInvalidArgument,
                "DialOptions::expected is registered in a domain: name it in DialOptions::domain");
  }
  RKV_ASSIGN_OR_RETURN(
      Connector connector,
      Connector::resolve(address, {.ack_timeout = options.link.ack_timeout}, deadline));
  std::optional<ProtectionDomain> own;
  if (options.domain == nullptr) {
    RKV_ASSIGN_OR_RETURN(own, ProtectionDomain::allocate(connector.device()));
  }
  const ProtectionDomain& pd = own ? *own : *options.domain;
  RKV_ASSIGN_OR_RETURN(auto state,
                       connect_channel(connector, pd, options, [&](PreparedQueuePair<> qp) {
                         return std::move(connector).connect(std::move(qp), options.link,
                                                             options.hello, deadline, refusal);
                       }));
  return detail::ChannelAccess::make(std::move(state));
}

Result<Channel> dial(std::string_view address, const DialOptions& options, const Deadline& deadline,
                     PrivateData* refusal) {
  RKV_ASSIGN_OR_RETURN(const std::vector<SocketAddress> all, addresses_of(address, deadline));
  Result<Channel> channel = fail(Code::kUnreachable, "the name has no address");
  for (std::size_t i = 0; i < all.size() && !channel && (i == 0 || !deadline.passed()); ++i) {
    if (refusal != nullptr) *refusal = PrivateData();
    // Each address gets its share of the time: one that does not answer must leave time for the
    // others.
    const auto share = std::chrono::milliseconds(deadline.left_ms()) / (all.size() - i);
    channel = dial(all[i], options, i + 1 == all.size() ? deadline : Deadline::in(share), refusal);
  }
  return channel;
}

Result<Channel> ChannelRequest::accept(const DialOptions& options) && {
  const ProtectionDomain& pd = options.domain != nullptr ? *options.domain : domain_;
  RKV_ASSIGN_OR_RETURN(
      auto state, connect_channel(request_, pd, options, [&](PreparedQueuePair<> qp) {
        return std::move(request_).accept(std::move(qp), options.link, options.hello);
      }));
  return detail::ChannelAccess::make(std::move(state));
}

Result<ChannelListener> ChannelListener::listen(std::string_view address,
                                                const ListenOptions& options) {
  // Only a name needs a query to the network; an address is used as it is.
  RKV_ASSIGN_OR_RETURN(const std::vector<SocketAddress> all,
                       addresses_of(address, Deadline::in(std::chrono::seconds(5))));
  return listen(all.front(), options);
}

Result<ChannelListener> ChannelListener::listen(const SocketAddress& address,
                                                const ListenOptions& options) {
  RKV_ASSIGN_OR_RETURN(CmListener listener, CmListener::listen(address, options));
  return ChannelListener(std::move(listener));
}

Result<ChannelRequest> ChannelListener::next(const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(ConnectRequest request, listener_.wait(deadline));
  RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, domain_of(request.device()));
  return ChannelRequest(std::move(request), std::move(pd));
}

Result<Channel> ChannelListener::accept(const DialOptions& options, const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(ChannelRequest request, next(deadline));
  return std::move(request).accept(options);
}

Result<ProtectionDomain> ChannelListener::domain() {
  const std::optional<Device> device = listener_.device();
  if (!device) {
    return fail(Code::kInvalidArgument,
                "a listener on a wildcard address has no device before the first request: use "
                "ChannelRequest::domain()");
  }
  return domain_of(*device);
}

Result<ProtectionDomain> ChannelListener::domain_of(const Device& device) {
  const auto found = std::ranges::find_if(
      domains_, [&](const ProtectionDomain& one) { return one.device().raw() == device.raw(); });
  if (found != domains_.end()) return found->share();
  RKV_ASSIGN_OR_RETURN(ProtectionDomain fresh, ProtectionDomain::allocate(device));
  domains_.push_back(fresh.share());
  return fresh;
}

}  // namespace rkv::rdma
