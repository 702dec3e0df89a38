// Regions: the memory of this process that peers may READ or change, by key.
//
// Invariants:
//  TCPREG-1  Nobody looks at a region's memory for a peer after remove() has returned: who does
//      holds the lock shared (Held).
//  TCPREG-2  A key is drawn at random and is not given twice at a time; 0 is none.
//  TCPREG-3  at() gives only memory that is wholly inside a region, whose access and the
//      connection's allow it. No sum can overflow.
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
  // Blocks until no peer's request uses the memory: some microseconds, more where many threads send
  // what is READ.
  void remove(std::uint32_t key);

  // Keeps all regions in place.
  class Held {
   public:
    explicit Held(Regions& regions) : regions_(regions), lock_(regions.mutex_) {}
    // nullptr: the peer may not.
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
