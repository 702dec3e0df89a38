#include "client/cli/connect.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace rkv::cli {

namespace {
constexpr std::chrono::milliseconds kPause{100};  // between attempts to connect to a busy server
}

bool is_of_resolver(const Error& error) {
  return error.call != nullptr && std::string_view(error.call) == "getaddrinfo";
}

ExitCode exit_code_of_connect(const Error& error, std::size_t servers) {
  // The resolver reports a name without an address as kInvalidArgument too.
  const bool twice = servers > 1 && error.code == Code::kInvalidArgument && !is_of_resolver(error);
  return twice ? kUsage : kNoServer;
}

OrFailure<Cluster> connect(const ShardMap& map, const ClientOptions& options) {
  std::string problem;
  auto cluster = Cluster::connect(map, options, &problem);
  const auto end = std::chrono::steady_clock::now() + options.timeout;
  // When the primary of a group is gone, another replica takes over within seconds.
  const bool is_group = options.server.contains(',');
  const auto is_later = [is_group](Code code) {
    return code == Code::kBusy || code == Code::kNotPrimary ||
           (is_group && code == Code::kUnreachable);
  };
  while (!cluster && is_later(cluster.error().code) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kPause);
    cluster = Cluster::connect(map, options, &problem);
  }
  if (cluster) return std::move(*cluster);
  return std::unexpected(
      Failure{.exit_code = exit_code_of_connect(cluster.error(), map.servers().size()),
              .sentence = std::move(problem),
              .wants_user = cluster.error().code == Code::kUnauthenticated});
}

OrFailure<Cluster> connect(const std::optional<ShardMap>& servers, const ClientOptions& options) {
  if (servers) return connect(*servers, options);
  std::string problem;
  // With the servers of a group the map has the first: the client goes to the one that serves.
  const std::string first = options.server.substr(0, options.server.find(','));
  const auto map = ShardMap::create({{.address = first}}, &problem);
  if (map) return connect(*map, options);
  return failure(kNoServer, fmt::format("cannot reach {}", problem));
}

}  // namespace rkv::cli
