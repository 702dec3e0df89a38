// An archive of outcomes that answers wrongly, for the canaries.
//
// Thread safety: as OutcomeArchive.
#pragma once

#include <array>
#include <memory>

#include "server/request/outcome_archive.h"

namespace rkv::sim {

// How the server answers clients that ask what has become of a write.
enum class Asked : std::uint8_t {
  kRight,
  kForgotten,    // no table is handed over
  kNeverDone,    // each write was not applied, so that the client sends it again
  kAnotherLane,  // with the outcome of another lane
};

class BrokenArchive final : public server::OutcomeArchive {
 public:
  BrokenArchive(const Clock& clock, std::size_t capacity, Asked asked)
      : OutcomeArchive(clock, capacity), asked_(asked) {}
  std::shared_ptr<const server::Outcomes> find(std::uint64_t session,
                                               const server::User* user) const override {
    const auto found = OutcomeArchive::find(session, user);
    if (found == nullptr || asked_ == Asked::kRight) return found;
    if (asked_ == Asked::kForgotten) return nullptr;
    auto wrong = std::make_shared<server::Outcomes>();
    if (asked_ == Asked::kAnotherLane) mix(*found, *wrong);
    return wrong;
  }

 private:
  // Each lane gets the outcome of the next lane that has one.
  static void mix(const server::Outcomes& right, server::Outcomes& wrong) {
    for (std::uint64_t lane = 0; lane < server::kMaxCredits; ++lane) {
      const std::uint64_t sequence = right.applied(lane).sequence;
      std::uint64_t other = lane;
      do {
        other = (other + 1) % server::kMaxCredits;
      } while (right.applied(other).sequence == 0 && other != lane);
      const server::KeptOutcome& of = right.applied(other);
      if (sequence == 0) continue;
      wrong.keep({.flags = of.flags, .sequence = sequence, .version = of.version, .slot = of.slot},
                 right.value_of(other), {.level = of.level, .through = of.through});
    }
  }
  const Asked asked_;
};

}  // namespace rkv::sim
