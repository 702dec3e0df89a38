// How the state of the networks is described to operators.
#include <fmt/format.h>

#include <algorithm>

#include "server/monitor/reports.h"

namespace rkv::server {

namespace {

std::string sentence_of(const EndpointFacts& endpoint) {
  const char* doing = "serves";
  switch (endpoint.state) {
    case rdma::DeviceState::kServing:
      return fmt::format("{}: serving", endpoint.transport);
    case rdma::DeviceState::kPortDown:
      doing = "carries no traffic";
      break;
    case rdma::DeviceState::kGone:
      doing = "has lost its device";
      break;
    case rdma::DeviceState::kWaiting:
      doing = "waits for a device";
      break;
  }
  return fmt::format("{}: {}: {}", endpoint.transport, doing, endpoint.why);
}

}  // namespace

bool has_way_in(const ServerFacts& facts) {
  return facts.endpoints.empty() || std::ranges::any_of(facts.endpoints, &EndpointFacts::serves);
}

std::string closed_endpoints(const ServerFacts& facts) {
  std::string text;
  for (const EndpointFacts& endpoint : facts.endpoints) {
    if (!endpoint.serves()) text += sentence_of(endpoint) + "\n";
  }
  return text;
}

}  // namespace rkv::server
