#include "rdma/transport/shm/regions.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "common/log.h"
#include "rdma/transport/shm/peer_regions.h"

namespace rkv::rdma::shm {

// ---- server ----

Status Exporter::open() {
  const MutexLock lock(mutex_);
  if (host_ == nullptr) {
    RKV_ASSIGN_OR_RETURN(host_, HostPage::create());
  }
  return {};
}

void Exporter::add(Export& region) {
  const MutexLock lock(mutex_);
  do {
    region.key = static_cast<std::uint32_t>(random_());
  } while (region.key == 0 || regions_.contains(region.key));
  announce(region);
}

void Exporter::remove(Export& region) {
  const MutexLock lock(mutex_);
  withdraw(region);
}

template <class Send>
void Exporter::tell_all(Send send) {
  for (const Subscriber& one : subscribers_) {
    if (one.grant == Access::kLocal) continue;
    // A subscriber that cannot receive it must not continue with partial news (SHMREG-2). Both
    // sides see the end on their socket.
    if (send(one) != 0) shutdown(one.socket, SHUT_RDWR);
  }
}

void Exporter::announce(Export& region) {
  regions_[region.key] = &region;
  Export* const one = &region;
  tell_all([&](const Subscriber& to) { return send_regions(to, std::span(&one, 1), 1); });
}

void Exporter::withdraw(const Export& region) {
  regions_.erase(region.key);
  const Gone gone{.key = region.key};
  tell_all([&](const Subscriber& to) { return send_packet(to.socket, packet_of(gone)); });
  if (host_ != nullptr) host_->count_gone();
}

namespace {
// Whether a peer gets the region. A peer that may only READ gets none with atomics: it could open
// the descriptor again for writing, and no seal stops a mapping that has to stay writable.
bool is_open_to(const Export& region, Access grant) {
  if (region.access == Access::kRemoteReadAtomic) return grant == Access::kRemoteReadAtomic;
  return grant != Access::kLocal;
}
}  // namespace

int Exporter::send_regions(const Subscriber& to, std::span<Export* const> regions,
                           std::size_t per_packet) const {
  Regions packet;
  std::vector<int> descriptors;
  const auto send = [&] {
    if (packet.count == 0) return 0;
    const int error = send_packet(to.socket, packet_of(packet).first(packet.bytes()), descriptors);
    packet.count = 0;
    descriptors.clear();
    return error;
  };
  for (const Export* region : regions) {
    if (!is_open_to(*region, to.grant)) continue;
    packet.entries[packet.count++] = {
        .address = reinterpret_cast<std::uint64_t>(region->shared.memory.data()),
        .length = region->length,
        .key = region->key,
        .atomics = region->access == Access::kRemoteReadAtomic ? 1U : 0U};
    descriptors.push_back(region->shared.fd.get());
    if (packet.count < per_packet) continue;
    if (const int error = send(); error != 0) return error;
  }
  return send();
}

Status Exporter::subscribe(int socket, Access grant, Accept accept, std::vector<int> descriptors) {
  const MutexLock lock(mutex_);
  descriptors.push_back(host_->fd());
  const Subscriber subscriber{.socket = socket, .grant = grant};
  std::vector<Export*> all;
  all.reserve(regions_.size());
  for (const auto& [key, region] : regions_) {
    if (is_open_to(*region, grant)) all.push_back(region);
  }
  accept.regions = static_cast<std::uint32_t>(all.size());
  int error = send_packet(socket, packet_of(accept), descriptors);
  if (error == 0) error = send_regions(subscriber, all, kRegionsPerPacket);
  if (error == EPIPE || error == ECONNRESET) {
    return fail_call(Code::kDisconnected, "sendmsg", error, "the client has disconnected");
  }
  if (error != 0) {
    return fail_call(Code::kBusy, "sendmsg", error,
                     "the regions do not fit into a socket: raise the limit of open files "
                     "(ulimit -n), or share fewer and larger regions");
  }
  subscribers_.push_back(subscriber);
  return {};
}

Status Exporter::share(int socket, Access grant) {
  const MutexLock lock(mutex_);
  const Subscriber subscriber{.socket = socket, .grant = grant};
  std::vector<Export*> all;
  for (const auto& [key, region] : regions_)
    all.push_back(region);
  if (all.size() > kMaxPeerRegions) {
    return fail(Code::kInvalidArgument,
                "a server takes at most 256 regions from a client: share fewer and larger ones");
  }
  if (const int error = send_regions(subscriber, all, kPeerRegionsPerPacket); error != 0) {
    return fail_call(Code::kUnreachable, "sendmsg", error, "the server closed the connection");
  }
  subscribers_.push_back(subscriber);
  return {};
}

void Exporter::unsubscribe(int socket) {
  const MutexLock lock(mutex_);
  std::erase_if(subscribers_, [&](const Subscriber& one) { return one.socket == socket; });
}

// ---- client ----

bool RegionTable::take_in(Bytes packet, std::vector<Fd>& descriptors) {
  if (Gone gone; decode(packet, PacketKind::kGone, &gone)) {
    last_ = nullptr;
    entries_.erase(static_cast<std::uint32_t>(gone.key));
    return true;
  }
  const auto said = decode_regions(packet);
  if (!said || descriptors.size() != said->count) return false;
  heard_ += said->count;
  for (std::size_t i = 0; i < said->count; ++i)
    add(said->entries[i], descriptors[i]);
  return true;
}

void RegionTable::add(const RegionEntry& said, const Fd& fd) {
  const bool atomics = said.atomics != 0;
  auto memory = map_received(fd.get(), said.length, atomics);
  if (!memory) {
    // READs of the region will be refused here; this line tells the user why.
    log_warn(EventName("region_unmapped"), "a region of the server cannot be mapped: {}",
             to_string(memory.error()));
    return;
  }
  last_ = nullptr;
  entries_.insert_or_assign(said.key, Entry{.address = said.address,
                                            .length = said.length,
                                            .atomics = atomics,
                                            .memory = std::move(*memory)});
}

}  // namespace rkv::rdma::shm
