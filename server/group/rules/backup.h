// Backup: what a replica does while it is not the primary. It takes entries behind its own last
// one, answers what it has, and knows until when its answers bind it.
//
// Invariants (rules of tests/model/README.md):
//  BACKUP-1  A message of a lower term than one that was obeyed is refused.
//  BACKUP-2  Entries are taken behind the last one only. Only the first message of a connection
//      cuts the log: at the last position that both logs have, and never below the mark.
//  BACKUP-3  marks() never fall, and are never above the log: engine() entries are all replicated.
//  BACKUP-4  acts_not_before() is later than the last answer by the lease's length, lengthened by
//      the drift.
//  BACKUP-5  time() is not below the primary's estimate of it when the primary lets this replica
//      join. From then on it is not above the times that the group's primaries have sent
//      (joined()).
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <utility>

#include "server/group/rules/group_time.h"
#include "server/group/rules/messages.h"
#include "server/group/rules/replication_times.h"

namespace rkv::server {

class Backup {
 public:
  // The log must outlive the backup.
  Backup(ReplicaLog& log, Replica replica, std::uint64_t group, const ReplicationTimes& times)
      : log_(log), replica_(std::move(replica)), group_(group), times_(times) {}

  // A connection to a primary was made: returns the first message.
  Hello hello();
  // Returns false if the primary is not obeyed, or its log does not fit. The connection must end
  // then.
  bool receive(const Entries& entries, Nanos now);
  // The primary has given up its lease. Returns false as above.
  bool receive(const HandOver& hand_over);
  // Returns the answer, if there is anything new since the last one.
  std::optional<Answer> answer(Nanos now);
  // A part of a message has come: a whole one may take longer than the failure time. So the primary
  // is alive. To show that this replica is, too, repeats the last answer now and then.
  std::optional<Answer> receives(Nanos now);
  // Says which versions this replica's own disk has.
  void on_disk(std::uint64_t wal, std::uint64_t sync);
  // Says whether this replica could serve clients as the primary; true at first.
  void set_may_lead(bool may) {
    has_news_ = has_news_ || may != may_lead_;
    may_lead_ = may;
  }
  // From now on lower terms are refused.
  void obey(std::uint32_t term) {
    if (term <= term_) return;
    term_ = term;
    time_of_term_ = {};
  }
  // This replica is in sync from now on, and was not before. Meanwhile a primary that was alone,
  // and did not know the group's time, may have begun a new one by its wall clock. If this replica
  // became the primary with an older time that is ahead, keys would end early. So it keeps only the
  // time that it heard in the current term. That is enough: it has answered those messages, or they
  // come from a primary whose time is not below that of the one that let it join.
  void joined() {
    if (time_of_term_.is_known()) time_ = time_of_term_;
  }

  std::uint32_t term() const { return term_; }
  const Marks& marks() const { return marks_; }
  // No primary that this replica has heard judges by a later time than this.
  const TimeOfBackup& time() const { return time_; }
  std::uint64_t wal() const { return wal_; }
  std::uint64_t sync() const { return sync_; }
  bool may_lead() const { return may_lead_; }
  Nanos heard_at() const { return heard_at_; }
  // Whether the primary of this term has handed over to this replica.
  bool is_told(std::uint32_t term) const { return told_ != 0 && told_ == term; }
  Nanos acts_not_before() const { return answered_at_ + times_.wait_of_backup(); }

 private:
  Answer say(Nanos now);
  bool follows(const Entries& entries);

  ReplicaLog& log_;
  const Replica replica_;
  const std::uint64_t group_;
  const ReplicationTimes times_;
  std::uint32_t term_ = 0;
  std::uint64_t number_ = 0;  // of the newest message of this connection
  std::uint32_t told_ = 0;    // the term of the primary that has handed over to this replica
  Marks marks_;
  TimeOfBackup time_;
  TimeOfBackup time_of_term_;  // by the messages of term_ only
  std::uint64_t wal_ = 0;
  std::uint64_t sync_ = 0;
  bool may_lead_ = true;
  bool has_news_ = false;
  Nanos heard_at_ = 0;
  Nanos answered_at_ = 0;
};

}  // namespace rkv::server
