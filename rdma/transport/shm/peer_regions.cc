#include "rdma/transport/shm/peer_regions.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "rdma/transport/shm/shared.h"

namespace rkv::rdma::shm {

namespace {

constexpr const char* kNonsense = "its description of its memory is invalid";
constexpr const char* kNotMemory = "it passed memory that does not match its description";
constexpr const char* kTooMany = "it shares more than 256 regions: share fewer and larger ones";
constexpr const char* kTooFast =
    "it shares more than 10,000 regions a second: register memory once and use it again";
constexpr const char* kNoDescriptors =
    "the server has no descriptors left for regions of clients: raise its limit of open files "
    "(ulimit -n), or share fewer and larger regions";

// (PEERREG-2) Only files of in-kernel file systems like that of a memfd support seals and can have
// F_SEAL_SHRINK.
bool is_fixed_memory(int fd, std::uint64_t bytes) {
  struct stat status{};
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && bytes != 0 && fstat(fd, &status) == 0 &&
         static_cast<std::uint64_t>(status.st_size) >= bytes;
}

}  // namespace

PeerRegions::~PeerRegions() {
  for (auto& [key, region] : regions_)
    shared_->reaper->close(std::move(region.memory), std::move(region.charge));
}

const char* PeerRegions::receive(int socket, Nanos now) {
  std::array<std::byte, kMaxPacketBytes> buffer;
  const Peeked peeked = peek_packet(socket, buffer);
  const auto said =
      decode_regions(Bytes(buffer).first(std::min(peeked.packet.length, buffer.size())));
  // (REAP-1) The packet stays in the socket and is closed with it.
  if (!said || said->count == 0 || said->count > kPeerRegionsPerPacket) return kNonsense;
  if (!may_bring(said->count, now)) return kTooFast;
  Charge charge = shared_->budget->take_regions(said->count);
  if (!charge) return kNoDescriptors;
  std::vector<Fd> descriptors;
  bool has_lost = false;
  {
    const MutexLock lock(shared_->budget->receiving());
    has_lost = receive_packet(socket, buffer, &descriptors).lost_descriptors;
  }
  const char* const problem =
      take_in(Bytes(buffer).first(peeked.packet.length), descriptors, std::move(charge));
  return has_lost ? kNoDescriptors : problem;
}

bool PeerRegions::may_bring(std::size_t count, Nanos now) {
  constexpr Nanos kSecond = 1000 * kNanosPerMs;
  const auto burst = static_cast<std::int64_t>(kRegionsBurst);
  if (const Nanos past = now - allowed_at_; past >= kSecond) {
    allowed_ = burst;
    allowed_at_ = now;
  } else if (const std::int64_t more = past * kRegionsPerSecond / kSecond; more > 0) {
    allowed_ = std::min(burst, allowed_ + more);
    allowed_at_ += more * kSecond / kRegionsPerSecond;
  }
  if (allowed_ < static_cast<std::int64_t>(count)) return false;
  allowed_ -= static_cast<std::int64_t>(count);
  return true;
}

const char* PeerRegions::take_in(Bytes packet, std::vector<Fd>& descriptors, Charge charge) {
  const char* problem = nullptr;
  if (Gone gone; descriptors.empty() && decode(packet, PacketKind::kGone, &gone)) {
    remove(static_cast<std::uint32_t>(gone.key));
    return nullptr;
  }
  const auto said = decode_regions(packet);
  if (!said || descriptors.size() != said->count) problem = kNonsense;
  for (std::size_t i = 0; problem == nullptr && i < said->count; ++i)
    problem = add(said->entries[i], descriptors[i], charge.split_one());
  // (REAP-3) The remaining descriptors were refused and may be anything. A dishonest client sends
  // more than it announces.
  if (said && descriptors.size() > said->count) {
    charge = shared_->budget->take_unasked(descriptors.size());
  }
  for (Fd& left : descriptors)
    shared_->foreign_reaper->close(std::move(left), charge.split_one());
  return problem;
}

const char* PeerRegions::add(const RegionEntry& entry, Fd& memory, Charge charge) {
  if (!is_fixed_memory(memory.get(), entry.length)) return kNotMemory;
  remove(entry.key);
  if (regions_.size() >= kMaxPeerRegions) return kTooMany;  // (PEERREG-3)
  regions_.emplace(entry.key, Region{.address = entry.address,
                                     .length = entry.length,
                                     .memory = std::move(memory),
                                     .charge = std::move(charge)});
  return nullptr;
}

void PeerRegions::remove(std::uint32_t key) {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return;
  shared_->reaper->close(std::move(found->second.memory), std::move(found->second.charge));
  regions_.erase(found);
}

bool PeerRegions::read(std::uint32_t key, std::uint64_t address, MutableBytes to) const {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return false;
  const Region& region = found->second;
  // No sum can overflow.
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
