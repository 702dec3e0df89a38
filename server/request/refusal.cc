#include "server/request/refusal.h"

#include <algorithm>

namespace rkv::server {

// A full queue drains in milliseconds. A failed disk or a full store takes longer to change.
std::uint32_t retry_after_ms(Code code) {
  switch (code) {
    case Code::kBusy:
      return 2;
    case Code::kIo:
    case Code::kOutOfMemory:
      return 500;
    default:
      return 0;
  }
}

Response refusal(Opcode opcode, std::uint64_t sequence, const Error& error) {
  Response response{.opcode = opcode,
                    .code = static_cast<std::uint8_t>(error.code),
                    .sequence = sequence,
                    .retry_after_ms = retry_after_ms(error.code)};
  // A missing key is a normal answer: it carries no text, so the message is as short as possible.
  if (error.text != nullptr && error.code != Code::kNotFound) {
    const Bytes text = as_bytes(error.text);
    response.value = text.first(std::min(text.size(), kMostSentenceBytes));
  }
  return response;
}

}  // namespace rkv::server
