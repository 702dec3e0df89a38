// MessageAssembler: makes whole messages (encoding.h) of bytes that arrive in pieces.
//
//   const std::size_t read = read_into(assembler.room());
//   RKV_RETURN_IF_ERROR(assembler.arrived(read));
//   if (assembler.is_whole()) use(assembler.take());
//
// The memory of a message that is not whole is at most twice its arrived bytes, plus 64 KiB.
//
// Thread safety: none: one owner.
#pragma once

#include <cstddef>
#include <vector>

#include "common/bytes.h"
#include "rkv/result.h"

namespace rkv::server {

class MessageAssembler {
 public:
  MessageAssembler();

  // Where the next bytes of the message belong; at least one, and none of the message behind it.
  // Valid until the next call. REQUIRES: not whole.
  MutableBytes room();
  // The first `bytes` of the room have arrived. Errors: those of replication_message_bytes().
  Status arrived(std::size_t bytes);
  // Whether a message is whole. Its head has been checked, not its body.
  bool is_whole() const { return length_ != 0 && received_ == length_; }
  // Whether a part of a message has arrived.
  bool is_begun() const { return received_ != 0; }
  // REQUIRES: whole. The next message begins.
  std::vector<std::byte> take();

 private:
  std::vector<std::byte> message_;
  std::size_t length_ = 0;    // of the message; 0: its head has not arrived
  std::size_t received_ = 0;  // of it
};

}  // namespace rkv::server
