// Detects that two servers of a map are one process. It compares epochs: each start of a kvserver
// draws a random epoch, so no two starts have the same.
//
// Thread safety: as the cluster.
#pragma once

#include <vector>

#include "client/engine/connector.h"

namespace rkv::client {

class DuplicateServerCheck final : public ConnectPolicy {
 public:
  // Adds a session whose server must differ from the others. REQUIRES forget() before it is
  // destroyed.
  void watch(const Session& session) { sessions_.push_back(&session); }
  void forget(const Session& session) { std::erase(sessions_, &session); }
  Status admit(const Session& session, std::uint64_t epoch) override {
    for (const Session* const other : sessions_) {
      if (other == &session || other->map.epoch() != epoch) continue;
      twin_ = other;
      return fail(Code::kInvalidArgument,
                  "the list already has this server under another address: name it once");
    }
    return {};
  }
  // The session that is already connected to the server refused last.
  const Session* twin() const { return twin_; }

 private:
  std::vector<const Session*> sessions_;
  const Session* twin_ = nullptr;
};

}  // namespace rkv::client
