// ConfigurationStore: where a group's configuration is kept, so that all its replicas agree on it.
// A linearizable register with revisions: etcd (etcd_configuration_store.h), or one of
// a test's own.
//
//   RKV_ASSIGN_OR_RETURN(const auto stored, store.read(deadline));
//   RKV_ASSIGN_OR_RETURN(const auto next, taken_over(*stored.configuration, me, least_term));
//   const auto revision = store.replace(stored.revision, next, deadline);
//
// Invariants that an implementation keeps:
//  STORED-1  Revisions rise with each change. replace() stores only if the revision is the given
//      one.
//  STORED-2  replace() reports success only if its configuration was stored, once.
//  STORED-3  An error whose write is kNotApplied means that it was not stored and never will be.
//      Otherwise it may be stored at any later time, even after reads that show the old one. It is
//      certain to be no longer pending once a read shows a higher revision.
//
// Thread safety: any thread. Every call blocks, at most until its deadline and the implementation's
// stated margin.
#pragma once

#include <cstdint>
#include <optional>

#include "common/clock.h"
#include "rkv/result.h"
#include "server/group/configuration.h"

namespace rkv::server {

class ConfigurationStore {
 public:
  struct Stored {
    std::optional<GroupConfiguration> configuration{};  // nullopt: there is none
    std::int64_t revision = 0;                          // 0: there is none
  };

  virtual ~ConfigurationStore() = default;

  // The configuration at some moment during the call. kTimeout, kUnreachable: no answer. kCorrupt:
  // what is stored is not a configuration. kPermission, kRejected: the store refuses.
  virtual Result<Stored> read(const Deadline& deadline) = 0;
  // Stores `next` if the revision is `revision` (0: if there is none). Returns the new revision.
  // kConflict: the revision is another one. Other errors: as read(); `write` says whether it may
  // have been stored (STORED-3).
  virtual Result<std::int64_t> replace(std::int64_t revision, const GroupConfiguration& next,
                                       const Deadline& deadline) = 0;
  // Waits until the revision differs from `revision`, and returns what is stored then. kTimeout: it
  // was still that one at the deadline, or it is not known.
  virtual Result<Stored> wait_for_other(std::int64_t revision, const Deadline& deadline) = 0;
};

}  // namespace rkv::server
