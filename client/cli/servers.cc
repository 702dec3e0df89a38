// The verbs about servers and not about keys: flush, backup, stats, ping. Each of several
// servers is asked. The failure of a server is reported with its address, and the others are still
// asked.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "client/cli/commands.h"
#include "client/cli/each_server.h"
#include "client/cli/output.h"
#include "client/cli/progress.h"
#include "common/clock.h"
#include "common/histogram.h"

namespace rkv::cli {

namespace {

Json client_json(const Cluster& client) {
  const ClientStats stats = client.stats();
  return Json{{"transport", client.describe()},
              {"gets", stats.gets},
              {"one_sided_gets", stats.one_sided_gets},
              {"two_sided_gets", stats.two_sided_gets},
              {"missing", stats.missing},
              {"rdma_reads", stats.rdma_reads},
              {"map_reads", stats.map_reads},
              {"tears_detected", stats.tears_detected},
              {"pins", stats.pins},
              {"atomics", stats.atomics},
              {"retries", stats.retries},
              {"cache_hits", stats.cache_hits},
              {"cache_misses", stats.cache_misses},
              {"cached_groups", stats.cached_groups},
              {"two_sided_requests", stats.two_sided_requests},
              {"busy_answers", stats.busy_answers},
              {"reconnects", stats.reconnects},
              {"outcomes_asked", stats.outcomes_asked},
              {"outcomes_recovered", stats.outcomes_recovered},
              {"outcomes_unknown", stats.outcomes_unknown}};
}

void print_flat(const Json& object) {
  const Json flat = object.flatten();
  for (const auto& [path, value] : flat.items()) {
    std::string name = path.substr(1);
    std::ranges::replace(name, '/', '.');
    print_raw(fmt::format("{:40} {}\n", name,
                          value.is_string()
                              ? value.get<std::string>()
                              : value.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
}

// Results for one server.
struct Pings {
  Json samples = Json::array();
  Histogram nanos;
};

Json to_json(const Pings& pings) {
  return Json{{"round_trips_us", pings.samples},
              {"p50_us", static_cast<double>(pings.nanos.percentile(50)) / 1000},
              {"max_us", static_cast<double>(pings.nanos.max()) / 1000}};
}

// Sends one request; prints it when it is answered.
Status ping_once(Cluster& client, std::size_t server, const std::string& label, Pings& pings,
                 bool show) {
  const SteadyClock clock;
  RKV_ASSIGN_OR_RETURN(Client* const one, client.client_at(server));
  const Nanos before = clock.now();
  RKV_RETURN_IF_ERROR(one->ping());
  const auto took = static_cast<std::uint64_t>(clock.now() - before);
  pings.nanos.record(took);
  const double us = static_cast<double>(took) / 1000;
  pings.samples.push_back(us);
  if (show) {
    print_raw(fmt::format("{}: {:.1f} us\n", label, us));
    std::fflush(stdout);
  }
  return {};
}

}  // namespace

ExitCode run_flush(Cluster& client, const Job& job, bool interactive) {
  return report_each(client, client.flush(), job, interactive,
                     [](std::uint64_t version) { return Json{{"flushed_version", version}}; });
}

ExitCode run_backup(Cluster& client, const Job& job) {
  const std::string& name = job.command.arguments.front();
  const auto made = [&] {
    const Waiting waiting("making the backup", job.command.progress);
    return client.backup(name);
  }();
  for (std::size_t i = 0; !job.command.globals.json && i < made.size(); ++i) {
    if (!made[i]) continue;
    const std::string server =
        made.size() > 1 ? fmt::format("{}: ", addresses(client)[i]) : std::string();
    print_raw(fmt::format("{}made the backup {}, up to version {}\n", server, name, *made[i]));
  }
  return report_each(
      client, made, job, false,
      [&](std::uint64_t version) { return Json{{"backup", name}, {"version", version}}; },
      "; the backup may exist, or may still be created");
}

ExitCode run_stats(Cluster& client, const Job& job) {
  const auto texts = client.server_stats();
  const auto names = addresses(client);
  ExitCode worst = kDone;
  Json servers = Json::array();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i]) {
      if (texts.size() == 1) return fail_with(texts[i].error(), client);
      complain(fmt::format("{}: {}", names[i], to_string(texts[i].error())));
      worst = std::max(worst, exit_code_of(texts[i].error()));
      continue;
    }
    Json server = Json::parse(*texts[i], nullptr, false);
    if (!server.is_object()) {
      complain("the server's statistics are not a JSON object");
      return kFailed;
    }
    if (texts.size() > 1) server["address"] = names[i];
    servers.push_back(std::move(server));
  }
  Json all{{"client", client_json(client)}};
  if (texts.size() == 1) {
    all["server"] = std::move(servers.front());
  } else {
    all["servers"] = std::move(servers);
  }
  if (job.command.globals.json) {
    print_json(all);
  } else {
    print_flat(all);
  }
  return worst;
}

ExitCode run_ping(Cluster& client, const Job& job) {
  const bool json = job.command.globals.json;
  const auto names = addresses(client);
  const bool several = names.size() > 1;
  if (!json) print_raw(fmt::format("transport {}\n", client.describe()));
  std::vector<Pings> pings(names.size());
  std::vector<Status> states(names.size());
  ExitCode worst = kDone;
  for (std::uint64_t i = 1; i <= job.command.count; ++i) {
    for (std::size_t server = 0; server < names.size(); ++server) {
      if (!states[server]) continue;  // reported already
      const std::string label =
          several ? fmt::format("{} {}", i, names[server]) : fmt::format("{}", i);
      states[server] = ping_once(client, server, label, pings[server], !json);
      if (states[server]) continue;
      const Error& error = states[server].error();
      if (!several) return fail_with(error, client);
      complain(fmt::format("{}: {}", names[server], to_string(error)));
      worst = std::max(worst, exit_code_of(error));
    }
  }
  if (json && !several) {
    Json object = to_json(pings.front());
    object["server"] = name_of_store(job.command.globals);
    object["transport"] = client.describe();
    print_json(object);
  } else if (json) {
    Json array = Json::array();
    for (std::size_t server = 0; server < names.size(); ++server) {
      Json object = states[server] ? to_json(pings[server])
                                   : Json{{"error", to_string(states[server].error())}};
      object["server"] = names[server];
      array.push_back(std::move(object));
    }
    print_json(Json{{"transport", client.describe()}, {"servers", std::move(array)}});
  } else if (job.command.count > 1) {
    for (std::size_t server = 0; server < names.size(); ++server) {
      if (!states[server]) continue;
      const Histogram& nanos = pings[server].nanos;
      print_raw(fmt::format("{}p50 {:.1f} us, longest {:.1f} us\n",
                            several ? names[server] + ": " : "",
                            static_cast<double>(nanos.percentile(50)) / 1000,
                            static_cast<double>(nanos.max()) / 1000));
    }
  }
  return worst;
}

}  // namespace rkv::cli
