// A client's knowledge of the server's watermarks (LAYOUT.md: "wal watermark", "sync watermark"),
// and the durability of a version that follows from it.
//
// Invariants:
//  WMARK-1  The marks held here never exceed what the server published in this epoch: in a mark
//      line that verified, or in an answer on this connection. Marks only rise, so a mark stays
//      true; an old line or a late answer changes nothing.
//  WMARK-2  A version is durable if it is not above the mark. The server's marks are contiguous in
//      commit order (CLOG-5, APPL-3 of server/persistence), and versions of earlier boots are below
//      all of them.
//  WMARK-3  A version that no mark covers is reported as kMemory.
//
// Thread safety: a value.
#pragma once

#include <algorithm>

#include "common/layout.h"
#include "rkv/durability.h"

namespace rkv::client {

class Watermarks {
 public:
  void learn(Version wal, Version sync) {
    sync_ = std::max(sync_, sync);
    wal_ = std::max({wal_, wal, sync});  // what is synced has been written
  }
  Durability of(Version version) const {
    if (version <= sync_) return Durability::kSync;
    return version <= wal_ ? Durability::kWal : Durability::kMemory;
  }
  // Returns true if the server has published no mark. A server without a disk never does.
  bool none() const { return wal_.bits == 0; }
  Version wal() const { return wal_; }
  Version sync() const { return sync_; }

 private:
  Version wal_;
  Version sync_;
};

}  // namespace rkv::client
