#include "server/group/replica/copy_pace.h"

#include <algorithm>
#include <cmath>

namespace rkv::server {

namespace {

std::uint64_t between(std::uint64_t from, std::uint64_t to, double part) {
  return from + static_cast<std::uint64_t>(
                    std::llround(part * static_cast<double>(to - std::min(from, to))));
}

}  // namespace

std::optional<std::uint64_t> CopyPace::limit(const Copy& copy, bool starts, std::uint64_t log_end,
                                             Nanos now) {
  const bool is_other = copy.replica != copy_.replica;
  const bool begins = !copy.replica.empty() && (is_other || copy.bytes < copy_.bytes);
  if (begins) {
    begin_ = log_end;
    replica_ = copy.replica;
  }
  if (is_other || copy.bytes != copy_.bytes || copy.total != copy_.total) {
    copy_ = copy;
    moved_at_ = now;
  }
  const bool is_copying = !copy.replica.empty();
  const Nanos since = now - moved_at_;
  const bool moves = is_copying ? since < kStandsStill : starts && since < kStartsWithin;
  const bool is_in_vain = log_end > begin_ + growth_.when_it_has_started;
  if (!moves || is_in_vain) {
    is_held_ = false;
    return std::nullopt;
  }
  const std::uint64_t first = begin_ + (is_copying ? growth_.at_once : growth_.at_its_end);
  const std::uint64_t last =
      begin_ + (is_copying ? growth_.at_its_end : growth_.when_it_has_started);
  const double share =
      is_copying ? share_of(copy) : static_cast<double>(since) / static_cast<double>(kStartsWithin);
  // Clients that were not throttled may have written more: split the remaining budget.
  if (begins || is_other || !is_held_) {
    is_held_ = true;
    from_ = std::max(log_end, between(first, last, share));
    from_share_ = share;
  }
  if (share >= 1) return std::max(from_, last);
  return between(from_, std::max(from_, last), (share - from_share_) / (1 - from_share_));
}

double CopyPace::share_of(const Copy& copy) {
  if (copy.total == 0) return 0;
  return std::min(1.0, static_cast<double>(copy.bytes) / static_cast<double>(copy.total));
}

}  // namespace rkv::server
