#include "server/group/replica/silent_peers.h"

namespace rkv::server {

std::vector<std::uint64_t> SilentPeers::take_overdue(Nanos now) {
  std::vector<std::uint64_t> overdue;
  while (!since_.empty() && (since_.size() > kMost || now - since_.begin()->second >= kLimit)) {
    overdue.push_back(since_.begin()->first);
    since_.erase(since_.begin());
  }
  return overdue;
}

}  // namespace rkv::server
