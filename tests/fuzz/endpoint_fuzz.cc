// Endpoints of peers (rkv/rdma/endpoint.h): a record has one form only, and the short one of other
// libraries too. The checksum is put right where the input says so.
#include <array>
#include <vector>

#include "rkv/rdma/endpoint.h"
#include "tests/fuzz/fuzz.h"

namespace rkv::fuzz {
namespace {

using rdma::Endpoint;

std::uint32_t crc32c(Bytes bytes) {
  std::uint32_t crc = ~0U;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82F6'3B78U : 0U);
  }
  return ~crc;
}

void long_form(Bytes given, bool seals) {
  std::vector<std::byte> copy(given.begin(), given.end());
  const std::size_t length = copy.size() > 3 ? std::to_integer<std::size_t>(copy[3]) : 0;
  if (seals && length >= 8 && length <= copy.size()) {
    const std::uint32_t crc = crc32c(Bytes(copy).first(length - 4));
    for (unsigned i = 0; i < 4; ++i)
      copy[length - 4 + i] = static_cast<std::byte>(crc >> (24 - (8 * i)));
  }
  const Exact exact(copy);
  const Bytes bytes = exact.bytes();
  const auto endpoint = Endpoint::from_bytes(bytes);
  if (!endpoint) return;
  RKV_CHECK(endpoint->qp_num <= Endpoint::kMaxQueuePairNumber, "more than 24 bits");
  const auto again = endpoint->to_bytes();
  RKV_CHECK(again, "what was read cannot be written");
  const bool is_later = (std::to_integer<unsigned>(bytes[2]) & 15U) != 0;
  RKV_CHECK(is_later || same(again->bytes(), bytes.first(length)), "a record of two forms");
}

void short_form(Bytes given) {
  if (given.size() < Endpoint::kShortWireBytes) return;
  const Exact exact(given.first(Endpoint::kShortWireBytes));
  const auto bytes = exact.bytes().first<Endpoint::kShortWireBytes>();
  const auto endpoint = Endpoint::from_short_bytes(bytes, Endpoint{});
  if (!endpoint) return;
  const auto again = endpoint->to_short_bytes();
  RKV_CHECK(again && same(*again, bytes), "a short record of two forms");
}

}  // namespace
}  // namespace rkv::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rkv::fuzz;
  Input input(data, size);
  const auto which = input.number<std::uint8_t>();
  if (which % 4 == 0) {
    short_form(input.rest());
  } else {
    long_form(input.rest(), which % 4 != 1);
  }
  return 0;
}
