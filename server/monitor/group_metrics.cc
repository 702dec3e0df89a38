// A replicated group in the metrics. All but those of a member have the label `group`, by which
// queries bring together what its replicas say.
#include <limits>

#include "server/monitor/group_reports.h"

namespace rkv::server {

namespace {

double in_s(Nanos time) {
  return static_cast<double>(time) / 1e9;
}

// One family for each of these calls.
class Families {
 public:
  Families(Exposition& out, const GroupStatus& group) : out_(out), group_(group) {}

  template <class T>
  void one(std::string_view name, std::string_view type, std::string_view help, T value) {
    out_.family(name, type, help);
    out_.sample({{"group", group_.group}}, value);
  }
  template <class Value>
  void by_member(std::string_view name, std::string_view help, Value value) {
    out_.family(name, "gauge", help);
    for (const GroupStatus::Member& member : group_.members) {
      if (member.name != group_.name)
        out_.sample({{"group", group_.group}, {"member", member.name}}, value(member));
    }
  }
  template <class Value>
  void by_direction(std::string_view name, std::string_view type, std::string_view help,
                    Value value) {
    out_.family(name, type, help);
    out_.sample({{"group", group_.group}, {"direction", "sent"}}, value(group_.sent));
    out_.sample({{"group", group_.group}, {"direction", "received"}}, value(group_.received));
  }

 private:
  Exposition& out_;
  const GroupStatus& group_;
};

void add_role(Exposition& out, const GroupStatus& group) {
  out.family("kvserver_group_info", "gauge",
             "Always 1; the labels are the group, its number and the name of this replica.");
  out.sample({{"group", group.group},
              {"number", std::to_string(group.group_number)},
              {"name", group.name}},
             1);
  out.family("kvserver_group_role", "gauge", "1 for the current role of this replica.");
  for (std::size_t i = 0; i < GroupStatus::kRoles; ++i) {
    const auto role = static_cast<GroupStatus::Role>(i);
    out.sample({{"group", group.group}, {"role", to_string(role)}}, group.role == role ? 1 : 0);
  }
}

void add_standing(Families& add, const GroupStatus& group) {
  add.one("kvserver_group_serving", "gauge",
          "1 while this replica serves clients as the primary and is believed by them.",
          group.is_serving ? 1 : 0);
  add.one("kvserver_group_in_sync", "gauge",
          "1 while this replica is in sync, as far as it knows: it may have been left out.",
          group.is_in_sync ? 1 : 0);
  add.one("kvserver_group_term", "gauge", "Term of the group: each fail-over begins a higher one.",
          group.term);
  add.one("kvserver_group_terms_total", "counter",
          "Terms that have begun while this process ran: fail-overs.", group.terms);
  add.one("kvserver_group_term_seconds", "gauge", "Since this replica knows of the term.",
          in_s(group.term_for));
  add.one("kvserver_group_configuration", "gauge",
          "Number of the group's configuration: each change raises it by 1.", group.configuration);
  add.one("kvserver_group_members", "gauge", "Replicas that belong to the group.",
          group.members.size());
  add.one("kvserver_group_members_in_sync", "gauge", "Replicas that are in sync.",
          group.in_sync_count());
  add.one("kvserver_group_etcd_silent_seconds", "gauge",
          "How long etcd has not answered; 0 while it answers.", in_s(group.etcd_silent_for));
  add.one("kvserver_group_etcd_refuses_seconds", "gauge",
          "How long etcd has stored no change although one was tried; 0 while it does.",
          in_s(group.etcd_refuses_for));
}

void add_log(Exposition& out, Families& add, const GroupStatus& group) {
  out.family("kvserver_group_version", "gauge",
             "Version of the last entry of the log, and up to which version all replicas in sync "
             "have it in memory, in their write-ahead logs, and on their disks.");
  const auto sample = [&](std::string_view mark, std::uint64_t version) {
    out.sample({{"group", group.group}, {"mark", mark}}, version);
  };
  sample("last", group.last);
  sample("replicated", group.marks.replicated);
  sample("wal", group.marks.wal);
  sample("sync", group.marks.sync);
  add.one("kvserver_group_log_bytes", "gauge",
          "The end of the log that is kept in memory for other replicas.", group.log_bytes);
  add.one("kvserver_group_connections", "gauge", "Connections that other replicas have made.",
          group.connections);
}

void add_copies(Families& add) {
  using Copies = GroupStatus::Copies;
  add.by_direction("kvserver_group_copy_bytes", "gauge",
                   "Bytes so far of the copy of a database that is under way.",
                   [](const Copies& copies) { return copies.bytes; });
  add.by_direction("kvserver_group_copy_total_bytes", "gauge",
                   "Bytes of the copy that is under way; 0: none, or not known yet.",
                   [](const Copies& copies) { return copies.total_bytes; });
  add.by_direction("kvserver_group_copies_failed_total", "counter",
                   "Copies that were not completed.",
                   [](const Copies& copies) { return copies.failed; });
}

// The lags of the other replicas, reported by the primary.
void add_lags(Families& add) {
  using Member = GroupStatus::Member;
  const auto of_lag = [](auto get) {
    return [get](const Member& member) {
      using Value = decltype(get(*member.lag));
      return member.lag ? get(*member.lag) : Value{};
    };
  };
  add.by_member("kvserver_group_member_in_sync", "1 while this other replica is in sync.",
                [](const Member& member) { return member.is_in_sync ? 1 : 0; });
  add.by_member("kvserver_group_member_connected", "1 while it is connected to the primary.",
                of_lag([](const Member::Lag& lag) { return lag.is_connected ? 1 : 0; }));
  add.by_member("kvserver_group_member_lag_bytes",
                "The primary's log that it has not answered yet, as far as it is in memory.",
                of_lag([](const Member::Lag& lag) { return lag.bytes; }));
  add.by_member("kvserver_group_member_lag_seconds", "Age of the oldest of these entries.",
                of_lag([](const Member::Lag& lag) { return in_s(lag.age); }));
  add.by_member("kvserver_group_member_silent_seconds", "Since its last answer.",
                of_lag([](const Member::Lag& lag) { return in_s(lag.silent_for); }));
}

}  // namespace

void add_group(Exposition& out, const GroupStatus& group) {
  Families add(out, group);
  add_role(out, group);
  add_standing(add, group);
  add_log(out, add, group);
  add_copies(add);
  add.one("kvserver_group_copies_sent_total", "counter", "Copies that were sent completely.",
          group.sent.done);
  if (group.role != GroupStatus::Role::kPrimary) return;
  add.one("kvserver_group_lease_seconds", "gauge",
          "For how much longer the primary is believed; +Inf: it is alone and needs no lease.",
          group.lease_left ? in_s(*group.lease_left) : std::numeric_limits<double>::infinity());
  add_lags(add);
}

}  // namespace rkv::server
