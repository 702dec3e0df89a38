// The response that refuses a request: its code, its sentence, and when to try again.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/wire.h"
#include "rkv/result.h"
#include "server/request/send_pool.h"

namespace rkv::server {

// A refusal fits into a small buffer, which SERVE-3 guarantees for every answer. Longer sentences
// are cut.
constexpr std::size_t kMostSentenceBytes = SendPool::kSmallBytes - kResponseHeaderBytes;

// How long a client should wait before it tries again; 0: this code is final.
std::uint32_t retry_after_ms(Code code);

// Makes a refusal with the error's sentence: the error's text must live until the response is sent.
Response refusal(Opcode opcode, std::uint64_t sequence, const Error& error);

}  // namespace rkv::server
