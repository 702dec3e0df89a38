#include "client/cli/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <span>
#include <sstream>

#include "client/cli/output.h"
#include "rdma/choose.h"

namespace rkv::cli {

namespace {

using Level = Finding::Level;

rdma::VerbsOptions verbs_options(const ClientOptions& client) {
  return {.device = client.device,
          .port = client.port,
          .gid_index = client.gid_index,
          .address = client.server};
}

// `others`: addresses other than client.server.
MachineFacts look_at_machine(const Asked& asked, const ClientOptions& client,
                             std::span<const std::string> others) {
  MachineFacts facts;
  if (may_be_shm(asked.transport)) {
    const auto shm = rdma::open_shm({});
    if (shm) {
      facts.shared_memory = (*shm)->describe();
    } else {
      facts.shared_memory_error = to_string(shm.error());
    }
    facts.shm_directories = rdma::shm_directories({});
  }
  facts.system = rdma::look_at_system();
  if (!may_be_verbs(asked.transport)) return facts;
  facts.had_uverbs = facts.system.has_uverbs;
  facts.had_cm = facts.system.has_cm;
  facts.verbs = rdma::look_at_verbs(verbs_options(client), others);
  // Read again: the libraries may have made the kernel load modules.
  facts.system = rdma::look_at_system();
  facts.timers = rdma::connection_timers();
  const auto& chosen = facts.verbs.chosen;
  if (chosen && !chosen->own_address.empty()) {
    facts.trial = rdma::try_connection(
        {.device = chosen->device, .port = chosen->port, .address = chosen->own_address});
  }
  return facts;
}

// Returns true if a client would use a device to reach the address.
bool goes_over_verbs(const MachineFacts& facts, const Asked& asked, const std::string& address) {
  if (asked.transport != Transport::kAuto) return asked.transport == Transport::kVerbs;
  const auto leads = [&](const rdma::ChosenPath& path) { return path.leads && path.to == address; };
  const rdma::VerbsFacts& verbs = facts.verbs;
  return (verbs.chosen && leads(*verbs.chosen)) || std::ranges::any_of(verbs.others, leads);
}

std::vector<std::string> addresses(const Globals& globals) {
  std::vector<std::string> all;
  if (!globals.servers) {  // one, or those of a group
    std::istringstream list(globals.client.server);
    for (std::string one; std::getline(list, one, ',');)
      all.push_back(one);
    return all;
  }
  for (const ShardServer& server : globals.servers->servers())
    all.push_back(server.address);
  return all;
}

Json to_json(const Finding& finding) {
  return Json{{"check", finding.check},
              {"subject", finding.subject},
              {"status", to_string(finding.level)},
              {"found", finding.found},
              {"advice", finding.advice}};
}

// Prints findings: text at once, JSON when all findings are there.
class Report {
 public:
  explicit Report(bool json) : json_(json) {}

  void add(std::vector<Finding> findings) {
    for (const Finding& finding : findings) {
      if (!json_) print_raw(to_line(finding) + "\n");
    }
    std::fflush(stdout);
    std::ranges::move(findings, std::back_inserter(all_));
  }

  ExitCode end() {
    if (json_) {
      Json array = Json::array();
      for (const Finding& finding : all_)
        array.push_back(to_json(finding));
      print_json(array);
    } else {
      print_raw(fmt::format("{}, {}\n", counted(Level::kError, "error"),
                            counted(Level::kWarning, "warning")));
    }
    return exit_code_of(all_);
  }

 private:
  std::string counted(Level level, const char* name) const {
    const auto count = std::ranges::count(all_, level, &Finding::level);
    if (count == 0) return fmt::format("no {}", name);
    return fmt::format("{} {}{}", count, name, count == 1 ? "" : "s");
  }

  bool json_;
  std::vector<Finding> all_;
};

}  // namespace

const char* to_string(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      return "error";
  }
  return "?";
}

std::string to_line(const Finding& finding) {
  std::string line = fmt::format("{:8} {}", to_string(finding.level), finding.check);
  if (!finding.subject.empty()) line += " " + finding.subject;
  line += ": " + finding.found;
  if (!finding.advice.empty()) line += " -> " + finding.advice;
  return line;
}

ExitCode exit_code_of(const std::vector<Finding>& findings) {
  const auto is_error = [](const Finding& finding) { return finding.level == Level::kError; };
  if (std::ranges::none_of(findings, is_error)) return kDone;
  const bool server = std::ranges::any_of(findings, [&](const Finding& finding) {
    return is_error(finding) && finding.check == "server";
  });
  return server ? kNoServer : kFailed;
}

ExitCode run_doctor(const Command& command) {
  const Globals& globals = command.globals;
  const std::vector<std::string> servers = addresses(globals);
  ClientOptions client = globals.client;
  client.server = servers.front();
  client.connect_timeout = client.timeout;  // there is only one attempt
  const Asked asked{.transport = client.transport,
                    .device = client.device,
                    .port = client.port,
                    .gid_index = client.gid_index,
                    .client_bytes = Client::registered_bytes(client),
                    .large_bytes = client.large_bytes,
                    .servers = servers.size()};
  Report report(globals.json);
  const MachineFacts machine = look_at_machine(asked, client, std::span(servers).subspan(1));
  report.add(judge_machine(machine, asked));
  std::vector<ServerFindings> all;
  for (const std::string& server : servers) {
    client.server = server;
    all.push_back(ask_server(client));
    all.back().over_verbs = goes_over_verbs(machine, asked, server);
    report.add(judge_server(all.back(), globals.names_server));
  }
  report.add(judge_list(all));
  if (!globals.servers) report.add(judge_one_group(all));
  report.add(judge_groups(all));
  return report.end();
}

}  // namespace rkv::cli
