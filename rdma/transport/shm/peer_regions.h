// PeerRegions: the client's memory that we may READ over one connection.
//
// Invariants
//  PEERREG-1  Nothing that a client created is ever mapped here. A READ is a system call on a
//      descriptor. So anything that the client does to its memory meanwhile results in bytes or an
//      error of that call, never in a signal.
//  PEERREG-2  Only a memfd that can no longer shrink is accepted. Reading it does not wait for
//      another process; reading a file (FUSE), a pipe or a socket might.
//  PEERREG-3  A connection has at most kMaxPeerRegions, and all connections together at most what
//      DescriptorBudget allows. So the descriptors that clients can make us hold are bounded.
//  PEERREG-4  A connection may bring kRegionsBurst regions at once and kRegionsPerSecond on
//      average. So the cost of accepting them to other connections is bounded.
//  PEERREG-5  This class closes no descriptor that a client passed (reaper.h).
//
// Thread safety: belongs to its queue's thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "rdma/transport/host_memory.h"
#include "rdma/transport/shm/protocol.h"
#include "rdma/transport/shm/reaper.h"

namespace rkv::rdma::shm {

struct Shared;

inline constexpr std::size_t kMaxPeerRegions = 256;
inline constexpr std::size_t kRegionsBurst = 4 * kMaxPeerRegions;
inline constexpr std::int64_t kRegionsPerSecond = 10'000;

class PeerRegions {
 public:
  explicit PeerRegions(Shared* shared = nullptr) : shared_(shared) {}
  ~PeerRegions();
  PeerRegions(PeerRegions&& other) noexcept = default;
  PeerRegions& operator=(PeerRegions&&) = delete;

  // Takes the next packet out of the socket. REQUIRES: the packet was seen to be there and to have
  // descriptors. Result as take_in(); `now` is for PEERREG-4.
  const char* receive(int socket, Nanos now);
  // Processes a packet of kind kRegions or kGone. Returns nullptr, or a sentence that says why not;
  // the caller must then end the connection. `charge` counts the descriptors.
  const char* take_in(Bytes packet, std::vector<Fd>& descriptors, Charge charge);
  // Fills `to` with the bytes at `address` of the client's memory. Returns false if there is no
  // such region, if it is too short, or if its memory cannot be read.
  bool read(std::uint32_t key, std::uint64_t address, MutableBytes to) const;
  std::size_t size() const { return regions_.size(); }

 private:
  struct Region {
    std::uint64_t address = 0;  // in the client
    std::uint64_t length = 0;
    Fd memory;
    Charge charge;
  };
  const char* add(const RegionEntry& entry, Fd& memory, Charge charge);
  void remove(std::uint32_t key);
  bool may_bring(std::size_t count, Nanos now);

  Shared* shared_;  // outlives this: the queue of the connection keeps it alive
  std::unordered_map<std::uint32_t, Region> regions_;
  // (PEERREG-4) Regions that may arrive now, in units of 1 / kRegionsPerSecond of a second.
  std::int64_t allowed_ = static_cast<std::int64_t>(kRegionsBurst);
  Nanos allowed_at_ = 0;
};

}  // namespace rkv::rdma::shm
