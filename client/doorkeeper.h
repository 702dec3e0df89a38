// Notices that two servers of a map are one process: by the epoch, which is random and new at each
// start of a kvserver, so that no two have the same.
//
// Thread safety: as the cluster.
#pragma once

#include <vector>

#include "client/engine.h"

namespace rkv::client {

class Doorkeeper final : public Gate {
 public:
  // Engines whose servers must differ. They leave before they are destroyed.
  void watch(const Engine& engine) { engines_.push_back(&engine); }
  void forget(const Engine& engine) { std::erase(engines_, &engine); }
  Status admit(const Engine& engine, std::uint64_t epoch) override {
    for (const Engine* const other : engines_) {
      if (other == &engine || other->epoch() != epoch) continue;
      twin_ = other;
      return fail(Code::kInvalidArgument,
                  "this is a server that the list has by another address already: name it once");
    }
    return {};
  }
  // Whose server the last one refused was.
  const Engine* twin() const { return twin_; }

 private:
  std::vector<const Engine*> engines_;
  const Engine* twin_ = nullptr;
};

}  // namespace rkv::client
