// GroupConfiguration: who belongs to a replicated group, which members are in sync, and who is the
// primary. One value in etcd; every change is a new value, made here and stored by a transaction
// that compares the revision (configuration_store.h).
//
// A member is a name and an address. In sync is never a name but one process of that name, known by
// the epoch of its start: a process that has just started is in sync in no configuration.
//
//   RKV_ASSIGN_OR_RETURN(const GroupConfiguration next, taken_over(current, me, least_term));
//
// Invariants, which parse_configuration() checks as far as one configuration shows them:
//  GROUP-1  `number` is 1 for the group's first configuration, and each change raises it by 1.
//  GROUP-2  `term` never falls. A change that names a primary who was not the primary raises it, so
//      that no term has two primaries.
//  GROUP-3  The primary, if there is one, is in sync. So is at least one member.
//  GROUP-4  A take-over makes nobody in sync, and the last primary no longer is: what was
//      acknowledged is on every member that is in sync before and after. (A person who forces a
//      primary gives this up.)
//  GROUP-5  `added_in` is since which configuration a process has been in sync without a break. A
//      process that comes back has another one: what it answered before does not count.
//
// Thread safety: values, no shared state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rkv/result.h"

namespace rkv::server {

// A process that serves a group as a replica.
struct Replica {
  std::string name;         // 1 to 64 letters, digits, '.', '_', '-'
  std::string address;      // HOST:PORT, for the other replicas and for clients
  std::uint64_t epoch = 0;  // random for each start of the process, never 0
};

struct Member {
  std::string name;
  std::string address;
  std::uint64_t epoch = 0;     // of its process that is in sync; 0: none is
  std::uint64_t added_in = 0;  // the configuration that made this process in sync; 0: none is
  bool in_sync() const { return epoch != 0; }
  bool operator==(const Member&) const = default;
};

struct GroupConfiguration {
  std::uint64_t group =
      0;  // drawn when the group was founded: a data directory belongs to one group
  std::uint64_t number = 0;
  std::uint32_t term = 0;
  std::string primary;          // a member's name; empty: there is none
  std::vector<Member> members;  // ascending by name

  const Member* find(std::string_view name) const;
  // Whether this very process is in sync.
  bool has_in_sync(const Replica& replica) const;
  bool has_primary(const Replica& replica) const;
  std::size_t in_sync_count() const;
  bool operator==(const GroupConfiguration&) const = default;
};

// JSON, for people with etcdctl too.
std::string to_text(const GroupConfiguration& configuration);
// kCorrupt: not a configuration, or one that breaks an invariant.
Result<GroupConfiguration> parse_configuration(std::string_view text);

// Each change returns the next configuration, or kConflict with the reason: then nothing is to be
// stored. `least_term`: above every term that the replica's disk has seen; kOutOfRange: there is no
// higher term.

// The first configuration: the replica is the primary, and the only member.
Result<GroupConfiguration> founded(std::uint64_t group, const Replica& replica,
                                   std::uint32_t least_term);
// A replica that has all data is in sync from now on. For the primary to store.
Result<GroupConfiguration> joined(const GroupConfiguration& now, const Replica& replica);
// A replica does not answer, and is no longer in sync. For the primary to store.
Result<GroupConfiguration> left(const GroupConfiguration& now, const Replica& replica);
// A replica that is in sync becomes the primary. The last primary is no longer in sync.
Result<GroupConfiguration> taken_over(const GroupConfiguration& now, const Replica& replica,
                                      std::uint32_t least_term);
// A replica has started again. Its last process is no longer in sync, nor the primary. If that was
// the last one in sync, the new process becomes the primary: its disk has all that was acknowledged
// at the level `wal` or `sync`.
Result<GroupConfiguration> restarted(const GroupConfiguration& now, const Replica& replica,
                                     std::uint32_t least_term);
// A person makes a replica the primary, and the only one in sync. What the others have and this one
// does not is lost.
Result<GroupConfiguration> forced(const GroupConfiguration& now, const Replica& replica,
                                  std::uint32_t least_term);
// A member that is not in sync is forgotten.
Result<GroupConfiguration> without(const GroupConfiguration& now, std::string_view name);

}  // namespace rkv::server
