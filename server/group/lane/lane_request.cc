#include "server/group/lane/lane_request.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/random.h"

namespace rkv::server {

namespace {

constexpr std::uint32_t kMagic = 0x4C56'4B52U;  // "RKVL"
constexpr std::uint16_t kVersion = 1;

}  // namespace

LaneToken draw_lane_token() {
  LaneToken token{};
  for (std::size_t at = 0; at < token.size(); at += sizeof(std::uint64_t))
    store_le(token.data() + at, random_from_kernel());
  return token;
}

std::array<std::byte, 8> lane_accept() {
  std::array<std::byte, 8> accept{};
  store_le(accept.data(), kMagic);
  store_le(accept.data() + 4, kVersion);
  return accept;
}

bool is_lane_accept(Bytes accept) {
  const auto expected = lane_accept();
  return accept.size() >= expected.size() &&
         std::ranges::equal(accept.first(expected.size()), expected);
}

std::array<std::byte, 24> lane_request(const LaneToken& token) {
  std::array<std::byte, 24> request{};
  const auto head = lane_accept();
  std::ranges::copy(head, request.begin());
  std::ranges::copy(token, request.begin() + head.size());
  return request;
}

std::optional<LaneToken> token_of(Bytes request) {
  if (request.size() < sizeof lane_request({}) || !is_lane_accept(request)) return std::nullopt;
  LaneToken token{};
  std::ranges::copy(request.subspan(lane_accept().size(), token.size()), token.begin());
  return token;
}

}  // namespace rkv::server
