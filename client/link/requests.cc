#include "client/link/requests.h"

#include <algorithm>
#include <array>
#include <bit>

#include "common/check.h"

namespace rkv::client {

Requests::Requests(Arena& arena, std::size_t count) : arena_(&arena), entries_(count) {}

void Requests::reset(const Limits& limits) {
  for (Entry& entry : entries_) {
    arena_->give_back_large(entry.large);
    entry = Entry{};
  }
  credits_ = std::min({std::size_t{limits.credits}, entries_.size(), std::size_t{kLanes}});
  unanswered_ = 0;
  limits_ = limits;
  last_sequence_ = 0;
  free_lanes_ = (std::uint32_t{1} << credits_) - 1;
}

std::optional<rdma::Operation> Requests::begin(Request request, std::uint64_t tag) {
  if (!has_credit()) return std::nullopt;
  const auto entry = std::ranges::find_if(entries_, &Entry::free);
  if (entry == entries_.end()) return std::nullopt;
  const std::size_t index = static_cast<std::size_t>(entry - entries_.begin());
  const std::size_t length = kRequestHeaderBytes + request.key.size() + request.value.size();
  MutableBytes buffer = arena_->request(index);
  const bool is_long = length > limits_.max_sent_bytes;
  if (length > buffer.size() || is_long) {
    entry->large = arena_->take_large();
    if (entry->large.empty()) return std::nullopt;
    buffer = entry->large;
  }
  request.sequence = take_lane();
  MutableBytes message = buffer.first(encode(request, buffer));
  if (is_long) message = place_of(message, request.sequence, index);

  entry->sequence = request.sequence;
  entry->tag = tag;
  entry->opcode = request.opcode;
  entry->sending = true;
  ++unanswered_;
  auto operation = rdma::Operation::send(message, arena_->local_key(), kSendBit | index);
  operation.inline_data = message.size() <= limits_.inline_bytes;
  return operation;
}

// Returns the next sequence of a free lane (REQ-5). Sequences rise over all lanes. REQUIRES:
// has_credit().
std::uint64_t Requests::take_lane() {
  const auto lane = static_cast<std::uint64_t>(std::countr_zero(free_lanes_));
  free_lanes_ &= free_lanes_ - 1;
  last_sequence_ = (last_sequence_ / kLanes + 1) * kLanes + lane;
  return last_sequence_;
}

// Encodes the message that tells the server where to READ `message` (REQ-4).
MutableBytes Requests::place_of(MutableBytes message, std::uint64_t sequence,
                                std::size_t index) const {
  std::array<std::byte, kMessageSourceBytes> source;
  encode(MessageSource{.address = reinterpret_cast<std::uint64_t>(message.data()),
                       .remote_key = arena_->remote_key(),
                       .length = static_cast<std::uint32_t>(message.size())},
         source);
  const MutableBytes buffer = arena_->request(index);
  return buffer.first(
      encode(Request{.opcode = Opcode::kLong, .sequence = sequence, .value = source}, buffer));
}

void Requests::cancel(const rdma::Operation& operation) {
  Entry& entry = entries_[operation.context & ~kSendBit];
  RKV_CHECK(entry.sequence / kLanes == last_sequence_ / kLanes,
            "only the last request can be taken back");
  last_sequence_ = entry.sequence - kLanes;
  free_lanes_ |= std::uint32_t{1} << lane_of(entry.sequence);
  --unanswered_;
  arena_->give_back_large(entry.large);
  entry = Entry{};
}

void Requests::release_if_over(Entry& entry) {
  if (!entry.free()) return;  // REQ-2
  arena_->give_back_large(entry.large);
  entry = Entry{};
}

void Requests::sent(std::uint64_t context) {
  Entry& entry = entries_[context & ~kSendBit];
  entry.sending = false;
  release_if_over(entry);
}

namespace {
// A server that does not know kOutcome refuses it as a ping.
bool may_answer(const Response& response, Opcode asked) {
  return response.opcode == asked ||
         (asked == Opcode::kOutcome && response.opcode == Opcode::kPing && response.code != 0);
}
}  // namespace

std::optional<std::uint64_t> Requests::answered(const Response& response) {
  for (Entry& entry : entries_) {
    if (entry.sequence == 0 || entry.sequence != response.sequence) continue;
    if (!may_answer(response, entry.opcode)) return std::nullopt;
    const std::uint64_t tag = entry.tag;
    free_lanes_ |= std::uint32_t{1} << lane_of(entry.sequence);
    entry.sequence = 0;
    --unanswered_;
    release_if_over(entry);
    return tag;
  }
  return std::nullopt;
}

}  // namespace rkv::client
