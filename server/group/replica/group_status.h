// GroupStatus: a replica and its group at one moment, as this replica knows them. For people and
// alarms, not for decisions.
//
// Thread safety: a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "server/group/rules/messages.h"
#include "server/log/disk_state.h"

namespace rkv::server {

struct GroupStatus {
  enum class Role : std::uint8_t {
    kStarting,  // has not read a configuration yet
    kJoining,   // not in sync: its data may be old
    kBackup,    // in sync
    kPrimary,
    kEnded,  // the process ends, and starts again if it can
  };
  static constexpr std::size_t kRoles = 5;
  struct Member {
    std::string name;
    std::string address;
    bool is_in_sync = false;
    bool is_primary = false;
    // The lag of another replica, if this one is the primary.
    struct Lag {
      bool is_connected = false;
      bool needs_copy = false;
      bool is_unreachable = false;  // at its port for replicas, although it is connected
      std::uint64_t bytes = 0;      // of the log that the replica has not answered
      Nanos age = 0;                // of the oldest of them
      Nanos silent_for = 0;         // time since its last answer
    };
    std::optional<Lag> lag{};
  };
  // Copies of a database: from the primary, or to a backup.
  struct Copies {
    std::string replica;  // gets a copy now; empty: none is under way
    std::uint64_t bytes = 0;
    std::uint64_t total_bytes = 0;  // 0: not known yet
    std::uint64_t waiting = 0;      // further replicas
    std::uint64_t done = 0;
    std::uint64_t failed = 0;
  };
  // The disk of a backup's database. A primary's disk is shown like that of any server.
  struct Disk {
    DiskState state = DiskState::kOk;
    bool hangs = false;      // the state is kOk, but it does not answer
    LogPosition fed{};       // the last entry of the log that was given to the database
    std::uint64_t sync = 0;  // the version up to which the database is synced
  };

  Nanos at = 0;  // when it was made
  std::string group;
  std::string name;  // of this replica
  std::uint64_t group_number = 0;
  std::uint64_t configuration = 0;  // its number; 0: none was read
  std::string configuration_text;   // as etcd has it
  std::uint32_t term = 0;
  std::uint64_t terms = 0;  // number of terms that began while this process ran
  Nanos term_for = 0;       // since this replica knows of the term
  Role role = Role::kStarting;
  std::string why_ended;
  std::string primary;  // its name; empty: there is none
  std::string primary_address;
  bool is_in_sync = false;  // this replica
  bool is_serving = false;  // the primary, with a lease
  // The rest of a primary's lease. nullopt: not the primary, or a primary that needs no lease
  // because it is alone.
  std::optional<Nanos> lease_left{};
  std::vector<Member> members;  // also replicas that are about to become members

  std::uint64_t last = 0;  // version of the last entry in this replica's log
  Marks marks;
  std::uint64_t log_bytes = 0;  // of the log that is kept in memory
  std::uint64_t connections = 0;
  bool is_connected = false;   // a backup to its primary
  Nanos etcd_silent_for = 0;   // 0: it answered last time, with the newest configuration
  Nanos etcd_refuses_for = 0;  // 0: it stored the last change
  bool etcd_has_lost_data = false;
  bool etcd_has_another = false;  // group of this name
  bool lacks_group = false;       // etcd has none of its name, and this replica may not found it
  Copies sent{};
  Copies received{};
  std::optional<Disk> disk{};
  bool may_lead = true;  // a backup could serve clients (Backup::may_lead)

  std::size_t in_sync_count() const;
};

// "starting", "joining", "backup", "primary", "ended".
const char* to_string(GroupStatus::Role role);
// For a replica that is not the primary: a sentence without a full stop that says why it is in sync
// or not.
std::string standing(const GroupStatus& status);

}  // namespace rkv::server
