#include "rdma/shm/peer_regions.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/log.h"

namespace rkv::rdma::shm {

namespace {

// (P2) The file system of a memfd is the kernel's own; only such files know seals and can have this
// one.
bool is_fixed_memory(int fd, std::uint64_t bytes) {
  struct stat status{};
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && bytes != 0 && fstat(fd, &status) == 0 &&
         static_cast<std::uint64_t>(status.st_size) >= bytes;
}

}  // namespace

bool PeerRegions::take_in(Bytes packet, std::vector<Fd>& descriptors) {
  if (Gone gone; decode(packet, PacketKind::kGone, &gone)) {
    regions_.erase(static_cast<std::uint32_t>(gone.key));
    return true;
  }
  const auto said = decode_regions(packet);
  if (!said || descriptors.size() != said->count) return false;
  for (std::size_t i = 0; i < said->count; ++i) {
    const RegionEntry& entry = said->entries[i];
    if (!is_fixed_memory(descriptors[i].get(), entry.length)) {
      log_warn(EventName("peer_memory_wrong"), "a client passed memory that is not what it said");
      return false;
    }
    regions_.insert_or_assign(entry.key, Region{.address = entry.address,
                                                .length = entry.length,
                                                .memory = std::move(descriptors[i])});
    if (regions_.size() > kMaxPeerRegions) {  // (P3)
      log_warn(EventName("peer_regions_too_many"), "a client shares more than {} regions",
               kMaxPeerRegions);
      return false;
    }
  }
  return true;
}

bool PeerRegions::read(std::uint32_t key, std::uint64_t address, MutableBytes to) const {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return false;
  const Region& region = found->second;
  // No sum here can overflow.
  if (address < region.address || to.size() > region.length ||
      address - region.address > region.length - to.size()) {
    return false;
  }
  auto from = static_cast<off_t>(address - region.address);
  while (!to.empty()) {
    const ssize_t got = pread(region.memory.get(), to.data(), to.size(), from);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to = to.subspan(static_cast<std::size_t>(got));
    from += got;
  }
  return true;
}

}  // namespace rkv::rdma::shm
