// Two channels of one device, connected to each other, each with registered memory. Fails the test
// without a device.
#pragma once

#include <string_view>

#include "code_of.h"
#include "rkv/rdma/channel.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma::testing {

struct ChannelPair {
  static constexpr std::size_t kBytes = std::size_t{1} << 20;

  Device device;
  ProtectionDomain pd;
  MemoryRegion client_memory;
  MemoryRegion server_memory;
  std::optional<Channel> client;
  std::optional<Channel> server;

  explicit ChannelPair(const ChannelOptions& options = {})
      : device(need(Device::open_first_active())),
        pd(need(ProtectionDomain::allocate(device))),
        client_memory(need(MemoryRegion::allocate(pd, kBytes, kEverything))),
        server_memory(need(MemoryRegion::allocate(pd, kBytes, kEverything))) {
    PreparedChannel a = need(PreparedChannel::create(pd, options));
    PreparedChannel b = need(PreparedChannel::create(pd, options));
    const Endpoint a_end = a.endpoint();
    const Endpoint b_end = b.endpoint();
    client = need(std::move(a).connect(b_end, {.remote_access = kEverything}));
    server = need(std::move(b).connect(a_end, {.remote_access = kEverything}));
  }

  RegisteredSpan mine(std::size_t offset, std::size_t length) {
    return client_memory.local(offset, length);
  }
  RegisteredSpan theirs(std::size_t offset, std::size_t length) {
    return server_memory.local(offset, length);
  }
  RemoteSpan remote(std::size_t offset, std::size_t length) {
    return *server_memory.remote().subspan(offset, length);
  }
};

inline void put(const RegisteredSpan& to, std::string_view text) {
  std::memcpy(to.bytes().data(), text.data(), text.size());
}
inline std::string_view text_of(const RegisteredSpan& from) {
  return as_text(from.bytes());
}

}  // namespace rkv::rdma::testing
