#include "client/requests.h"

#include <algorithm>

#include "common/check.h"

namespace rkv::client {

Requests::Requests(Arena& arena, std::size_t count) : arena_(&arena), entries_(count) {}

void Requests::reset(std::uint16_t credits, std::uint32_t inline_bytes) {
  for (Entry& entry : entries_) {
    arena_->give_back_large(entry.large);
    entry = Entry{};
  }
  credits_ = std::min<std::size_t>(credits, entries_.size());
  unanswered_ = 0;
  inline_bytes_ = inline_bytes;
  next_sequence_ = 1;
}

std::optional<rdma::Operation> Requests::begin(Request request, std::uint64_t tag) {
  if (!has_credit()) return std::nullopt;
  const auto entry = std::ranges::find_if(entries_, &Entry::free);
  if (entry == entries_.end()) return std::nullopt;
  const std::size_t index = static_cast<std::size_t>(entry - entries_.begin());
  const std::size_t length = kRequestHeaderBytes + request.key.size() + request.value.size();
  MutableBytes buffer = arena_->request(index);
  if (length > buffer.size()) {
    entry->large = arena_->take_large();
    if (entry->large.empty()) return std::nullopt;
    buffer = entry->large;
  }
  request.sequence = next_sequence_++;
  const MutableBytes message = buffer.first(encode(request, buffer));

  entry->sequence = request.sequence;
  entry->tag = tag;
  entry->opcode = request.opcode;
  entry->sending = true;
  ++unanswered_;
  auto operation = rdma::Operation::send(message, arena_->local_key(), kSendBit | index);
  operation.inline_data = length <= inline_bytes_;
  return operation;
}

void Requests::cancel(const rdma::Operation& operation) {
  Entry& entry = entries_[operation.context & ~kSendBit];
  RKV_CHECK(entry.sequence == next_sequence_ - 1, "only the last request can be taken back");
  --next_sequence_;
  --unanswered_;
  arena_->give_back_large(entry.large);
  entry = Entry{};
}

void Requests::release_if_over(Entry& entry) {
  if (!entry.free()) return;  // R2
  arena_->give_back_large(entry.large);
  entry = Entry{};
}

void Requests::sent(std::uint64_t context) {
  Entry& entry = entries_[context & ~kSendBit];
  entry.sending = false;
  release_if_over(entry);
}

std::optional<std::uint64_t> Requests::answered(const Response& response) {
  for (Entry& entry : entries_) {
    if (entry.sequence == 0 || entry.sequence != response.sequence) continue;
    if (entry.opcode != response.opcode) return std::nullopt;
    const std::uint64_t tag = entry.tag;
    entry.sequence = 0;
    --unanswered_;
    release_if_over(entry);
    return tag;
  }
  return std::nullopt;
}

}  // namespace rkv::client
