#include "server/replica/copy_pace.h"

#include <algorithm>

namespace rkv::server {

std::optional<std::uint64_t> CopyPace::limit(const std::string& replica, std::uint64_t bytes,
                                             std::uint64_t total, std::uint64_t log_end,
                                             Nanos now) {
  if (replica != replica_ || bytes < bytes_) begin_ = log_end;
  if (replica != replica_ || bytes != bytes_ || total != total_) {
    replica_ = replica;
    bytes_ = bytes;
    total_ = total;
    moved_at_ = now;
  }
  if (replica.empty() || now - moved_at_ >= kStandsStill) return std::nullopt;
  const double share =
      total == 0 ? 0 : std::min(1.0, static_cast<double>(bytes) / static_cast<double>(total));
  return begin_ + first_bytes_ +
         static_cast<std::uint64_t>(share * static_cast<double>(last_bytes_ - first_bytes_));
}

}  // namespace rkv::server
