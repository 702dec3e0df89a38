#include "server/request/outcomes.h"

#include <cstring>

#include "common/check.h"

namespace rkv::server {

static_assert(kMaxCredits <= kLanes, "each unanswered request has a lane");

void Outcomes::keep(const Response& answer, Bytes value, const Mark& mark) {
  const std::uint64_t lane = lane_of(answer.sequence);
  if (lane >= kept_.size()) [[unlikely]]
    return;  // the client does not use lanes
  RKV_CHECK(value.size() <= kMostOutcomeBytes, "the outcome of a write");
  KeptOutcome& kept = kept_[lane];
  kept.sequence = answer.sequence;
  kept.through = mark.through;
  kept.level = mark.level;
  kept.flags = answer.flags;
  kept.length = static_cast<std::uint16_t>(value.size());
  kept.version = answer.version;
  kept.slot = answer.slot;
  if (value.empty()) return;
  std::byte* to = kept.number.data();
  if (value.size() > kept.number.size()) {
    auto& pack = packs_[lane];
    if (pack == nullptr) pack = std::make_unique<PackOutcome>();
    to = pack->data();
  }
  std::memcpy(to, value.data(), value.size());
}

Outcomes::Fate Outcomes::fate_of(std::uint64_t sequence) const {
  const std::uint64_t lane = lane_of(sequence);
  if (lane >= kept_.size()) return Fate::kNotKnown;
  const std::uint64_t kept = kept_[lane].sequence;
  if (kept == sequence) return Fate::kApplied;
  return kept < sequence ? Fate::kNotApplied : Fate::kNotKnown;
}

}  // namespace rkv::server
