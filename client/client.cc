#include "rkv/client.h"

#include <cstring>
#include <utility>

#include "client/engine.h"

namespace rkv {

using client::Engine;

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

// ----------------------------------------------------------------------------------- one key

Result<Value> Client::get(std::string_view key, Timeout timeout) {
  const auto got = engine_->get(as_bytes(key), engine_->deadline(timeout));
  if (!got) return std::unexpected(got.error());
  return Value{.value = std::string(as_text(got->value)), .version = got->version.bits};
}

Result<ValueSize> Client::get_into(std::string_view key, std::span<std::byte> out,
                                   Timeout timeout) {
  const auto got = engine_->get(as_bytes(key), engine_->deadline(timeout));
  if (!got) return std::unexpected(got.error());
  if (got->value.size() > out.size()) {
    return fail(Code::kTooLarge, "the value is longer than the buffer given");
  }
  if (!got->value.empty()) std::memcpy(out.data(), got->value.data(), got->value.size());
  return ValueSize{.bytes = got->value.size(), .version = got->version.bits};
}

Result<std::uint64_t> Client::put(std::string_view key, std::string_view value, Timeout timeout) {
  const auto version = engine_->put({.key = key, .value = value}, engine_->deadline(timeout));
  if (!version) return std::unexpected(version.error());
  return version->bits;
}

Result<std::uint64_t> Client::remove(std::string_view key, Timeout timeout) {
  const auto version = engine_->remove(as_bytes(key), engine_->deadline(timeout));
  if (!version) return std::unexpected(version.error());
  return version->bits;
}

// --------------------------------------------------------------------------------- many keys

void Client::visit_all(std::span<const std::string_view> keys, RawVisitor visit, void* target,
                       Timeout timeout) {
  engine_->multi_get(keys, engine_->deadline(timeout), visit, target);
}

std::vector<Result<Value>> Client::multi_get(std::span<const std::string_view> keys,
                                             Timeout timeout) {
  std::vector<Result<Value>> results(keys.size(), fail(Code::kInternal, nullptr));
  multi_get_into(
      keys,
      [&](std::size_t index, const Result<ValueView>& result) {
        if (result) {
          results[index] = Value{.value = std::string(result->value), .version = result->version};
        } else {
          results[index] = std::unexpected(result.error());
        }
      },
      timeout);
  return results;
}

std::vector<Result<std::uint64_t>> Client::multi_put(std::span<const KeyValue> items,
                                                     Timeout timeout) {
  std::vector<Result<std::uint64_t>> results(items.size(), fail(Code::kInternal, nullptr));
  engine_->multi_put(
      items, engine_->deadline(timeout),
      [](void* target, std::size_t index, const Result<std::uint64_t>& version) {
        (*static_cast<std::vector<Result<std::uint64_t>>*>(target))[index] = version;
      },
      &results);
  return results;
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

Result<std::uint64_t> Client::flush(Timeout timeout) {
  const auto reply = engine_->ask(bare(Opcode::kFlush), engine_->deadline(timeout));
  if (!reply) return std::unexpected(reply.error());
  return reply->response().version.bits;
}

Result<std::string> Client::server_stats(Timeout timeout) {
  const auto reply = engine_->ask(bare(Opcode::kStats), engine_->deadline(timeout));
  if (!reply) return std::unexpected(reply.error());
  return std::string(as_text(reply->response().value));
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
