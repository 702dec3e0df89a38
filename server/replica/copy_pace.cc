#include "server/replica/copy_pace.h"

#include <algorithm>

namespace rkv::server {

namespace {

std::uint64_t between(std::uint64_t from, std::uint64_t to, double share) {
  return from + static_cast<std::uint64_t>(share * static_cast<double>(to - from));
}

}  // namespace

std::optional<std::uint64_t> CopyPace::limit(const Copy& copy, bool starts, std::uint64_t log_end,
                                             Nanos now) {
  const bool is_other = copy.replica != copy_.replica;
  if (!copy.replica.empty() && (is_other || copy.bytes < copy_.bytes)) begin_ = log_end;
  if (is_other || copy.bytes != copy_.bytes || copy.total != copy_.total) {
    copy_ = copy;
    moved_at_ = now;
  }
  const auto since = static_cast<double>(now - moved_at_);
  if (copy.replica.empty()) {
    if (!starts || now - moved_at_ >= kStartsWithin) return std::nullopt;
    return begin_ + between(growth_.at_its_end, growth_.when_it_has_started,
                            since / static_cast<double>(kStartsWithin));
  }
  if (now - moved_at_ >= kStandsStill) return std::nullopt;
  const double share =
      copy.total == 0
          ? 0
          : std::min(1.0, static_cast<double>(copy.bytes) / static_cast<double>(copy.total));
  return begin_ + between(growth_.at_once, growth_.at_its_end, share);
}

}  // namespace rkv::server
