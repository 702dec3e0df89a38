// The verbs that answer something about keys without their values: exists, ttl.
#include <fmt/format.h>

#include <algorithm>

#include "client/cli/commands.h"
#include "client/cli/output.h"
#include "common/clock.h"

namespace rkv::cli {

namespace {

// By this host's clock, although the server's decides when a key expires. At least 1, as the key is
// there.
std::uint64_t ms_left(std::uint64_t expires_at_ms) {
  const std::uint64_t now = wall_clock_ms();
  return std::max(expires_at_ms, now + 1) - now;
}

}  // namespace

ExitCode run_exists(Cluster& client, const Job& job) {
  const Globals& globals = job.command.globals;
  const std::vector<std::string_view> keys(job.arguments.begin(), job.arguments.end());
  std::vector<Status> found(keys.size());
  client.multi_get_into(keys, [&](std::size_t index, const Result<ValueView>& value) {
    if (!value) found[index] = std::unexpected(value.error());
  });
  ExitCode worst = kDone;
  Json array = Json::array();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const bool answered = found[i] || found[i].error().code == Code::kNotFound;
    if (!found[i]) worst = std::max(worst, exit_code_of(found[i].error()));
    if (!answered) complain(describe(found[i].error(), client, keys[i]));
    Json object;
    set_bytes(object, "key", keys[i], globals.hex);
    if (answered) object["found"] = found[i].has_value();
    if (!answered) object["error"] = to_string(found[i].error());
    array.push_back(std::move(object));
  }
  if (globals.json) {
    print_json(array);
  } else if (worst <= kNotFoundExit) {
    print_raw(fmt::format("{}\n", std::ranges::count_if(found, &Status::has_value)));
  }
  return worst;
}

ExitCode run_ttl(Cluster& client, const Job& job) {
  const Globals& globals = job.command.globals;
  const std::string& key = job.arguments.front();
  const auto value = client.get(key);
  const bool missing = !value && value.error().code == Code::kNotFound;
  if (!value && !(missing && globals.json)) return fail_with(value.error(), client);
  if (globals.json) {
    Json object;
    set_bytes(object, "key", key, globals.hex);
    object["found"] = !missing;
    if (value && value->expires_at_ms != 0) {
      object["ttl_ms"] = ms_left(value->expires_at_ms);
      object["expires_at_ms"] = value->expires_at_ms;
    }
    print_json(object);
  } else {
    print_raw(value->expires_at_ms == 0 ? "none\n"
                                        : fmt::format("{}ms\n", ms_left(value->expires_at_ms)));
  }
  return missing ? kNotFoundExit : kDone;
}

}  // namespace rkv::cli
