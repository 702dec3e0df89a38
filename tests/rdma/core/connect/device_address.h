// Helpers for tests of the connection manager: an address of an RDMA device, from RKV_RDMA_ADDRESS,
// and private data as text.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "rkv/bytes.h"
#include "rkv/rdma/address.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma::testing {

inline SocketAddress address_of(std::string host, std::uint16_t port) {
  return need(resolve({.host = std::move(host), .port = port}, soon())).front();
}
inline SocketAddress device_address(std::uint16_t port) {
  const char* host = std::getenv("RKV_RDMA_ADDRESS");
  if (host == nullptr) throw std::runtime_error("RKV_RDMA_ADDRESS must name a device's address");
  return address_of(host, port);
}
// Private data arrives padded with zeros.
inline std::string_view text_of(Bytes padded, std::size_t length) {
  return as_text(padded.first(length));
}

}  // namespace rkv::rdma::testing
