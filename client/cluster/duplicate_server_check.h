// Detects that two servers of a map are one process. It compares epochs: each start of a kvserver
// draws a random epoch, so no two starts have the same.
//
// Thread safety: as the cluster.
#pragma once

#include <vector>

#include "client/engine/engine.h"

namespace rkv::client {

class DuplicateServerCheck final : public ConnectPolicy {
 public:
  // Adds an engine whose server must differ from the others. REQUIRES forget() before it is
  // destroyed.
  void watch(const Engine& engine) { engines_.push_back(&engine); }
  void forget(const Engine& engine) { std::erase(engines_, &engine); }
  Status admit(const Engine& engine, std::uint64_t epoch) override {
    for (const Engine* const other : engines_) {
      if (other == &engine || other->epoch() != epoch) continue;
      twin_ = other;
      return fail(Code::kInvalidArgument,
                  "the list already has this server under another address: name it once");
    }
    return {};
  }
  // The engine that is already connected to the server refused last.
  const Engine* twin() const { return twin_; }

 private:
  std::vector<const Engine*> engines_;
  const Engine* twin_ = nullptr;
};

}  // namespace rkv::client
