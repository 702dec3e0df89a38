#include "server/group/configuration/etcd_configuration_store.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "server/group/configuration/etcd.grpc.pb.h"

namespace rkv::server {

namespace {

using Stored = ConfigurationStore::Stored;

// Pause after all servers have failed at once, such as when nothing listens on their ports.
constexpr std::int64_t kPauseMs = 50;
// gRPC waits this long before it connects to a failed server again: 20 s and more by default.
constexpr int kReconnectMs = 100;
// How long a call waits for a connection to one server.
constexpr std::int64_t kConnectMs = 500;
constexpr int kLongestReconnectMs = 500;
// A connection whose other end has acknowledged nothing for this long is replaced. Otherwise TCP
// would retry after ever longer pauses, and stay silent for minutes after the network is back.
constexpr int kSilenceMs = 2000;
// Interval of pings on idle connections. By default etcd allows one in 5 s.
constexpr int kPingMs = 10'000;

constexpr const char* kNoAnswer = "etcd does not answer: check --etcd and that etcd runs";

// nullopt: the server may be down or without a majority, and another one may answer.
std::optional<Error> final_error(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      return Error{.code = Code::kPermission,
                   .text =
                       "etcd refuses access: check --etcd-user, and that its role may read and "
                       "write the prefix rkv/groups/"};
    case grpc::StatusCode::UNIMPLEMENTED:
      return Error{.code = Code::kVersionMismatch,
                   .text = "that is not an etcd of version 3: check --etcd"};
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return Error{.code = Code::kRejected,
                   .text = "etcd accepts no more requests: its log and etcdctl alarm list say why"};
    case grpc::StatusCode::INVALID_ARGUMENT:
      if (status.error_message().contains("user name is empty")) {
        return Error{.code = Code::kPermission,
                     .text = "etcd has users: give --etcd-user and --etcd-password-file"};
      }
      [[fallthrough]];
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::FAILED_PRECONDITION:
      return Error{.code = Code::kRejected, .text = "etcd refuses the request"};
    default:
      return std::nullopt;
  }
}

// Whether etcd does not know the token any more, or the token is older than a change of etcd's
// users.
bool wants_log_in(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
         (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT &&
          status.error_message().contains("revision"));
}

std::chrono::system_clock::time_point in_ms(std::int64_t ms) {
  return std::chrono::system_clock::now() + std::chrono::milliseconds(ms);
}

void pause(const Deadline& deadline) {
  std::this_thread::sleep_for(
      std::chrono::milliseconds(std::min<std::int64_t>(deadline.left_ms(), kPauseMs)));
}

Result<Stored> stored_from(const etcdserverpb::KeyValue& kv) {
  RKV_ASSIGN_OR_RETURN(auto configuration, parse_configuration(kv.value()));
  return Stored{.configuration = std::move(configuration), .revision = kv.mod_revision()};
}

etcdserverpb::TxnRequest transaction(const std::string& key, std::int64_t revision,
                                     const std::string& value) {
  etcdserverpb::TxnRequest request;
  etcdserverpb::Compare& compare = *request.add_compare();
  compare.set_result(etcdserverpb::Compare::EQUAL);
  compare.set_target(etcdserverpb::Compare::MOD);
  compare.set_key(key);
  compare.set_mod_revision(revision);
  etcdserverpb::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(key);
  put.set_value(value);
  request.add_failure()->mutable_request_range()->set_key(key);
  return request;
}

}  // namespace

struct EtcdConfigurationStore::Server {
  explicit Server(std::shared_ptr<grpc::Channel> to)
      : channel(std::move(to)),
        auth(etcdserverpb::Auth::NewStub(channel)),
        kv(etcdserverpb::KV::NewStub(channel)),
        watch(etcdserverpb::Watch::NewStub(channel)) {}
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<etcdserverpb::Auth::Stub> auth;
  std::unique_ptr<etcdserverpb::KV::Stub> kv;
  std::unique_ptr<etcdserverpb::Watch::Stub> watch;
};

namespace {
// Otherwise gRPC writes to stderr itself, and a reader of stderr that stands still would stop
// gRPC's threads.
void log_for_grpc(gpr_log_func_args* line) {
  if (line->severity == GPR_LOG_SEVERITY_ERROR)
    log_warn(EventName("grpc"), "gRPC: {}", line->message);
}
}  // namespace

EtcdConfigurationStore::EtcdConfigurationStore(const std::vector<std::string>& servers,
                                               std::string_view group, const Clock& clock,
                                               EtcdAccess access)
    : key_("rkv/groups/" + std::string(group) + "/configuration"),
      clock_(clock),
      access_(std::move(access)) {
  gpr_set_log_function(log_for_grpc);
  RKV_CHECK(!servers.empty(), "etcd has at least one server");
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
  // Despite its name this is how long an attempt to connect may take. On a busy machine even a
  // connection to a neighbour takes a while to be noticed.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kTryMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectMs);
  // The second setting also sets TCP_USER_TIMEOUT (gRPC's proposal "TCP user timeout").
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kSilenceMs);
  const auto credentials = access_.ca.empty()
                               ? grpc::InsecureChannelCredentials()
                               : grpc::SslCredentials({.pem_root_certs = access_.ca,
                                                       .pem_private_key = access_.key,
                                                       .pem_cert_chain = access_.cert});
  for (const std::string& address : servers) {
    servers_.push_back(
        std::make_unique<Server>(grpc::CreateCustomChannel(address, credentials, arguments)));
  }
}

EtcdConfigurationStore::~EtcdConfigurationStore() = default;

EtcdConfigurationStore::Server& EtcdConfigurationStore::server() const {
  return *servers_[current_.load(std::memory_order_relaxed) % servers_.size()];
}

// Another thread may have left the failed server already.
void EtcdConfigurationStore::use_next(const Server& failed) {
  std::size_t now = current_.load(std::memory_order_relaxed);
  if (servers_[now % servers_.size()].get() != &failed) return;
  current_.compare_exchange_strong(now, (now + 1) % servers_.size(), std::memory_order_relaxed);
}

std::string EtcdConfigurationStore::token() const {
  const MutexLock lock(mutex_);
  return token_;
}

// nullopt: there is a new token, or the server has not answered.
std::optional<Error> EtcdConfigurationStore::log_in(Server& server, const Deadline& deadline) {
  etcdserverpb::AuthenticateRequest request;
  request.set_name(access_.user);
  request.set_password(access_.password);
  etcdserverpb::AuthenticateResponse response;
  grpc::ClientContext context;
  context.set_deadline(in_ms(std::min<std::int64_t>(deadline.left_ms(), kTryMs)));
  const grpc::Status status = server.auth->Authenticate(&context, request, &response);
  if (!status.ok()) {
    if (!final_error(status)) return std::nullopt;
    return Error{.code = Code::kPermission,
                 .text =
                     "etcd refuses the user: check --etcd-user and --etcd-password-file, and "
                     "that etcd has users"};
  }
  const MutexLock lock(mutex_);
  token_ = response.token();
  return std::nullopt;
}

// Calls `call` with one server after another until one answers.
template <class Call>
EtcdConfigurationStore::Attempts EtcdConfigurationStore::try_servers(const Deadline& deadline,
                                                                     Call call) {
  Attempts attempts;
  bool may_log_in = !access_.user.empty();
  for (std::size_t tries = 1; !deadline.passed(); ++tries) {
    Server& server = this->server();
    // gRPC's threads notice that a connection is made only while a call waits for it. A call on a
    // channel that has failed before does not wait.
    if (!server.channel->WaitForConnected(
            in_ms(std::min<std::int64_t>(deadline.left_ms(), kConnectMs)))) {
      use_next(server);
      continue;
    }
    std::string token = this->token();
    if (token.empty() && !access_.user.empty()) {
      attempts.error = log_in(server, deadline);
      if (attempts.error) return attempts;
      token = this->token();
      if (token.empty()) {
        use_next(server);
        pause(deadline);
        continue;
      }
      may_log_in = false;
    }
    grpc::ClientContext context;
    context.set_deadline(in_ms(std::min<std::int64_t>(deadline.left_ms(), kTryMs)));
    if (!token.empty()) context.AddMetadata("token", token);
    const grpc::Status status = call(server, context);
    if (status.ok()) return attempts;
    if (may_log_in && wants_log_in(status)) {
      may_log_in = false;
      attempts.error = log_in(server, deadline);
      if (attempts.error) return attempts;
      continue;
    }
    attempts.error = final_error(status);
    if (attempts.error) return attempts;
    attempts.unanswered = true;
    use_next(server);
    if (tries % servers_.size() == 0) pause(deadline);
  }
  attempts.error = Error{.code = Code::kTimeout, .text = kNoAnswer};
  return attempts;
}

Result<EtcdConfigurationStore::Seen> EtcdConfigurationStore::look(const Deadline& deadline) {
  etcdserverpb::RangeRequest request;
  request.set_key(key_);
  etcdserverpb::RangeResponse response;
  const Attempts attempts =
      try_servers(deadline, [&](Server& server, grpc::ClientContext& context) {
        return server.kv->Range(&context, request, &response);
      });
  if (attempts.error) return std::unexpected(*attempts.error);
  Seen seen{.stored = {}, .etcd_revision = response.header().revision()};
  if (!response.kvs().empty()) {
    RKV_ASSIGN_OR_RETURN(seen.stored, stored_from(response.kvs(0)));
  }
  return seen;
}

Result<Stored> EtcdConfigurationStore::read(const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(Seen seen, look(deadline));
  return std::move(seen.stored);
}

Result<std::int64_t> EtcdConfigurationStore::replace(std::int64_t revision,
                                                     const GroupConfiguration& next,
                                                     const Deadline& deadline) {
  const std::string text = to_text(next);
  const etcdserverpb::TxnRequest request = transaction(key_, revision, text);
  etcdserverpb::TxnResponse response;
  const Attempts attempts =
      try_servers(deadline, [&](Server& server, grpc::ClientContext& context) {
        response.Clear();
        return server.kv->Txn(&context, request, &response);
      });
  const WriteOutcome earlier =
      attempts.unanswered ? WriteOutcome::kMayHaveHappened : WriteOutcome::kNotApplied;
  if (attempts.error) {
    Error error = *attempts.error;
    error.write = earlier;
    return std::unexpected(error);
  }
  if (response.succeeded()) return response.header().revision();
  // Equal text is the same change, whichever replica stored it.
  if (attempts.unanswered && response.responses_size() == 1) {
    for (const etcdserverpb::KeyValue& kv : response.responses(0).response_range().kvs())
      if (kv.value() == text) return kv.mod_revision();
  }
  return std::unexpected(Error{
      .code = Code::kConflict, .write = earlier, .text = "the group's configuration has changed"});
}

// etcd checks its space, and the user's rights, before it compares revisions.
Status EtcdConfigurationStore::try_storing(const Deadline& deadline) {
  constexpr std::int64_t kNoRevision = -1;
  const etcdserverpb::TxnRequest request = transaction(key_, kNoRevision, {});
  etcdserverpb::TxnResponse response;
  const Attempts attempts =
      try_servers(deadline, [&](Server& server, grpc::ClientContext& context) {
        return server.kv->Txn(&context, request, &response);
      });
  if (attempts.error) return std::unexpected(*attempts.error);
  return {};
}

Result<Stored> EtcdConfigurationStore::wait_for_other(std::int64_t revision,
                                                      const Deadline& deadline) {
  for (;;) {
    RKV_ASSIGN_OR_RETURN(Seen seen, look(deadline));
    if (seen.stored.revision != revision) return std::move(seen.stored);
    RKV_ASSIGN_OR_RETURN(auto changed, watch(seen, deadline));
    if (changed) return std::move(*changed);
    if (deadline.passed()) return fail(Code::kTimeout, "the group's configuration has not changed");
  }
}

// Waits for at most kWatchMs for a change that one server reports. nullopt: there was none, or the
// server has ended the watch.
Result<std::optional<Stored>> EtcdConfigurationStore::watch(const Seen& seen,
                                                            const Deadline& deadline) {
  Server& server = this->server();
  grpc::ClientContext context;
  context.set_deadline(in_ms(std::min<std::int64_t>(deadline.left_ms(), kWatchMs)));
  if (const std::string token = this->token(); !token.empty()) context.AddMetadata("token", token);
  const auto stream = server.watch->Watch(&context);
  etcdserverpb::WatchRequest request;
  request.mutable_create_request()->set_key(key_);
  request.mutable_create_request()->set_start_revision(seen.etcd_revision + 1);
  std::optional<etcdserverpb::Event> change;
  etcdserverpb::WatchResponse response;
  bool canceled = !stream->Write(request);
  while (!canceled && !change && stream->Read(&response)) {
    canceled = response.canceled();
    // The last event is the newest.
    if (response.events_size() != 0) change = response.events(response.events_size() - 1);
  }
  context.TryCancel();
  const grpc::Status status = stream->Finish();
  if (change) {
    if (change->type() == etcdserverpb::Event::DELETE) return Stored{};
    RKV_ASSIGN_OR_RETURN(Stored stored, stored_from(change->kv()));
    return stored;
  }
  // If the token was rejected, the next read asks for another one.
  const auto error = final_error(status);
  if (error && access_.user.empty()) return std::unexpected(*error);
  if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) pause(deadline);
  return std::nullopt;
}

}  // namespace rkv::server
