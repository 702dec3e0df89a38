#include "client/cli/admin.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

#include "client/cli/each_server.h"
#include "client/cli/output.h"
#include "common/auth/proof.h"
#include "common/parse.h"

namespace rkv::cli {

namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookAgain{20};

// The statistics of each server, of which the group is a part. Complains of those that do not
// answer, and returns null for them and for servers that are in no group.
std::vector<Json> groups_of(Cluster& client, ExitCode* worst) {
  const auto texts = client.server_stats();
  std::vector<Json> groups;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Json group;
    if (texts[i]) {
      const Json stats = Json::parse(*texts[i], nullptr, false);
      if (stats.is_object() && stats.contains("group")) group = stats["group"];
    } else {
      complain(fmt::format("{}: {}", client.map().servers()[i].address,
                           describe(texts[i].error(), client)));
      *worst = std::max(*worst, exit_code_of(texts[i].error()));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string word_in(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? rkv::shown(at->get<std::string>()) : std::string();
}
bool holds_true(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_boolean() && at->get<bool>();
}
double number_of(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_number() ? at->get<double>() : 0;
}

// Describes the lag of a replica that is not the primary.
std::string lag_of(const Json& member) {
  if (!holds_true(member, "connected")) return "not connected";
  if (holds_true(member, "unreachable"))
    return "cannot be reached: open the port above its own to the other replicas";
  if (holds_true(member, "needs_copy")) return "needs a copy of the database";
  const double bytes = number_of(member, "lag_bytes");
  if (bytes == 0) return "has everything";
  return fmt::format("{:.0f} bytes behind, {:.2f} s", bytes, number_of(member, "lag_seconds"));
}

void print_group(const Json& group) {
  print_raw(fmt::format("group {}: term {:.0f}, configuration {:.0f}\n", word_in(group, "name"),
                        number_of(group, "term"), number_of(group, "configuration")));
  for (const Json& member : group.value("members", Json::array())) {
    const bool is_primary = holds_true(member, "primary");
    print_raw(fmt::format("  {:<12} {:<24} {:<8} {:<12} {}\n", word_in(member, "name"),
                          word_in(member, "address"), is_primary ? "primary" : "backup",
                          holds_true(member, "in_sync") ? "in sync" : "not in sync",
                          is_primary ? "" : lag_of(member)));
  }
}

bool has_member(const Json& group, const std::string& name) {
  if (!group.is_object()) return false;
  for (const Json& member : group.value("members", Json::array()))
    if (word_in(member, "name") == name) return true;
  return false;
}

// The one server whose group has a replica of this name.
OrFailure<std::size_t> server_of(Cluster& client, const std::string& replica) {
  ExitCode worst = kDone;
  const auto groups = groups_of(client, &worst);
  if (worst != kDone) return failure(worst, "nothing was changed");
  std::optional<std::size_t> found;
  bool is_group = false;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    is_group = is_group || groups[i].is_object();
    if (!has_member(groups[i], replica)) continue;
    if (found) {
      return failure(kUsage, fmt::format("several groups have a replica {}: name the servers of "
                                         "one group only",
                                         replica));
    }
    found = i;
  }
  if (found) return *found;
  if (!is_group) return failure(kFailed, "the server is in no replicated group");
  return failure(kNotFoundExit,
                 fmt::format("the group has no replica {}: see admin groups", replica));
}

ExitCode complain_of(const Error& error, Client& client) {
  std::string sentence = to_string(error);
  if (!client.last_refusal().empty())
    sentence = fmt::format("{} (the server says: {})", sentence, client.last_refusal());
  complain(sentence);
  return exit_code_of(error);
}

// The client of the group that has this replica. nullptr: it has complained, and `status` is how
// the program ends.
Client* client_of_group(Cluster& client, const std::string& replica, ExitCode* status) {
  const auto server = server_of(client, replica);
  if (!server) {
    complain(server.error().sentence);
    *status = server.error().exit_code;
    return nullptr;
  }
  const auto one = client.client_at(*server);
  if (one) return *one;
  *status = fail_with(one.error(), client);
  return nullptr;
}

// Whether the replica is the primary before the time for one operation is over.
bool becomes_primary(Client& client, const std::string& replica, const Job& job) {
  const auto end = steady_clock::now() + job.command.globals.client.timeout;
  while (steady_clock::now() < end) {
    if (const auto stats = client.server_stats()) {
      const Json json = Json::parse(*stats, nullptr, false);
      if (json.is_object() && word_in(json.value("group", Json::object()), "primary") == replica)
        return true;
    }
    std::this_thread::sleep_for(kLookAgain);
  }
  return false;
}

ExitCode run_groups(Cluster& client, const Job& job) {
  ExitCode worst = kDone;
  const auto groups = groups_of(client, &worst);
  Json array = Json::array();
  for (const Json& group : groups) {
    if (!group.is_object()) continue;
    if (!job.command.globals.json) print_group(group);
    array.push_back(group);
  }
  if (array.empty() && worst == kDone) {
    complain("the server is in no replicated group");
    return kFailed;
  }
  if (job.command.globals.json) print_json(Json{{"groups", std::move(array)}});
  return worst;
}

ExitCode run_move_primary(Cluster& client, const Job& job) {
  const std::string& name = job.command.arguments.back();
  ExitCode status = kDone;
  Client* const one = client_of_group(client, name, &status);
  if (one == nullptr) return status;
  const auto began = steady_clock::now();
  if (const Status moved = one->move_primary(name); !moved) return complain_of(moved.error(), *one);
  if (!becomes_primary(*one, name, job)) {
    complain(fmt::format("{} has not become the primary in time: see admin groups", name));
    return kFailed;
  }
  const std::chrono::duration<double> took = steady_clock::now() - began;
  if (job.command.globals.json) {
    print_json(Json{{"primary", name}, {"seconds", took.count()}});
  } else {
    print_raw(fmt::format("{} is the primary, after {:.2f} s\n", name, took.count()));
  }
  return kDone;
}

ExitCode run_remove_replica(Cluster& client, const Job& job) {
  const std::string& name = job.command.arguments.back();
  ExitCode status = kDone;
  Client* const one = client_of_group(client, name, &status);
  if (one == nullptr) return status;
  if (const Status removed = one->remove_replica(name); !removed)
    return complain_of(removed.error(), *one);
  if (job.command.globals.json) {
    print_json(Json{{"removed", name}});
  } else {
    print_raw(fmt::format("{} has left its group\n", name));
  }
  return kDone;
}

ExitCode run_revoke(Cluster& client, const Job& job) {
  const std::string& user = job.command.arguments.back();
  const auto revoked = client.revoke_user(user);
  for (std::size_t i = 0; !job.command.globals.json && i < revoked.size(); ++i) {
    if (!revoked[i]) continue;
    const std::string server =
        revoked.size() > 1 ? fmt::format("{}: ", addresses(client)[i]) : std::string();
    print_raw(fmt::format(
        "{}revoked {}, sessions ended: {}. Remove its line from the users file, in a group of each "
        "replica (kvserver user remove {} --users FILE): otherwise it may connect after the next "
        "start of a server that is in no group\n",
        server, user, *revoked[i], user));
  }
  return report_each(
      client, revoked, job, false,
      [&](std::uint64_t sessions) { return Json{{"revoked", user}, {"sessions_ended", sessions}}; },
      "; the user may have been revoked: ask again");
}

ExitCode run_log_level(Cluster& client, const Job& job) {
  const std::string& level = job.command.arguments.back();
  std::vector<Result<std::string>> set;
  for (std::size_t i = 0; i < client.map().servers().size(); ++i) {
    const auto one = client.client_at(i);
    const Status done = one ? (*one)->set_server_log_level(level) : std::unexpected(one.error());
    set.push_back(done ? Result<std::string>(level) : std::unexpected(done.error()));
  }
  return report_each(client, set, job, false,
                     [](const std::string& now) { return Json{{"log_level", now}}; });
}

// `takes`: what the command takes the name of; empty: nothing.
struct AdminCommand {
  std::string_view word;
  std::string_view takes;
  ExitCode (*run)(Cluster& client, const Job& job);
};
constexpr AdminCommand kCommands[] = {
    {"revoke", "user", run_revoke},
    {"groups", "", run_groups},
    {"move-primary", "replica", run_move_primary},
    {"remove-replica", "replica", run_remove_replica},
    {"log-level", "level", run_log_level},
};

const AdminCommand* find(std::string_view word) {
  const auto* const found = std::ranges::find(kCommands, word, &AdminCommand::word);
  return found == std::end(kCommands) ? nullptr : found;
}

}  // namespace

const std::string& admin_commands() {
  static const std::string all = [] {
    std::string text;
    for (const AdminCommand& one : kCommands) {
      if (!text.empty()) text += &one == &std::end(kCommands)[-1] ? " or " : ", ";
      text += one.word;
      if (one.takes.empty()) continue;
      text += ' ';
      for (const char letter : one.takes)
        text += static_cast<char>(std::toupper(letter));
    }
    return text;
  }();
  return all;
}

// The words are taken as typed.
OrFailure<void> check_admin(const std::vector<std::string>& words) {
  const AdminCommand* const command = find(words.front());
  if (command == nullptr) {
    return failure(kUsage, fmt::format("admin has no command '{}'; it is {}",
                                       rkv::shown(words.front()), admin_commands()));
  }
  if (command->takes.empty()) {
    if (words.size() == 1) return {};
    return failure(kUsage, fmt::format("admin {} takes no name", command->word));
  }
  if (words.size() != 2) {
    return failure(kUsage,
                   fmt::format("admin {} takes the name of a {}", command->word, command->takes));
  }
  if (is_user_name(words.back())) return {};
  return failure(kUsage, fmt::format("'{}' is not the name of a {}", rkv::shown(words.back()),
                                     command->takes));
}

ExitCode run_admin(Cluster& client, const Job& job) {
  return find(job.command.arguments.front())->run(client, job);
}

}  // namespace rkv::cli
