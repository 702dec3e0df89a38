#include "rkv/client.h"

#include <algorithm>
#include <utility>

#include "client/engine/engine.h"
#include "client/engine/get_pipeline.h"
#include "client/engine/page_reader.h"
#include "client/engine/write_pipeline.h"
#include "common/auth/proof.h"
#include "common/log.h"

namespace rkv {

using client::Engine;

Client::Client(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

const client::OneUser::Sentences Client::kSentences = {
    .two_threads = "rkv::Client is used by two threads at once: use rkv::SharedClient",
    .moved_from = "this rkv::Client was moved from"};

Result<Client> Client::connect(const ClientOptions& options,
                               std::shared_ptr<rdma::Transport> transport, const Clock* clock,
                               std::string* refusal) {
  if (transport == nullptr) return fail(Code::kInvalidArgument, "a client needs a transport");
  RKV_ASSIGN_OR_RETURN(auto engine, Engine::create(options, std::move(transport), clock, refusal));
  return Client(std::move(engine));
}

std::size_t Client::registered_bytes(const ClientOptions& options) {
  const std::size_t answers =
      client::Link::receive_buffers(options.requests_in_flight) * std::size_t{kMaxMessageBytes};
  return answers + Engine::arena_bytes(options);
}

void Client::visit_all(std::span<const std::string_view> keys, client::GetVisitor visit,
                       void* target, const GetOptions& options) {
  if (user_.is_inherited()) {
    for (std::size_t i = 0; i < keys.size(); ++i)
      visit(target, i, std::unexpected(client::kInherited));
    return;
  }
  const client::OneUser::Use use(user_);
  const Deadline deadline = engine_->connector.deadline(options.timeout);
  client::KeysFeed feed(keys, options.at_least, visit, target);
  client::GetPipeline(*engine_, feed, deadline).run();
}

void Client::put_all(std::span<const KeyValue> items, client::PutVisitor visit, void* target,
                     const WriteOptions& options) {
  if (user_.is_inherited()) {
    for (std::size_t i = 0; i < items.size(); ++i)
      visit(target, i, std::unexpected(client::kInherited));
    return;
  }
  const client::OneUser::Use use(user_);
  const Deadline deadline = engine_->connector.deadline(options.timeout);
  client::ItemsFeed feed(items, options.durability, deadline, visit, target);
  client::WritePipeline(*engine_, feed, deadline).run();
}

void Client::add_all(std::span<const CounterAddition> additions, Timeout timeout,
                     std::span<Result<Counter>> results) {
  if (user_.is_inherited()) {
    std::ranges::fill(results, Result<Counter>(std::unexpected(client::kInherited)));
    return;
  }
  const client::OneUser::Use use(user_);
  engine_->counters.multi_add(additions, engine_->connector.deadline(timeout), results);
}

// -------------------------------------------------------------------------------- the server

namespace {
Request bare(Opcode opcode) {
  Request request;
  request.opcode = opcode;
  return request;
}
}  // namespace

Status Client::ping(Timeout timeout) {
  return on({}, timeout, [&](Engine& engine) -> Status {
    const auto reply =
        engine.requester.ask(bare(Opcode::kPing), engine.connector.deadline(timeout));
    if (!reply) return std::unexpected(reply.error());
    return {};
  });
}

Status Client::ping_one_sided(Timeout timeout) {
  return on({}, timeout, [&](Engine& engine) {
    return engine.connector.read_marks(engine.connector.deadline(timeout));
  });
}

Result<std::uint64_t> Client::flush(Timeout timeout) {
  return on({}, timeout, [&](Engine& engine) -> Result<std::uint64_t> {
    const auto reply =
        engine.requester.ask(bare(Opcode::kFlush), engine.connector.deadline(timeout));
    if (!reply) return std::unexpected(reply.error());
    return reply->response().version.bits;
  });
}

Result<std::uint64_t> Client::backup(std::string_view name, Timeout timeout) {
  if (!is_backup_name(name)) {
    return fail(Code::kInvalidArgument,
                "a backup's name has 1 to 128 letters, digits, '.', '_' and '-', and begins with a "
                "letter, digit or '_'");
  }
  Request request = bare(Opcode::kBackup);
  request.value = as_bytes(name);
  return on({}, timeout, [&](Engine& engine) -> Result<std::uint64_t> {
    const auto reply = engine.requester.ask_once(request, engine.connector.deadline(timeout));
    if (!reply) return std::unexpected(reply.error());
    return reply->response().version.bits;
  });
}

Result<std::string> Client::server_stats(Timeout timeout) {
  return on({}, timeout, [&](Engine& engine) -> Result<std::string> {
    const auto reply =
        engine.requester.ask(bare(Opcode::kStats), engine.connector.deadline(timeout));
    if (!reply) return std::unexpected(reply.error());
    return std::string(as_text(reply->response().value));
  });
}

Result<std::uint64_t> Client::revoke_user(std::string_view name, Timeout timeout) {
  if (!is_user_name(name)) {
    return fail(Code::kInvalidArgument,
                "a user's name has 1 to 64 letters, digits, '.', '_' and '-', and begins with a "
                "letter, digit or '_'");
  }
  Request request = bare(Opcode::kRevoke);
  request.value = as_bytes(name);
  return on({}, timeout, [&](Engine& engine) -> Result<std::uint64_t> {
    const auto reply = engine.requester.ask(request, engine.connector.deadline(timeout));
    if (!reply && reply.error().code == Code::kNotFound) {
      return fail(Code::kNotFound, "the server has no user of this name");
    }
    if (!reply) return std::unexpected(reply.error());
    return load_le<std::uint64_t>(reply->response().value.data());
  });
}

Status Client::set_server_log_level(std::string_view level, Timeout timeout) {
  if (!log_level_of(level))
    return fail(Code::kInvalidArgument, "a log level is debug, info, warn or error");
  Request request = bare(Opcode::kSetLogLevel);
  request.value = as_bytes(level);
  return on({}, timeout, [&](Engine& engine) -> Status {
    const auto reply = engine.requester.ask(request, engine.connector.deadline(timeout));
    return reply ? Status{} : Status(std::unexpected(reply.error()));
  });
}

namespace {
Status change_group(client::Engine& engine, Opcode opcode, std::string_view replica,
                    std::chrono::milliseconds timeout) {
  if (!is_user_name(replica)) {
    return fail(Code::kInvalidArgument,
                "a replica's name has 1 to 64 letters, digits, '.', '_' and '-', and begins with a "
                "letter, digit or '_'");
  }
  Request request{.opcode = opcode};
  request.value = as_bytes(replica);
  const auto reply = engine.requester.ask_once(request, engine.connector.deadline(timeout));
  if (!reply && reply.error().code == Code::kNotFound) {
    return fail(Code::kNotFound, "the group has no replica of this name");
  }
  return reply ? Status{} : Status(std::unexpected(reply.error()));
}
}  // namespace

Status Client::move_primary(std::string_view replica, Timeout timeout) {
  return on({}, timeout, [&](Engine& engine) {
    return change_group(engine, Opcode::kMovePrimary, replica, timeout);
  });
}

Status Client::remove_replica(std::string_view replica, Timeout timeout) {
  return on({}, timeout, [&](Engine& engine) {
    return change_group(engine, Opcode::kRemoveReplica, replica, timeout);
  });
}

ClientStats& ClientStats::operator+=(const ClientStats& other) {
  gets += other.gets;
  one_sided_gets += other.one_sided_gets;
  two_sided_gets += other.two_sided_gets;
  missing += other.missing;
  rdma_reads += other.rdma_reads;
  map_reads += other.map_reads;
  tears_detected += other.tears_detected;
  pins += other.pins;
  atomics += other.atomics;
  retries += other.retries;
  cache_hits += other.cache_hits;
  cache_misses += other.cache_misses;
  cached_groups += other.cached_groups;
  two_sided_requests += other.two_sided_requests;
  busy_answers += other.busy_answers;
  reconnects += other.reconnects;
  outcomes_asked += other.outcomes_asked;
  outcomes_recovered += other.outcomes_recovered;
  outcomes_unknown += other.outcomes_unknown;
  static_assert(sizeof(ClientStats) == 19 * sizeof(std::uint64_t), "add the new counter here");
  return *this;
}

Result<ScanPage> Client::scan(const ScanOptions& options) {
  return on({}, options.timeout,
            [&](Engine& engine) { return client::PageReader(engine).read(options); });
}

ClientStats Client::stats() const {
  user_.check_owner();
  return engine_->stats();
}
const std::string& Client::last_refusal() const {
  user_.check_owner();
  return engine_->session.refusal;
}
const std::string& Client::describe() const {
  user_.check_owner();
  return engine_->description;
}
void Client::set_description(std::string text) {
  engine_->description = std::move(text);
}

}  // namespace rkv
