// Membership: the life of one replica, from its start to its end. It reads the group's
// configuration, and decides whether to found the group, follow a primary, take over, or end.
//
//   Membership membership(log, me, group, new_group, times);
//   membership.read(stored, now);                      // whenever a configuration was read
//   if (const auto change = membership.wanted(now))    // store it; then read
//     store.replace(change->revision, change->next, deadline);
//
// Invariants (rules of tests/model/README.md):
//  MEMBER-1  A replica acts as the primary only in a term that it has read, and only when its own
//      promises are over. Its answers are promises. Another one begins whenever it learns that it
//      is in sync, again each time that it was added.
//  MEMBER-2  A change is sent again, with the same comparison, until a newer revision is read.
//  MEMBER-3  A primary ends if it reads of another primary, or that it is not in sync any more.
//  MEMBER-4  A backup waits ReplicationTimes::deposing after it last heard the primary, and after
//      it read which replica that is. Time in which it stood still does not count. So a primary
//      that hears others has left it out before, and one that hears nobody (PRIMARY-11) has not.
//  MEMBER-5  If a replica's disk belonged to no group at its start, its data is missing. So it
//      never becomes the primary of an existing group as the last one in sync.
//  MEMBER-6  A replica takes over at once when the primary of a term has handed over to it
//      (PRIMARY-7). If its own term is the next one, it also acts at once: nobody relies on a
//      promise any more.
//  MEMBER-7  Only a replica that was told to, and whose disk belongs to no group, founds a group.
//  MEMBER-8  A configuration of another group, or of this one's past, changes nothing. Past means:
//      a lower number or term than this replica has known, in this process or before it. A replica
//      that is starting ends then. A running one continues as if the store did not answer.
//  MEMBER-9  A process may take the place of another one of its own name that was alone in sync in
//      a group of more. It acts only when the lease that the store gave the other one is over
//      (PRIMARY-10), unless that process is known to have ended. Until then it adds nobody: the
//      added one might take over without that wait.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "server/group/configuration/configuration_store.h"
#include "server/group/rules/backup.h"
#include "server/group/rules/primary.h"

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

  // Facts that are known at the start of the process.
  struct Start {
    std::uint64_t group = 0;           // of the disk; 0: it belongs to no group yet
    std::uint64_t number = 0;          // of the newest configuration that the disk knows of
    std::uint32_t term = 0;            // likewise
    std::uint64_t new_group = 0;       // the number of a group that it may found; 0: it must not
    bool last_has_ended = false;       // the last process that used the disk is known to have ended
    bool alone_without_store = false;  // a primary that is alone needs no lease (PRIMARY-10)
  };
  // Why the store's configuration is not believed (MEMBER-8).
  enum class Misled : std::uint8_t { kNo, kByAnotherGroup, kByThePast };

  // The log must outlive the membership.
  Membership(ReplicaLog& log, Replica replica, const Start& start, const ReplicationTimes& times);

  // Takes the result of a read; results may come in any order. `asked_at`: a time before the store
  // was asked.
  void read(const ConfigurationStore::Stored& stored, Nanos asked_at, Nanos now);
  void read(const ConfigurationStore::Stored& stored, Nanos now) { read(stored, now, now); }
  // Call it often, but after everything that was received is processed.
  std::optional<Change> wanted(Nanos now);

  // Whether this is the wanted change, and need not be stored. If so, the caller may call
  // give_up(), provided that it knows that the change was not stored and never will be.
  bool may_give_up(const Change& change) const;
  void give_up();
  // MEMBER-8. misled_since(): 0 if the store's configuration is believed.
  Misled misled() const { return misled_; }
  Nanos misled_since() const { return misled_since_; }
  // The store has no group of this name, and this replica may not found it.
  bool lacks_group() const { return has_read_ && !configuration_ && start_.new_group == 0; }

  // Whether the store has answered lately (Primary::set_store_answers).
  void set_store_answers(bool answers) {
    if (primary_ != nullptr) primary_->set_store_answers(answers);
  }
  // Until `until` this replica does not take over: its disk is stuck, so another one should, or the
  // primary is about to leave this one out.
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
  // Whether this replica may tick and answer as the primary.
  bool acts(Nanos now) const { return primary_ != nullptr && now >= acts_from_; }
  // Whether this primary may not act yet because of MEMBER-9.
  bool waits_for_alone(Nanos now) const { return waits_for_alone_ && now < acts_from_; }
  std::int64_t revision() const { return revision_; }
  // The newest configuration that was read; nullopt: none.
  const std::optional<GroupConfiguration>& configuration() const { return configuration_; }
  bool is_in_sync() const { return configuration_ && configuration_->has_in_sync(replica_); }

 private:
  Misled misled_by(const GroupConfiguration& configuration) const;
  void take(const ConfigurationStore::Stored& stored, Nanos asked_at, Nanos now);
  void obey(bool was_in_sync, Nanos now);
  void begin(const GroupConfiguration& configuration);
  void follow(const GroupConfiguration& configuration, Nanos now);
  void lead(const GroupConfiguration& configuration, bool was_in_sync, Nanos now);
  void end(std::string why, bool may_start_again = true);
  std::optional<GroupConfiguration> next_configuration(Nanos now);
  std::optional<GroupConfiguration> next_of_follower(Nanos now);
  std::uint32_t least_term() const;  // 0: there is none

  ReplicaLog& log_;
  const Replica replica_;
  const Start start_;
  std::uint64_t group_;
  const ReplicationTimes times_;
  Role role_ = Role::kStarting;
  std::string why_ended_;
  bool may_start_again_ = true;
  std::optional<GroupConfiguration> configuration_{};
  bool has_read_ = false;
  std::int64_t revision_ = 0;
  Misled misled_ = Misled::kNo;
  Nanos misled_since_ = 0;
  std::optional<Change> change_{};  // sent, and not known to be over
  std::unique_ptr<Backup> backup_;
  std::unique_ptr<Primary> primary_;
  std::uint64_t added_in_ = 0;    // the membership that joined_at_ belongs to
  Nanos joined_at_ = 0;           // when this replica learnt that it is in sync
  std::uint32_t known_term_ = 0;  // the term that known_at_ belongs to
  Nanos known_at_ = 0;            // when it read who is primary
  Nanos acts_from_ = 0;
  bool waits_for_alone_ = false;  // until acts_from_ (MEMBER-9)
  Nanos looked_at_ = 0;           // when wanted() was called last
  Nanos quiet_since_ = 0;         // since when the primary is silent
  Nanos hesitates_until_ = 0;
};

}  // namespace rkv::server
