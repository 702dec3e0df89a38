// GroupWatch: log lines for what a replica's status shows and no event does: that a primary is not
// believed, and by whose fault; that only one copy is left; that this replica is in sync, or not
// any more; that a backup's disk hangs.
//
// Thread safety: none.
#pragma once

#include "server/group/replica/group_status.h"

namespace rkv::server {

class GroupWatch {
 public:
  // Shorter pauses are part of a fail-over, and of leaving out a backup.
  static constexpr Nanos kWorthALine = 2 * kNanosPerSecond;

  // Call it regularly.
  void look(const GroupStatus& status, Nanos now);

 private:
  void look_at_lease(const GroupStatus& status, Nanos now);
  void look_at_copies(const GroupStatus& status);
  void look_at_backup(const GroupStatus& status);

  Nanos unserved_since_ = 0;  // 0: it serves, or is not the primary
  bool has_told_unserved_ = false;
  std::size_t copies_ = 0;
  bool was_in_sync_ = false;
  bool hangs_ = false;
};

}  // namespace rkv::server
