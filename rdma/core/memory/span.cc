#include "rkv/rdma/span.h"

#include <endian.h>

#include "common/bytes.h"

namespace rkv::rdma {

std::array<std::byte, RemoteSpan::kWireBytes> RemoteSpan::to_bytes() const {
  std::array<std::byte, kWireBytes> out;
  store_le(out.data(), htobe64(address));
  store_le(out.data() + 8, htobe64(length));
  store_le(out.data() + 16, htobe32(rkey));
  return out;
}

RemoteSpan RemoteSpan::from_bytes(std::span<const std::byte, kWireBytes> bytes) {
  return {.address = be64toh(load_le<std::uint64_t>(bytes.data())),
          .length = be64toh(load_le<std::uint64_t>(bytes.data() + 8)),
          .rkey = be32toh(load_le<std::uint32_t>(bytes.data() + 16))};
}

}  // namespace rkv::rdma
