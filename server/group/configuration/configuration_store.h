// ConfigurationStore: keeps a group's configuration so that all its replicas agree on it. It is a
// linearizable register with revisions: etcd (etcd_configuration_store.h), or one of a test.
//
//   RKV_ASSIGN_OR_RETURN(const auto stored, store.read(deadline));
//   RKV_ASSIGN_OR_RETURN(const auto next, taken_over(*stored.configuration, me, least_term));
//   const auto revision = store.replace(stored.revision, next, deadline);
//
// Invariants that an implementation keeps:
//  STORED-1  Revisions rise with each change. replace() stores only if the current revision is the
//      given one.
//  STORED-2  replace() reports success only if its configuration was stored, once.
//  STORED-3  An error whose write is kNotApplied means that the change was not stored and never
//      will be. Otherwise it may be stored at any later time, even after reads that show the old
//      configuration. Once a read shows a higher revision, the change is certainly no longer
//      pending.
//
// Thread safety: any thread. Every call blocks, at most until its deadline and the implementation's
// stated margin.
#pragma once

#include <cstdint>
#include <optional>

#include "common/clock.h"
#include "rkv/result.h"
#include "server/group/configuration/configuration.h"

namespace rkv::server {

class ConfigurationStore {
 public:
  struct Stored {
    std::optional<GroupConfiguration> configuration{};  // nullopt: there is none
    std::int64_t revision = 0;                          // 0: there is none
  };

  virtual ~ConfigurationStore() = default;

  // Returns the configuration at some moment during the call. kTimeout, kUnreachable: no answer.
  // kCorrupt: the stored value is not a configuration. kPermission, kRejected: the store refuses.
  virtual Result<Stored> read(const Deadline& deadline) = 0;
  // Stores `next` if the current revision is `revision` (0: if there is none). Returns the new
  // revision. kConflict: the current revision is another one. Other errors: as for read(); their
  // `write` says whether `next` may have been stored (STORED-3).
  virtual Result<std::int64_t> replace(std::int64_t revision, const GroupConfiguration& next,
                                       const Deadline& deadline) = 0;
  // Finds out whether the store would take a change now: sends one that never takes effect. Errors:
  // as for replace(), except kConflict.
  virtual Status try_storing(const Deadline& deadline) = 0;
  // Waits until the current revision differs from `revision`, and returns what is stored then.
  // kTimeout: at the deadline the revision was still the same, or is not known.
  virtual Result<Stored> wait_for_other(std::int64_t revision, const Deadline& deadline) = 0;
};

}  // namespace rkv::server
