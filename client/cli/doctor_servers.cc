// kvclient doctor: servers.
#include <fmt/format.h>

#include "client/cli/connect.h"
#include "client/cli/doctor.h"
#include "client/cli/output.h"
#include "common/clock.h"
#include "common/histogram.h"

namespace rkv::cli {

namespace {

using Level = Finding::Level;

constexpr std::uint64_t kRounds = 200;
constexpr std::int64_t kLongestMs = 2000;  // for all rounds
// A lost packet is sent again after an acknowledgement time-out of 67 ms (rkv/rdma/timers.h). On a
// machine that is not overloaded, nothing else in a READ takes this long.
constexpr double kSentAgainUs = 67'000;

template <class Round>
ServerFindings::Latency measure(Round round) {
  const SteadyClock clock;
  Histogram nanos;
  ServerFindings::Latency latency;
  const Deadline end = Deadline::after_ms(clock, kLongestMs);
  while (latency.count < kRounds && !end.passed()) {
    const Nanos before = clock.now();
    const Status done = round();
    if (!done) {
      latency.error = to_string(done.error());
      break;
    }
    nanos.record(static_cast<std::uint64_t>(clock.now() - before));
    ++latency.count;
  }
  latency.p50_us = static_cast<double>(nanos.percentile(50)) / 1000;
  latency.p99_us = static_cast<double>(nanos.percentile(99)) / 1000;
  return latency;
}

std::string text_of(const Json& from, const char* name) {
  const auto found = from.find(name);
  return found != from.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_true(const Json& from, const char* name) {
  const auto found = from.find(name);
  return found != from.end() && found->is_boolean() && found->get<bool>();
}

// The text comes from a peer: any field may have any type.
void note_group(const Json& stats, ServerFindings& facts) {
  const auto group = stats.find("group");
  if (group == stats.end() || !group->is_object()) return;
  facts.group = ServerFindings::Group{};
  ServerFindings::Group& noted = *facts.group;
  noted.name = text_of(*group, "name");
  if (const auto number = group->find("number");
      number != group->end() && number->is_number_unsigned())
    noted.number = number->get<std::uint64_t>();
  noted.primary = text_of(*group, "primary");
  noted.address = text_of(*group, "primary_address");
  if (const auto term = group->find("term"); term != group->end() && term->is_number_unsigned())
    noted.term = term->get<std::uint64_t>();
  if (const auto silent = group->find("etcd_silent_seconds");
      silent != group->end() && silent->is_number())
    noted.etcd_silent_s = silent->get<double>();
  if (const auto refuses = group->find("etcd_refuses_seconds");
      refuses != group->end() && refuses->is_number())
    noted.etcd_refuses_s = refuses->get<double>();
  const auto members = group->find("members");
  if (members == group->end() || !members->is_array()) return;
  for (const Json& one : *members) {
    if (!one.is_object()) continue;
    noted.members.push_back({.name = text_of(one, "name"),
                             .address = text_of(one, "address"),
                             .in_sync = is_true(one, "in_sync"),
                             .connected = is_true(one, "connected"),
                             .unreachable = is_true(one, "unreachable")});
  }
}

// The text comes from a peer: any field may have any type.
void note_endpoints(const Json& stats, ServerFindings& facts) {
  const auto endpoints = stats.find("endpoints");
  if (endpoints == stats.end() || !endpoints->is_array()) return;
  for (const Json& one : *endpoints) {
    if (!one.is_object()) continue;
    ServerFindings::Closed closed{.transport = text_of(one, "transport"),
                                  .state = text_of(one, "state"),
                                  .why = text_of(one, "why")};
    if (!closed.state.empty() && closed.state != "serving") {
      facts.closed.push_back(std::move(closed));
    }
  }
}

std::string advice_for(const ServerFindings::Closed& closed) {
  if (closed.state == "port-down") {
    return "on its host: check the cable and the switch, `rdma link` and `ip addr`; the server "
           "serves again once the port is up";
  }
  return "on its host: restore the device (`rdma link`, `lspci`, `dmesg`; SoftRoCE: `rdma link "
         "add`) and its address; the server then uses it without a restart";
}

std::string advice_for(const ServerFindings& facts) {
  if (facts.connected) {
    return "the server is too busy or stopped: check its log, and `ps` on its host";
  }
  if (is_of_resolver(*facts.error)) {
    const std::string host = facts.address.substr(0, facts.address.rfind(':'));
    return fmt::format("check the spelling, /etc/hosts and DNS: `getent hosts {}`", host);
  }
  switch (facts.error->code) {
    case Code::kUnreachable:
      return fmt::format(
          "check that a server runs there on this port: `kvserver --listen {} --users FILE` on its "
          "host starts one; --server chooses another",
          facts.address);
    case Code::kVersionMismatch:
      return "install the same version of rkv on both hosts: `kvclient --version`, `kvserver "
             "--version`";
    case Code::kTimeout:
      return facts.over_verbs
                 ? "no response: check that its process is not stopped, let UDP port 4791 (RoCE "
                   "v2) through on both hosts, and run `kvclient doctor` on its host"
                 : "no response: check that its host is up and reachable (`ping`) and that its "
                   "process is not stopped (`ps`)";
    case Code::kNoDevice:
      return "fix the error of the device above; without an RDMA device that routes to the address "
             "(`rdma link`, `ip route`), only servers on this host can be reached";
    case Code::kPermission:
      return "over shared memory, run it as the server's user or as root; over verbs, fix the "
             "errors of the device files above";
    case Code::kBusy:
      return "try again later, or start the server with a greater --max-clients";
    case Code::kNotPrimary:
      return "a fail-over takes some seconds: try again; if it stays so, check on the replicas' "
             "hosts "
             "that they run and that etcd answers: `etcdctl endpoint health`, `curl "
             "METRICS/readyz`";
    case Code::kUnauthenticated:
      return "give --user and --secret-file of a user in the server's --users file";
    case Code::kOutOfMemory:
      return "fix the error of memlock above";
    default:
      return "check the server's log, and run `kvclient doctor` on its host";
  }
}

void judge_latency(const ServerFindings::Latency& latency, const char* check, const char* what,
                   const std::string& address, std::vector<Finding>& out) {
  Finding finding{.check = check, .subject = address, .found = {}};
  if (!latency.error.empty()) {
    finding.level = Level::kError;
    finding.found =
        fmt::format("{} failed after {} of them: {}", what, latency.count, latency.error);
    finding.advice = "check the server's log, and `dmesg` on both hosts";
  } else {
    finding.found = fmt::format("{} {}: p50 {:.1f} us, p99 {:.1f} us", latency.count, what,
                                latency.p50_us, latency.p99_us);
    if (latency.p99_us >= kSentAgainUs) {
      finding.level = Level::kWarning;
      finding.advice =
          "packets are lost, or a machine is overloaded: `rdma statistic show` counts "
          "retransmissions; check flow control and the MTU of every switch between";
    }
  }
  out.push_back(std::move(finding));
}

}  // namespace

ServerFindings ask_server(const ClientOptions& given) {
  ServerFindings facts{.address = given.server};
  ClientOptions options = given;
  options.repeat_connect = false;  // reports the error of the first attempt
  auto client = Client::connect(options, &facts.refusal);
  if (!client) {
    facts.error = client.error();
    return facts;
  }
  ask_client(*client, facts);
  return facts;
}

void ask_client(Client& client, ServerFindings& facts) {
  facts.connected = true;
  facts.transport = client.describe();
  // The READs come first: a request without an answer may cost the connection.
  facts.read = measure([&] { return client.ping_one_sided(); });
  const auto text = client.server_stats();
  if (!text && text.error().code == Code::kPermission) {  // the user's role does not allow it
    facts.version = "of unknown version (the user may not ask)";
    facts.ping = measure([&] { return client.ping(); });
    return;
  }
  if (!text) {
    facts.error = text.error();
    return;
  }
  const Json stats = Json::parse(*text, nullptr, false);
  facts.has_stats = stats.is_object();
  // The text comes from a peer: any field may have any type.
  if (stats.contains("version") && stats["version"].is_string()) {
    facts.version = stats["version"].get<std::string>();
  }
  if (stats.contains("epoch") && stats["epoch"].is_number_unsigned()) {
    facts.epoch = stats["epoch"].get<std::uint64_t>();
  }
  note_endpoints(stats, facts);
  note_group(stats, facts);
  facts.ping = measure([&] { return client.ping(); });
}

std::vector<Finding> judge_server(const ServerFindings& facts, bool named) {
  std::vector<Finding> out;
  if (facts.error && !facts.connected) {
    std::string found = fmt::format("cannot be reached: {}", to_string(*facts.error));
    if (!facts.refusal.empty()) found += fmt::format(": {}", facts.refusal);
    // The default address does not claim that a server exists. Unless a server has answered there,
    // its absence is a warning.
    const Code code = facts.error->code;
    const bool absent = code != Code::kBusy && code != Code::kRejected &&
                        code != Code::kUnauthenticated && code != Code::kVersionMismatch &&
                        code != Code::kCorrupt;
    out.push_back({.check = "server",
                   .subject = facts.address,
                   .level = !named && absent ? Level::kWarning : Level::kError,
                   .found = std::move(found),
                   .advice = advice_for(facts)});
    return out;
  }
  if (facts.error) {
    out.push_back({.check = "server",
                   .subject = facts.address,
                   .level = Level::kError,
                   .found = fmt::format("connected, but does not answer requests: {}; {}",
                                        to_string(*facts.error), facts.transport),
                   .advice = advice_for(facts)});
    judge_latency(facts.read, "read", "one-sided READs of 128 bytes", facts.address, out);
    return out;
  }
  if (was_directed(facts)) {
    out.push_back(
        {.check = "server",
         .subject = facts.address,
         .found = fmt::format("a backup of group {}: it directs clients to the primary, {} ({})",
                              facts.group->name, facts.group->primary, facts.group->address)});
    return out;
  }
  out.push_back({.check = "server",
                 .subject = facts.address,
                 .found = facts.epoch == 0
                              ? fmt::format("kvserver {}; {}", facts.version, facts.transport)
                              : fmt::format("kvserver {}, epoch {:016x}; {}", facts.version,
                                            facts.epoch, facts.transport)});
  for (const ServerFindings::Closed& closed : facts.closed) {
    out.push_back({.check = "endpoint",
                   .subject = facts.address,
                   .level = Level::kError,
                   .found = fmt::format("the server's {} is {}: {}", closed.transport, closed.state,
                                        closed.why),
                   .advice = advice_for(closed)});
  }
  judge_latency(facts.read, "read", "one-sided READs of 128 bytes", facts.address, out);
  judge_latency(facts.ping, "ping", "requests", facts.address, out);
  return out;
}

std::vector<Finding> judge_list(std::span<const ServerFindings> servers) {
  std::vector<Finding> out;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (servers[i].epoch == 0 || servers[i].epoch != servers[j].epoch) continue;
      if (was_directed(servers[i]) || was_directed(servers[j])) continue;
      out.push_back({.check = "servers",
                     .subject = servers[i].address,
                     .level = Level::kError,
                     .found = fmt::format("the same process as {}", servers[j].address),
                     .advice = "remove one of the two from the list"});
    }
  }
  return out;
}

}  // namespace rkv::cli
