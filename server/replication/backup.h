// Backup: what a replica does as long as it is not the primary. It takes entries behind its own
// last one, answers what it has, and knows until when its answers bind it.
//
// Invariants (rules of tests/model/README.md):
//  BACKUP-1  A message of a lower term than one that was obeyed is refused.
//  BACKUP-2  Entries are taken behind the last one only. The log is cut by the first message of a
//      connection only, at the last position that both logs have, and never below the mark.
//  BACKUP-3  marks() never fall, and are never above the log: engine() entries are all replicated.
//  BACKUP-4  acts_not_before() is the lease's length, longer by the drift, after the last answer.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <utility>

#include "server/replication/messages.h"
#include "server/replication/replication_times.h"

namespace rkv::server {

class Backup {
 public:
  // The log must outlive the backup.
  Backup(ReplicaLog& log, Replica replica, std::uint64_t group, const ReplicationTimes& times)
      : log_(log), replica_(std::move(replica)), group_(group), times_(times) {}

  // A connection to a primary is made: what to say first.
  Hello hello();
  // False: the primary is not obeyed, or its log does not fit. The connection must end.
  bool receive(const Entries& entries, Nanos now);
  // The primary has given up its lease. False: as above.
  bool receive(const HandOver& hand_over);
  // What to answer, if there is anything new since the last answer.
  std::optional<Answer> answer(Nanos now);
  // A part of a message has come, which may take longer than the failure time: the primary lives,
  // and so does this replica, which answers what it has answered before, now and then.
  std::optional<Answer> receives(Nanos now);
  // What this replica's own disk has.
  void on_disk(std::uint64_t wal, std::uint64_t sync);
  // From now on lower terms are refused.
  void obey(std::uint32_t term) { term_ = std::max(term_, term); }

  std::uint32_t term() const { return term_; }
  const Marks& marks() const { return marks_; }
  std::uint64_t unix_ms() const { return unix_ms_; }  // the highest time received
  std::uint64_t wal() const { return wal_; }
  std::uint64_t sync() const { return sync_; }
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
  std::uint64_t unix_ms_ = 0;
  std::uint64_t wal_ = 0;
  std::uint64_t sync_ = 0;
  bool has_news_ = false;
  Nanos heard_at_ = 0;
  Nanos answered_at_ = 0;
};

}  // namespace rkv::server
