// The part of rkv::Client that handles the caller's registered memory.
#include <cstring>
#include <utility>

#include "client/api/registered_state.h"
#include "client/engine/engine.h"
#include "common/check.h"
#include "rkv/client.h"

namespace rkv {

namespace {
constexpr const char* kForeign = "the buffer belongs to another client's transport";
constexpr const char* kMovedFrom = "this rkv::RegisteredBuffer was moved from";
}  // namespace

RegisteredBuffer::RegisteredBuffer(std::unique_ptr<State> state) : state_(std::move(state)) {}
RegisteredBuffer::RegisteredBuffer(RegisteredBuffer&&) noexcept = default;
RegisteredBuffer& RegisteredBuffer::operator=(RegisteredBuffer&&) noexcept = default;
RegisteredBuffer::~RegisteredBuffer() = default;

std::span<std::byte> RegisteredBuffer::bytes() const {
  RKV_CHECK(state_ != nullptr, kMovedFrom);
  return state_->buffer->bytes();
}

bool RegisteredBuffer::is_inherited() const {
  return state_.get_deleter().guard.is_inherited();
}

Result<RegisteredBuffer> Client::allocate_buffer(std::size_t bytes) {
  user_.check_owner();
  if (user_.is_inherited()) return std::unexpected(client::kInherited);
  const auto memory = std::make_shared<client::UserMemory>(engine_->session.transport);
  RKV_ASSIGN_OR_RETURN(auto buffer, memory->allocate(bytes, rdma::Access::kRemoteRead));
  return RegisteredBuffer(std::make_unique<RegisteredBuffer::State>(memory, std::move(buffer)));
}

Result<ValueSize> Client::get_registered(std::string_view key, RegisteredBuffer& buffer,
                                         const GetOptions& options) {
  RKV_CHECK(buffer.state_ != nullptr, kMovedFrom);
  return on(key, options.timeout, [&](client::Engine& engine) -> Result<ValueSize> {
    if (buffer.state_->buffer->transport() != engine.session.transport.get())
      return fail(Code::kInvalidArgument, kForeign);
    return engine.getter.get_into(
        as_bytes(key), options,
        {.bytes = buffer.bytes(), .local_key = buffer.state_->buffer->region().local_key()});
  });
}

std::size_t Client::needed_bytes() const {
  user_.check_owner();
  return engine_->getter.needed_bytes();
}

Result<std::uint64_t> Client::put_from(std::string_view key, const RegisteredBuffer& buffer,
                                       std::size_t length, const PutOptions& options) {
  RKV_CHECK(buffer.state_ != nullptr, kMovedFrom);
  return on(key, options.timeout, [&](client::Engine& engine) -> Result<std::uint64_t> {
    if (buffer.state_->buffer->transport() != engine.session.transport.get())
      return fail(Code::kInvalidArgument, kForeign);
    if (length > buffer.bytes().size()) {
      return fail(Code::kInvalidArgument, "the buffer is shorter than the value to be put");
    }
    const std::string_view value = as_text(buffer.bytes().first(length));
    RKV_ASSIGN_OR_RETURN(const Request put, client::put_request(key, value, options));
    const auto reply = engine.requester.write(put, engine.connector.deadline(options.timeout),
                                              buffer.state_->buffer->region().remote_key());
    if (!reply) return std::unexpected(reply.error());
    return reply->response().version.bits;
  });
}

}  // namespace rkv
