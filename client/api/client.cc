#include "rkv/client.h"

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "client/engine/engine.h"
#include "client/engine/gather.h"

namespace rkv {

using client::Engine;
using client::Reply;

Client::Client(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

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

// ----------------------------------------------------------------------------------- one key

using client::value_of;

namespace {

Request request_for(Opcode opcode, std::string_view key) {
  Request request;
  request.opcode = opcode;
  request.key = as_bytes(key);
  return request;
}

Result<std::uint64_t> version_of(const Result<Reply>& reply) {
  if (!reply) return std::unexpected(reply.error());
  return reply->response().version.bits;
}

}  // namespace

Result<Value> Client::get(std::string_view key, const GetOptions& options) {
  if (const LiveRecord* const found = engine_->try_get_sync(as_bytes(key), options)) {
    return value_of(engine_->view(*found));
  }
  const auto got = engine_->get(as_bytes(key), options);
  if (!got) return std::unexpected(got.error());
  return value_of(got->view());
}

Result<std::uint64_t> Client::put(std::string_view key, std::string_view value,
                                  const WriteOptions& options) {
  return put_with(key, value, {.timeout = options.timeout, .durability = options.durability});
}

Result<std::uint64_t> Client::put_if_absent(std::string_view key, std::string_view value,
                                            const WriteOptions& options) {
  return put_with(
      key, value,
      {.if_absent = true, .timeout = options.timeout, .durability = options.durability});
}

Result<std::uint64_t> Client::put_if_version(std::string_view key, std::string_view value,
                                             std::uint64_t version, const WriteOptions& options) {
  return put_with(
      key, value,
      {.if_version = version, .timeout = options.timeout, .durability = options.durability});
}

Result<std::uint64_t> Client::put_with(std::string_view key, std::string_view value,
                                       const PutOptions& options) {
  return put_registered(key, value, 0, options);
}

// `remote_key`: key of the registered memory that the value lies in; 0 = not in registered memory.
Result<std::uint64_t> Client::put_registered(std::string_view key, std::string_view value,
                                             std::uint32_t remote_key, const PutOptions& options) {
  if (options.if_absent && options.if_version) {
    return fail(Code::kInvalidArgument, "a put has at most one condition: if_absent or if_version");
  }
  const std::int64_t ttl_ms = options.ttl.count();
  if (ttl_ms < 0 || static_cast<std::uint64_t>(ttl_ms) > kMaxTtlMs) {
    return fail(Code::kInvalidArgument, "a time to live is 1 ms to 2^42 ms, or 0 for no expiry");
  }
  if ((ttl_ms != 0 && options.expires_at_ms != 0) || options.expires_at_ms > kMaxTtlMs) {
    return fail(Code::kInvalidArgument,
                "a put has at most one of ttl and expires_at_ms; each is at most 2^42 ms");
  }
  Request put = request_for(Opcode::kPut, key);
  put.value = as_bytes(value);
  put.until = options.expires_at_ms != 0;
  put.ttl_ms = put.until ? options.expires_at_ms : static_cast<std::uint64_t>(ttl_ms);
  put.durability = options.durability;
  if (options.if_absent) put.condition = Condition::kIfAbsent;
  if (options.if_version) {
    put.condition = Condition::kIfVersion;
    put.expected = {*options.if_version};
  }
  return version_of(engine_->write(put, engine_->deadline(options.timeout), remote_key));
}

Result<std::uint64_t> Client::remove(std::string_view key, const WriteOptions& options) {
  Request remove = request_for(Opcode::kRemove, key);
  remove.durability = options.durability;
  return version_of(engine_->write(remove, engine_->deadline(options.timeout)));
}

Result<std::uint64_t> Client::remove_if_version(std::string_view key, std::uint64_t version,
                                                const WriteOptions& options) {
  Request remove = request_for(Opcode::kRemove, key);
  remove.durability = options.durability;
  remove.condition = Condition::kIfVersion;
  remove.expected = {version};
  return version_of(engine_->write(remove, engine_->deadline(options.timeout)));
}

// ---------------------------------------------------------------------------------- counters

namespace {
std::unexpected<Error> no_negative() {
  return fail(Code::kOutOfRange,
              "-2^63 cannot be subtracted: its negative does not fit in 64 bits");
}
constexpr std::int64_t kNoNegative = std::numeric_limits<std::int64_t>::min();
}  // namespace

Result<Counter> Client::incr(std::string_view key, std::int64_t by, const WriteOptions& options) {
  return engine_->add(as_bytes(key), by, engine_->deadline(options.timeout), options.durability);
}

Result<Counter> Client::decr(std::string_view key, std::int64_t by, const WriteOptions& options) {
  if (by == kNoNegative) return no_negative();
  return incr(key, -by, options);
}

Result<CounterSwap> Client::counter_cas(std::string_view key, std::int64_t expected,
                                        std::int64_t desired, const WriteOptions& options) {
  return engine_->swap(as_bytes(key), expected, desired, engine_->deadline(options.timeout),
                       options.durability);
}

Result<Counter> Client::get_counter(std::string_view key, Timeout timeout) {
  return engine_->number(as_bytes(key), timeout);
}

Result<OneSidedCounter> Client::open_counter(std::string_view key, const OpenOptions& options) {
  return engine_->open_counter(key, options.create, engine_->deadline(options.timeout));
}

Result<Counter> Client::incr(OneSidedCounter& counter, std::int64_t by,
                             const WriteOptions& options) {
  return engine_->add(counter, by, engine_->deadline(options.timeout), options.durability);
}

Result<Counter> Client::decr(OneSidedCounter& counter, std::int64_t by,
                             const WriteOptions& options) {
  if (by == kNoNegative) return no_negative();
  return incr(counter, -by, options);
}

Result<CounterSwap> Client::counter_cas(OneSidedCounter& counter, std::int64_t expected,
                                        std::int64_t desired, const WriteOptions& options) {
  return engine_->swap(counter, expected, desired, engine_->deadline(options.timeout),
                       options.durability);
}

Result<Counter> Client::get_counter(OneSidedCounter& counter, Timeout timeout) {
  return engine_->number(counter, engine_->deadline(timeout));
}

std::vector<Result<Counter>> Client::multi_incr(std::span<const CounterAddition> additions,
                                                Timeout timeout) {
  std::vector<Result<Counter>> results(additions.size(), fail(Code::kInternal, nullptr));
  engine_->multi_add(additions, engine_->deadline(timeout), results);
  return results;
}

// --------------------------------------------------------------------------------- many keys

void Client::visit_all(std::span<const std::string_view> keys, RawVisitor visit, void* target,
                       const GetOptions& options) {
  engine_->multi_get(keys, options.at_least, engine_->deadline(options.timeout), visit, target);
}

std::vector<Result<Value>> Client::multi_get(std::span<const std::string_view> keys,
                                             const GetOptions& options) {
  return client::gather_values(keys.size(),
                               [&](auto visit) { multi_get_into(keys, visit, options); });
}

std::vector<Result<std::uint64_t>> Client::multi_put(std::span<const KeyValue> items,
                                                     const WriteOptions& options) {
  return client::gather_versions(items.size(),
                                 [&](auto visit) { multi_put_each(items, visit, options); });
}

void Client::put_all(std::span<const KeyValue> items, RawPutVisitor visit, void* target,
                     const WriteOptions& options) {
  engine_->multi_put(items, options.durability, engine_->deadline(options.timeout), visit, target);
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
  const auto reply = engine_->ask(bare(Opcode::kPing), engine_->deadline(timeout));
  if (!reply) return std::unexpected(reply.error());
  return {};
}

Status Client::ping_one_sided(Timeout timeout) {
  return engine_->read_marks(engine_->deadline(timeout));
}

Result<std::uint64_t> Client::flush(Timeout timeout) {
  const auto reply = engine_->ask(bare(Opcode::kFlush), engine_->deadline(timeout));
  if (!reply) return std::unexpected(reply.error());
  return reply->response().version.bits;
}

Result<std::uint64_t> Client::backup(std::string_view name, Timeout timeout) {
  if (!is_backup_name(name)) {
    return fail(Code::kInvalidArgument,
                "a backup's name has 1 to 128 letters, digits, '.', '_' and '-', and begins with a "
                "letter, digit or '_'");
  }
  Request request = bare(Opcode::kBackup);
  request.value = as_bytes(name);
  const auto reply = engine_->ask_once(request, engine_->deadline(timeout));
  if (!reply) return std::unexpected(reply.error());
  return reply->response().version.bits;
}

Result<std::string> Client::server_stats(Timeout timeout) {
  const auto reply = engine_->ask(bare(Opcode::kStats), engine_->deadline(timeout));
  if (!reply) return std::unexpected(reply.error());
  return std::string(as_text(reply->response().value));
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
  static_assert(sizeof(ClientStats) == 16 * sizeof(std::uint64_t), "add the new counter here");
  return *this;
}

ClientStats Client::stats() const {
  return engine_->stats();
}
const std::string& Client::last_refusal() const {
  return engine_->last_refusal();
}
const std::string& Client::describe() const {
  return engine_->description();
}
void Client::set_description(std::string text) {
  engine_->set_description(std::move(text));
}

}  // namespace rkv
