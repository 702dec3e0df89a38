// Builders whose transports share the completion queue of a message driver, for tests.
#pragma once

#include "rkv/rdma/message/message_driver.h"
#include "tests/rdma/extras/message/ends.h"

namespace rkv::rdma::testing {

// Accepted transports share one driver. Each connected one has a driver of its own: tests connect
// from other threads, and a driver has one thread.
template <class Inner>
struct DrivenBuilder {
  using Transport = typename Inner::Transport;
  using Listener = typename Inner::Listener;

  Inner inner;

  explicit DrivenBuilder(Inner with, const MessageDriverOptions& options = {})
      : inner(std::move(with)) {
    inner.driver = need(MessageDriver::create(options));
  }
  MessageDriver& driver() { return *inner.driver; }
  Result<Listener> listen(const SocketAddress& local) const { return inner.listen(local); }
  Result<Transport> connect(const SocketAddress& peer, const Deadline& deadline) const {
    Inner own = inner;
    RKV_ASSIGN_OR_RETURN(own.driver, MessageDriver::create());
    return own.connect(peer, deadline);
  }
  Result<Transport> accept(Listener& listener, const Deadline& deadline) const {
    return inner.accept(listener, deadline);
  }
};

}  // namespace rkv::rdma::testing
