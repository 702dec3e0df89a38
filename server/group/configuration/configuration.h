// GroupConfiguration: the members of a replicated group, which of them are in sync, and which is
// the primary. It is one value in etcd. Every change is a new value, made here and stored by a
// transaction that compares the revision (configuration_store.h).
//
// A member is a name and an address. Not a name is in sync, but one process of that name,
// identified by the epoch of its start. So a process that has just started is in sync in no
// configuration.
//
//   RKV_ASSIGN_OR_RETURN(const GroupConfiguration next, taken_over(current, me, least_term));
//
// Invariants, which parse_configuration() checks as far as one configuration shows them:
//  GROUP-1  `number` is 1 for the group's first configuration, and each change raises it by 1.
//  GROUP-2  `term` never falls. A change that names a new primary raises it, so that no term has
//      two primaries.
//  GROUP-3  The primary, if there is one, is in sync. So is at least one member.
//  GROUP-4  A take-over adds nobody to those in sync, and removes the last primary. So all
//      acknowledged writes are on every member that is in sync before and after. (A person who
//      forces a primary gives this up.)
//  GROUP-5  `added_in` is the configuration since which a process has been in sync without a break.
//      A process that comes back gets another one: its earlier answers do not count.
//  GROUP-6  A revoked secret stays revoked through every change except without_revoked(), which a
//      person makes.
//
// The text has a format: the oldest one that can express all of the configuration. A release that
// does not know the format of a text leaves the text alone, since its next change would lose the
// unknown fields. So a new field that may be lost needs no new format; any other one does.
//
// Thread safety: values, no shared state.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/auth/revoked_secret.h"
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
  std::uint64_t epoch = 0;     // of its process in sync; 0: none is
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
  // Secrets of users that no replica accepts, ascending; kMostRevoked at most.
  std::vector<RevokedSecret> revoked{};

  const Member* find(std::string_view name) const;
  // Whether this very process (its epoch) is in sync.
  bool has_in_sync(const Replica& replica) const;
  bool has_primary(const Replica& replica) const;
  std::size_t in_sync_count() const;
  bool has_revoked(const RevokedSecret& secret) const;
  bool operator==(const GroupConfiguration&) const = default;
};

inline constexpr std::size_t kMostRevoked = 128;

// Returns the configuration as JSON, which people can also read with etcdctl.
std::string to_text(const GroupConfiguration& configuration);
// Unknown fields are those of a later release: they are ignored, and lost with the next change.
// kCorrupt: not a configuration, one of another format, or one that breaks an invariant.
Result<GroupConfiguration> parse_configuration(std::string_view text);

// Each change returns the next configuration, or kConflict with the reason; then nothing must be
// stored. `least_term`: above every term that the replica's disk has seen. kOutOfRange: there is no
// higher term.

// The first configuration: the replica is the primary, and the only member.
Result<GroupConfiguration> founded(std::uint64_t group, const Replica& replica,
                                   std::uint32_t least_term);
// A replica that has all data becomes in sync. The primary stores this.
Result<GroupConfiguration> joined(const GroupConfiguration& now, const Replica& replica);
// A replica does not answer, and is no longer in sync. The primary stores this.
Result<GroupConfiguration> left(const GroupConfiguration& now, const Replica& replica);
// A replica that is in sync becomes the primary. The last primary is no longer in sync.
Result<GroupConfiguration> taken_over(const GroupConfiguration& now, const Replica& replica,
                                      std::uint32_t least_term);
// A replica has started again. Its last process is no longer in sync, nor the primary. If that was
// the last one in sync, the new process becomes the primary: its disk has all that was acknowledged
// at the level `wal` or `sync`.
Result<GroupConfiguration> restarted(const GroupConfiguration& now, const Replica& replica,
                                     std::uint32_t least_term);
// A person makes a replica the primary, and the only one in sync. Data that only the others have is
// lost.
Result<GroupConfiguration> forced(const GroupConfiguration& now, const Replica& replica,
                                  std::uint32_t least_term);
// Removes a member that is not in sync.
Result<GroupConfiguration> without(const GroupConfiguration& now, std::string_view name);
// Revokes the secrets of users that are not revoked yet. The primary stores this.
Result<GroupConfiguration> with_revoked(const GroupConfiguration& now,
                                        std::span<const RevokedSecret> secrets);
// A person takes the user's revoked secrets off the list, or all secrets if `user` is empty.
Result<GroupConfiguration> without_revoked(const GroupConfiguration& now, std::string_view user);

}  // namespace rkv::server
