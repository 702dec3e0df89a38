// Regions: the memory of this process that peers may READ or change, by key.
//
// Invariants:
//  TCPREG-1  After remove() has returned, nobody accesses the region's memory for a peer: each
//      access holds the lock shared (Held).
//  TCPREG-2  A key is drawn at random, and no two regions have the same key at a time; 0 is not a
//      key.
//  TCPREG-3  at() returns only memory that is wholly inside a region, and only if the region's
//      access and the connection's grant allow it. No sum can overflow.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <shared_mutex>
#include <unordered_map>

#include "rdma/transport/tcp/protocol.h"
#include "rdma/transport/transport.h"

namespace rkv::rdma::tcp {

class Regions {
 public:
  std::uint32_t add(MutableBytes memory, Access access);  // REQUIRES: not kLocal
  // Blocks until no peer's request uses the memory: some microseconds, or longer if many threads
  // send READ data.
  void remove(std::uint32_t key);

  // Keeps all regions in place while it exists.
  class Held {
   public:
    explicit Held(Regions& regions) : regions_(regions), lock_(regions.mutex_) {}
    // Returns the memory; nullptr: the peer may not access it.
    std::byte* at(const Target& target, std::uint64_t length, Access wanted, Access granted) const;

   private:
    Regions& regions_;
    std::shared_lock<std::shared_mutex> lock_;
  };

 private:
  struct Entry {
    MutableBytes memory;
    Access access = Access::kLocal;
  };
  std::shared_mutex mutex_;
  std::unordered_map<std::uint32_t, Entry> entries_;
};

}  // namespace rkv::rdma::tcp
