// What verbs that ask each server of a store have in common: they report each one's result with its
// address, and one that fails leaves the others asked.
//
// Thread safety: none needed.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/output.h"

namespace rkv::cli {

std::vector<std::string> addresses(const Cluster& client);
// The sentence with which a server refused what it was asked, if it is the server that refused.
std::string said_by(Cluster& client, std::size_t server, const Error& error);

// Reports the results of all servers: an object for a single server, otherwise an array under
// "servers" with addresses and errors. Complains of errors and returns the highest exit code.
// `doubt`: text to add if it is unknown whether the operation was done.
template <class T, class Facts>
ExitCode report_each(Cluster& client, const std::vector<Result<T>>& results, const Job& job,
                     bool interactive, Facts facts, const char* doubt = "") {
  const bool as_json = job.command.globals.json;
  const auto reported = [&](Error error) {
    const bool unknown = error.write == WriteOutcome::kMayHaveHappened;
    error.write = WriteOutcome::kNotApplied;  // this is not a write of a key
    return std::pair(error, unknown ? doubt : "");
  };
  if (results.size() == 1 && !results.front()) {
    const auto [error, rest] = reported(results.front().error());
    complain(describe(error, client) + rest);
    return exit_code_of(error);
  }
  ExitCode worst = kDone;
  Json array = Json::array();
  const auto names = addresses(client);
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::string problem;
    if (!results[i]) {
      const auto [error, rest] = reported(results[i].error());
      problem = to_string(error) + said_by(client, i, error) + rest;
    }
    Json object = results[i] ? facts(*results[i]) : Json{{"error", problem}};
    if (results.size() > 1) object["server"] = names[i];
    array.push_back(std::move(object));
    if (results[i]) continue;
    worst = std::max(worst, exit_code_of(results[i].error()));
    complain(fmt::format("{}: {}", names[i], problem));
  }
  if (as_json) {
    print_json(array.size() == 1 ? array.front() : Json{{"servers", std::move(array)}});
  } else if (interactive && worst == kDone) {
    print_raw("ok\n");
  }
  return worst;
}

}  // namespace rkv::cli
