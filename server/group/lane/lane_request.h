// A replica's request for a lane: the token that it was given over the connection that proved its
// identity. The token is valid once.
//
//   private data 24: "RKVL" | version 2 | zero 2 | token 16; the accept's: the first 8 of these
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "common/bytes.h"
#include "server/group/rules/messages.h"

namespace rkv::server {

// Draws a random token from the kernel. Blocks for as long as that takes.
LaneToken draw_lane_token();
std::array<std::byte, 24> lane_request(const LaneToken& token);
// Decodes a request. nullopt: not such a request, or of another version. Bytes behind it are
// ignored: transports pad.
std::optional<LaneToken> token_of(Bytes request);
std::array<std::byte, 8> lane_accept();
bool is_lane_accept(Bytes accept);

}  // namespace rkv::server
