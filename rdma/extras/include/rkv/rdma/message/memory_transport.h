// A message transport between two objects of one process, for tests of code that uses
// MessageTransport. It needs no device, and its only system calls serve waiting (an eventfd per
// end). It keeps all of MSG-1 to MSG-7, and with small options it shows back-pressure sooner than a
// network would.
//
//   auto [here, there] = MemoryTransport::pair({.receive_buffers = 4});
//   RKV_ASSIGN_OR_RETURN(std::size_t accepted, here.send_copy(bytes));   // 0 for the fifth
//   // or by address, as with the others; copies of one builder reach each other
//   MemoryBuilder builder;
//   RKV_ASSIGN_OR_RETURN(MemoryListener listener, builder.listen({}));
//
// Thread safety: one thread at a time per end; two threads may use the two ends.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "rkv/export.h"
#include "rkv/rdma/message/transport_of.h"

namespace rkv::rdma {

struct MemoryOptions {
  std::uint32_t message_bytes = 65536;  // longest message; the smaller side counts; 1 to 16 Mi
  std::uint32_t send_buffers = 4;       // sends that poll_sends() has not reported; 1 to 8192
  std::uint32_t receive_buffers = 16;   // messages to this end that are not released; 1 to 8192
};

namespace detail {
class MemoryState;
struct MemoryNetwork;
struct MemoryPort;
}  // namespace detail
extern template class RKV_EXPORT TransportOf<detail::MemoryState>;

class RKV_EXPORT MemoryTransport : public TransportOf<detail::MemoryState> {
 public:
  // Returns the two ends of a connection. REQUIRES: options within their ranges.
  static std::pair<MemoryTransport, MemoryTransport> pair(const MemoryOptions& options = {});

 private:
  friend struct MemoryBuilder;
  explicit MemoryTransport(std::unique_ptr<detail::MemoryState> state);
};
static_assert(MessageTransport<MemoryTransport>);

class RKV_EXPORT MemoryListener {
 public:
  SocketAddress address() const;
  MemoryListener(MemoryListener&&) noexcept = default;
  MemoryListener& operator=(MemoryListener&&) = delete;
  ~MemoryListener();  // waiting connect() calls return kUnreachable

 private:
  friend struct MemoryBuilder;
  explicit MemoryListener(std::shared_ptr<detail::MemoryPort> port) : port_(std::move(port)) {}
  detail::MemoryPort& port() const;
  std::shared_ptr<detail::MemoryPort> port_;
};

// Copies of one builder reach each other; separately created builders do not. Any thread.
struct RKV_EXPORT MemoryBuilder {
  using Transport = MemoryTransport;
  using Listener = MemoryListener;

  MemoryOptions options;

  MemoryBuilder();
  explicit MemoryBuilder(const MemoryOptions& with);
  // The host of the address is ignored. kConflict: the port is taken.
  Result<MemoryListener> listen(const SocketAddress& local) const;
  Result<MemoryTransport> connect(const SocketAddress& peer, const Deadline& deadline) const;
  Result<MemoryTransport> accept(MemoryListener& listener, const Deadline& deadline) const;

 private:
  std::shared_ptr<detail::MemoryNetwork> network_;
};
static_assert(TransportBuilder<MemoryBuilder>);

}  // namespace rkv::rdma
