#include "client/engine/engine.h"

#include "client/engine/option_table.h"

namespace rkv::client {

namespace {

Status check_options(const ClientOptions& options) {
  static_assert(kMostReadsInFlight == 1024 && kMostRequestsInFlight == 256, "the sentences say so");
  RKV_RETURN_IF_ERROR(Servers::check(options.server));
  if (options.reads_in_flight < 1 || options.reads_in_flight > kMostReadsInFlight) {
    return fail(Code::kInvalidArgument, "reads_in_flight must be 1 to 1024");
  }
  if (options.requests_in_flight < 1 || options.requests_in_flight > kMostRequestsInFlight) {
    return fail(Code::kInvalidArgument, "requests_in_flight must be 1 to 256");
  }
  if (options.large_bytes < kMaxValueBytes) {
    return fail(Code::kInvalidArgument, "large_bytes must be at least 16 MiB, the longest value");
  }
  if (options.timeout.count() < 1 || options.connect_timeout.count() < 1 ||
      options.first_backoff.count() < 1 || options.longest_backoff < options.first_backoff) {
    return fail(Code::kInvalidArgument, "timeouts and back-offs must be 1 ms or longer");
  }
  return {};
}

}  // namespace

Engine::Engine(const ClientOptions& options, std::shared_ptr<rdma::Transport> transport,
               const Clock& clock, Arena arena, std::optional<Credentials> credentials,
               ConnectPolicy* policy, std::shared_ptr<Home> home)
    : session(options, std::move(transport), clock, std::move(arena), std::move(credentials),
              home != nullptr ? std::move(home) : std::make_shared<Home>()),
      connector(session, policy),
      requester(session, connector),
      getter(session, connector, requester),
      counters(session, connector, requester, getter),
      get_buffers(session),
      write_buffers(options),
      description(session.transport->describe()) {}

Result<std::unique_ptr<Engine>> Engine::create(const ClientOptions& options,
                                               std::shared_ptr<rdma::Transport> transport,
                                               const Clock* clock, std::string* refusal) {
  RKV_ASSIGN_OR_RETURN(const auto credentials, Credentials::of(options));
  RKV_ASSIGN_OR_RETURN(auto engine,
                       create_unconnected(options, credentials ? &*credentials : nullptr,
                                          std::move(transport), clock, nullptr));
  Connector& connector = engine->connector;
  const Deadline deadline = connector.deadline({});
  const Status connected = options.repeat_connect ? connector.ensure_connected(deadline)
                                                  : connector.connect_without_wait(deadline);
  if (refusal != nullptr) *refusal = engine->session.refusal;
  if (!connected) return std::unexpected(connected.error());
  return engine;
}

Result<std::unique_ptr<Engine>> Engine::create_unconnected(
    const ClientOptions& options, const Credentials* credentials,
    std::shared_ptr<rdma::Transport> transport, const Clock* clock, ConnectPolicy* policy,
    std::shared_ptr<Home> home) {
  static const SteadyClock steady;
  RKV_RETURN_IF_ERROR(check_options(options));
  if (transport->is_inherited())
    return fail(Code::kInvalidArgument, "the transport was made before fork(): open one here");
  RKV_ASSIGN_OR_RETURN(
      Arena arena, Arena::create(*transport, Getter::gets_of(options), options.requests_in_flight));
  return std::make_unique<Engine>(
      options, std::move(transport), clock != nullptr ? *clock : steady, std::move(arena),
      credentials != nullptr ? std::optional(*credentials) : std::nullopt, policy, std::move(home));
}

ClientStats Engine::stats() const {
  ClientStats stats = session.stats;
  stats.map_reads = session.loader.reads();
  stats.cached_groups = session.groups.statistics().groups;
  return stats;
}

}  // namespace rkv::client
