#include "server/group/connection/message_assembler.h"

#include <algorithm>
#include <utility>

#include "server/group/rules/encoding.h"

namespace rkv::server {

namespace {
constexpr std::size_t kFirstBytes = std::size_t{64} << 10;
}

MessageAssembler::MessageAssembler() : message_(kReplicationHeadBytes) {}

MutableBytes MessageAssembler::room() {
  return MutableBytes(message_).subspan(received_);
}

Status MessageAssembler::arrived(std::size_t bytes) {
  received_ += bytes;
  if (received_ < message_.size()) return {};
  if (length_ == 0) {
    RKV_ASSIGN_OR_RETURN(length_, replication_message_bytes(message_));
  }
  if (received_ < length_) message_.resize(std::min(length_, std::max(kFirstBytes, received_ * 2)));
  return {};
}

std::vector<std::byte> MessageAssembler::take() {
  length_ = 0;
  received_ = 0;
  return std::exchange(message_, std::vector<std::byte>(kReplicationHeadBytes));
}

}  // namespace rkv::server
