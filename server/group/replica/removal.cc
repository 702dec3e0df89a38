#include "server/group/replica/removal.h"

#include <utility>

#include "common/log.h"

namespace rkv::server {

void Removal::begin(Primary& primary, const std::string& name, Done done) {
  if (const Status begun = primary.remove(name); !begun) return done(begun);
  name_ = name;
  done_ = std::move(done);
}

void Removal::step(const Primary& primary) {
  if (!done_ || primary.is_removing()) return;
  const Done done = std::exchange(done_, nullptr);
  if (const Member* const member = primary.configuration().find(name_); member != nullptr) {
    if (member->in_sync())
      return done(fail(Code::kConflict, "the replica has come back: it is in sync again"));
    return done(fail(Code::kBusy, "etcd stores no change: its log and etcdctl alarm list say why"));
  }
  log_info(EventName("replica_removed"), "replica {} has left the group", field("replica", name_));
  done({});
}

}  // namespace rkv::server
