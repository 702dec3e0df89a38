// Membership: the life of one replica, from its start to its end. It reads the group's
// configuration, and decides whether to found the group, to follow a primary, to take over, or to
// end.
//
//   Membership membership(log, me, group, new_group, times);
//   membership.read(stored, now);                      // whenever a configuration was read
//   if (const auto change = membership.wanted(now))    // store it; then read
//     store.replace(change->revision, change->next, deadline);
//
// Invariants (rules of tests/model/README.md):
//  MEMBER-1  A replica acts as the primary only in a term that it has read, and not before its own
//      promises are over: those of its answers, and one that begins when it learns that it is in
//      sync, again each time that it was added.
//  MEMBER-2  A change is sent again, with the same comparison, until a newer revision is read.
//  MEMBER-3  A primary that reads of another primary, or is not in sync any more, ends.
//  MEMBER-4  A backup waits the whole failure time since it heard the primary, since it read which
//      one there is, and since it stood still.
//  MEMBER-5  A replica whose disk belonged to no group when it started never becomes the primary
//      of a group that exists as the last one in sync: its data is missing.
//  MEMBER-6  A replica that the primary of a term has handed over to (PRIMARY-7) takes over at
//      once, and if its term is the next one, it acts at once: no promise is left that anybody
//      relies on.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "server/group/configuration_store.h"
#include "server/replication/backup.h"
#include "server/replication/primary.h"

namespace rkv::server {

class Membership {
 public:
  enum class Role : std::uint8_t {
    kStarting,   // has not read a configuration yet
    kFollowing,  // a backup, in sync or not: connects to primary()
    kLeading,    // the primary, acting or waiting until it may
    kEnded,      // the process must end, and may start again
  };
  struct Change {
    std::int64_t revision = 0;
    GroupConfiguration next;
  };

  // `group`: 0 on a disk that belongs to no group yet; then `new_group` is the number of the group
  // that this replica would found. The log must outlive the membership.
  Membership(ReplicaLog& log, Replica replica, std::uint64_t group, std::uint64_t new_group,
             const ReplicationTimes& times);

  // Results of reads may come in any order.
  void read(const ConfigurationStore::Stored& stored, Nanos now);
  // Call it often, but after everything that was received is processed.
  std::optional<Change> wanted(Nanos now);

  // Whether the store has answered lately (Primary::set_store_answers).
  void set_store_answers(bool answers) {
    if (primary_ != nullptr) primary_->set_store_answers(answers);
  }
  // Until then this replica takes over nothing: its disk is stuck, so another one should, or the
  // primary is about to leave it out.
  void hesitate(Nanos until) { hesitates_until_ = std::max(hesitates_until_, until); }

  Role role() const { return role_; }
  const std::string& why_ended() const { return why_ended_; }
  // Whether a new process of this replica would not end for the same reason.
  bool may_start_again() const { return may_start_again_; }
  // 0: not known yet.
  std::uint64_t group() const { return group_; }
  // Whether this replica's name is the only one in the group: it may bring data.
  bool is_only_member() const {
    return configuration_ && configuration_->members.size() == 1 &&
           configuration_->members.front().name == replica_.name;
  }
  // The primary to connect to; nullptr: there is none, or it is this replica.
  const Member* primary_member() const;
  Backup& backup() { return *backup_; }  // REQUIRES: not kStarting
  const Backup& backup() const { return *backup_; }
  Primary* primary() { return primary_.get(); }  // nullptr: not kLeading
  const Primary* primary() const { return primary_.get(); }
  // Whether it may tick and answer.
  bool acts(Nanos now) const { return primary_ != nullptr && now >= acts_from_; }
  std::int64_t revision() const { return revision_; }
  // The newest that was read; nullopt: none.
  const std::optional<GroupConfiguration>& configuration() const { return configuration_; }
  bool is_in_sync() const { return configuration_ && configuration_->has_in_sync(replica_); }

 private:
  void begin(const GroupConfiguration& configuration);
  void follow(const GroupConfiguration& configuration, Nanos now);
  void lead(const GroupConfiguration& configuration, Nanos now);
  void end(std::string why, bool may_start_again = true);
  std::optional<GroupConfiguration> next_configuration(Nanos now);
  std::optional<GroupConfiguration> next_of_follower(Nanos now);
  std::uint32_t least_term() const;  // 0: there is none

  ReplicaLog& log_;
  const Replica replica_;
  std::uint64_t group_;
  const bool had_group_;  // its disk, when the process started
  const std::uint64_t new_group_;
  const ReplicationTimes times_;
  Role role_ = Role::kStarting;
  std::string why_ended_;
  bool may_start_again_ = true;
  std::optional<GroupConfiguration> configuration_{};
  bool has_read_ = false;
  std::int64_t revision_ = 0;
  std::optional<Change> change_{};  // sent, and not known to be over
  std::unique_ptr<Backup> backup_;
  std::unique_ptr<Primary> primary_;
  std::uint64_t added_in_ = 0;    // the membership that joined_at_ belongs to
  Nanos joined_at_ = 0;           // when this replica learnt that it is in sync
  std::uint32_t known_term_ = 0;  // the term that known_at_ belongs to
  Nanos known_at_ = 0;            // when it read who is primary
  Nanos acts_from_ = 0;
  Nanos looked_at_ = 0;  // of the last call of wanted()
  Nanos resumed_at_ = 0;
  Nanos hesitates_until_ = 0;
};

}  // namespace rkv::server
