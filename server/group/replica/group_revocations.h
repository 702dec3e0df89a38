// GroupRevocations: administrators that have revoked secrets of users, and wait until etcd has
// stored that.
//
// Thread safety: none: the replicator's thread.
#pragma once

#include <functional>
#include <vector>

#include "common/clock.h"
#include "server/group/rules/primary.h"

namespace rkv::server {

class GroupRevocations {
 public:
  using Done = std::function<void(const Status&)>;
  // How long an administrator's request waits for etcd; less than its client does by default.
  static constexpr Nanos kPatience = 3 * kNanosPerSecond;

  // `done` is called now or by a later step(). kConflict: the group's list is full. kIo: etcd has
  // not stored the secrets in time. They will still be stored if this replica remains the primary
  // until etcd takes changes again (PRIMARY-12).
  void begin(Primary& primary, std::vector<RevokedSecret> secrets, Done done, Nanos now);
  void step(const Primary& primary, Nanos now);

 private:
  struct Waiting {
    std::vector<RevokedSecret> secrets;
    Done done;
    Nanos until = 0;
  };
  std::vector<Waiting> waiting_;
};

}  // namespace rkv::server
