// A replicated group in the statistics.
#include <nlohmann/json.hpp>

#include "server/monitor/facts.h"
#include "server/monitor/group_reports.h"

namespace rkv::server {

namespace {

using Json = nlohmann::ordered_json;

double in_seconds(Nanos time) {
  return static_cast<double>(time) / 1e9;
}

Json member_json(const GroupStatus::Member& member) {
  Json json = {{"name", member.name},
               {"address", member.address},
               {"in_sync", member.is_in_sync},
               {"primary", member.is_primary}};
  if (member.lag) {
    json["connected"] = member.lag->is_connected;
    json["needs_copy"] = member.lag->needs_copy;
    json["unreachable"] = member.lag->is_unreachable;
    json["lag_bytes"] = member.lag->bytes;
    json["lag_seconds"] = in_seconds(member.lag->age);
    json["silent_seconds"] = in_seconds(member.lag->silent_for);
  }
  return json;
}

Json copies_json(const GroupStatus::Copies& copies) {
  return {{"replica", copies.replica}, {"bytes", copies.bytes}, {"total_bytes", copies.total_bytes},
          {"waiting", copies.waiting}, {"done", copies.done},   {"failed", copies.failed}};
}

}  // namespace

Json group_json(const GroupStatus& group) {
  Json members = Json::array();
  for (const GroupStatus::Member& member : group.members)
    members.push_back(member_json(member));
  Json json = {
      {"name", group.group},
      {"number", group.group_number},
      {"replica", group.name},
      {"role", to_string(group.role)},
      {"standing", group.role == GroupStatus::Role::kPrimary ? "" : standing(group)},
      {"in_place", is_in_place(group)},
      {"term", group.term},
      {"term_seconds", in_seconds(group.term_for)},
      {"terms_begun", group.terms},
      {"configuration", group.configuration},
      {"configuration_text", group.configuration_text},
      {"primary", group.primary},
      {"primary_address", group.primary_address},
      {"in_sync", group.is_in_sync},
      {"lease_seconds", group.lease_left ? Json(in_seconds(*group.lease_left)) : Json()},
      {"members", std::move(members)},
      {"last_version", group.last},
      {"replicated_version", group.marks.replicated},
      {"wal_version", group.marks.wal},
      {"sync_version", group.marks.sync},
      {"log_bytes", group.log_bytes},
      {"connections", group.connections},
      {"connected", group.is_connected},
      {"etcd_silent_seconds", in_seconds(group.etcd_silent_for)},
      {"etcd_refuses_seconds", in_seconds(group.etcd_refuses_for)},
      {"etcd_has_lost_data", group.etcd_has_lost_data},
      {"etcd_has_another_group", group.etcd_has_another},
      {"copy_sent", copies_json(group.sent)},
      {"copy_received", copies_json(group.received)},
  };
  if (group.disk) {
    json["disk_state"] = group.disk->hangs ? LogFacts::kHung : to_string(group.disk->state);
    json["disk_version"] = group.disk->fed.version;
    json["disk_sync_version"] = group.disk->sync;
  }
  return json;
}

}  // namespace rkv::server
