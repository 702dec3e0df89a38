// What a client knows of the server's watermarks (LAYOUT.md, the mark lines), and what that says of
// a version.
//
// Invariants:
//  V1  What is known is never more than the server has said in this epoch: by a mark line that
//      verified, or by an answer on this connection. Marks only rise, so whatever was learnt stays
//      true; an old line or a late answer takes nothing back.
//  V2  A version is durable if it is not above the mark: the server's marks are contiguous in
//      commit order (C5, A3 of server/persistence), and versions of earlier boots are below all of
//      them.
//  V3  Nothing known, nothing claimed: a version that no mark covers is called kMemory.
//
// Thread safety: a value.
#pragma once

#include <algorithm>

#include "common/layout.h"
#include "rkv/durability.h"

namespace rkv::client {

class Marks {
 public:
  void learn(Version wal, Version sync) {
    sync_ = std::max(sync_, sync);
    wal_ = std::max({wal_, wal, sync});  // what is synced has been written
  }
  Durability of(Version version) const {
    if (version <= sync_) return Durability::kSync;
    return version <= wal_ ? Durability::kWal : Durability::kMemory;
  }
  // Whether the server has said anything: one without a disk never does.
  bool none() const { return wal_.bits == 0; }
  Version wal() const { return wal_; }
  Version sync() const { return sync_; }

 private:
  Version wal_;
  Version sync_;
};

}  // namespace rkv::client
