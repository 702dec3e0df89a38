// GroupReporter: makes a replica's GroupStatus a few times a second, and keeps the newest for
// others to read.
//
//   if (reporter.is_due(now)) {
//     GroupStatus status = reporter.describe(membership, log, now);
//     status.connections = ...;                       // what only the caller knows
//     reporter.publish(std::move(status));
//   }
//   const auto status = reporter.latest();            // any thread
//
// Thread safety: one thread, except latest().
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/lag_meter.h"
#include "common/mutex.h"
#include "server/group/copy/engine_copy_receiver.h"
#include "server/group/copy/engine_copy_sender.h"
#include "server/group/replica/backup_disk.h"
#include "server/group/replica/group_status.h"
#include "server/group/rules/membership.h"

namespace rkv::server {

class GroupReporter {
 public:
  static constexpr Nanos kInterval = 200 * kNanosPerMs;

  GroupReporter(std::string group, std::string name);

  bool is_due(Nanos now) const { return now >= next_at_; }
  // Returns what the membership and the log know. A lag's age is too low by up to kInterval.
  GroupStatus describe(const Membership& membership, const ReplicaLog& log, Nanos now);
  // Adds the copies. nullptr: that object was not made yet.
  void add_copies(GroupStatus& status, const EngineCopySender* sender,
                  const EngineCopyReceiver* receiver) const;
  static void add_disk(GroupStatus& status, BackupDisk& disk, Nanos now);
  void publish(GroupStatus status);
  // Never nullptr. Takes a lock for an instant.
  std::shared_ptr<const GroupStatus> latest() const;

  // Counts a copy of the database that was sent to another replica, or that failed.
  void copy_sent(bool succeeded) { ++(succeeded ? sent_.done : sent_.failed); }
  void copy_not_received() { ++received_.failed; }

 private:
  void note_term(std::uint32_t term, Nanos now);
  void add_members(GroupStatus& status, const Membership& membership, const ReplicaLog& log,
                   Nanos now);

  const std::string group_;
  const std::string name_;
  Nanos next_at_ = 0;
  std::uint32_t term_ = 0;
  Nanos term_since_ = 0;
  std::uint64_t terms_ = 0;
  std::uint64_t text_of_ = 0;  // the configuration whose text is kept
  std::string text_;
  std::map<std::string, LagMeter> lags_;  // by name
  GroupStatus::Copies sent_;              // counts
  GroupStatus::Copies received_;
  mutable Mutex mutex_;
  std::shared_ptr<const GroupStatus> latest_ RKV_GUARDED_BY(mutex_);
};

}  // namespace rkv::server
