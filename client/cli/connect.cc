#include "client/cli/connect.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace rkv::cli {

namespace {
constexpr std::chrono::milliseconds kPause{100};  // between attempts at a busy server
}

OrFailure<Cluster> connect(const ShardMap& map, const ClientOptions& options) {
  std::string problem;
  auto cluster = Cluster::connect(map, options, &problem);
  const auto end = std::chrono::steady_clock::now() + options.timeout;
  while (!cluster && cluster.error().code == Code::kBusy &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kPause);
    cluster = Cluster::connect(map, options, &problem);
  }
  if (cluster) return std::move(*cluster);
  const bool twice = map.servers().size() > 1 && cluster.error().code == Code::kInvalidArgument;
  return failure(twice ? kUsage : kNoServer, std::move(problem));
}

OrFailure<Cluster> connect(const std::optional<ShardMap>& servers, const ClientOptions& options) {
  if (servers) return connect(*servers, options);
  std::string problem;
  const auto map = ShardMap::create({{.address = options.server}}, &problem);
  if (map) return connect(*map, options);
  return failure(kNoServer, fmt::format("cannot reach {}", problem));
}

}  // namespace rkv::cli
