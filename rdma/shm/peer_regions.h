// PeerRegions: what a client lets us READ over one connection.
//
// Invariants
//  P1  Nothing that a client made is ever mapped here. A READ is a system call on a descriptor, so
//      that whatever the client does to its memory meanwhile is bytes or an error of that call, and
//      never a signal to us.
//  P2  Only a memfd that can no longer shrink is taken. Reading one does not wait for anybody; a
//      file might (FUSE), and so might a pipe or a socket.
//  P3  A connection has at most kMaxPeerRegions: what a client can make us hold is bounded.
//
// Thread safety: belongs to its queue's thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "rdma/shm/memory.h"
#include "rdma/shm/protocol.h"

namespace rkv::rdma::shm {

inline constexpr std::size_t kMaxPeerRegions = 256;

class PeerRegions {
 public:
  // Takes in a packet of kind kRegions or kGone. False: it is neither, or a region that breaks P2
  // or P3; the connection is to be ended.
  bool take_in(Bytes packet, std::vector<Fd>& descriptors);
  // Fills `to` with the bytes at `address` of the client's memory. False: there is no such region,
  // it is shorter, or its memory cannot be read.
  bool read(std::uint32_t key, std::uint64_t address, MutableBytes to) const;
  std::size_t size() const { return regions_.size(); }

 private:
  struct Region {
    std::uint64_t address = 0;  // in the client
    std::uint64_t length = 0;
    Fd memory;
  };
  std::unordered_map<std::uint32_t, Region> regions_;
};

}  // namespace rkv::rdma::shm
