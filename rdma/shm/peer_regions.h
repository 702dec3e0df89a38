// PeerRegions: what a client lets us READ over one connection.
//
// Invariants
//  P1  Nothing that a client made is ever mapped here. A READ is a system call on a descriptor, so
//      that whatever the client does to its memory meanwhile is bytes or an error of that call, and
//      never a signal to us.
//  P2  Only a memfd that can no longer shrink is taken. Reading one does not wait for anybody; a
//      file might (FUSE), and so might a pipe or a socket.
//  P3  A connection has at most kMaxPeerRegions, all of them together what DescriptorBudget lets
//      them have: what clients can make us hold is bounded.
//  P4  A connection may bring kRegionsBurst regions at once and kRegionsPerSecond on the whole:
//  what
//      taking them in costs its neighbours is bounded.
//  P5  None of what a client passed is closed here (reaper.h).
//
// Thread safety: belongs to its queue's thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "rdma/shm/memory.h"
#include "rdma/shm/protocol.h"
#include "rdma/shm/reaper.h"

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

  // Takes the next packet, which has been seen to be there and to have descriptors, out of the
  // socket. As below; `now` is for P4.
  const char* receive(int socket, Nanos now);
  // Takes in a packet of kind kRegions or kGone. Not nullptr: a sentence that says why not; the
  // connection is to be ended. `charge` counts the descriptors.
  const char* take_in(Bytes packet, std::vector<Fd>& descriptors, Charge charge);
  // Fills `to` with the bytes at `address` of the client's memory. False: there is no such region,
  // it is shorter, or its memory cannot be read.
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

  Shared* shared_;  // outlives this, as the queue of the connection has it
  std::unordered_map<std::uint32_t, Region> regions_;
  // (P4) Regions that may come now, in 1 / kRegionsPerSecond of a second.
  std::int64_t allowed_ = static_cast<std::int64_t>(kRegionsBurst);
  Nanos allowed_at_ = 0;
};

}  // namespace rkv::rdma::shm
