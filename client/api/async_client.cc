#include "rkv/async_client.h"

#include <utility>

#include "client/api/registered_state.h"
#include "client/async/async_engine.h"
#include "client/async/outcomes.h"
#include "client/link/choose.h"
#include "common/check.h"
#include "rkv/one_user.h"

namespace rkv {

using client::AsyncEngine;

namespace {
thread_local std::size_t needed_by_last_callback = 0;
}  // namespace

AsyncClient::AsyncClient(std::unique_ptr<AsyncEngine> engine) : engine_(std::move(engine)) {}
AsyncClient::AsyncClient(AsyncClient&&) noexcept = default;
AsyncClient& AsyncClient::operator=(AsyncClient&&) noexcept = default;
AsyncClient::~AsyncClient() = default;

AsyncCore& AsyncClient::core() {
  return engine();
}

AsyncEngine& AsyncClient::engine() const {
  RKV_CHECK(engine_ != nullptr, "this rkv::AsyncClient was moved from");
  return *engine_;
}

Result<AsyncClient> AsyncClient::connect(const ClientOptions& options, std::string* refusal) {
  RKV_ASSIGN_OR_RETURN(auto chosen, client::choose_transport(options, options.timeout));
  auto made = connect(options, std::move(chosen.transport), nullptr, refusal);
  if (made) made->engine_->engine().description = std::move(chosen.reason);
  return made;
}

Result<AsyncClient> AsyncClient::connect(const ClientOptions& options,
                                         std::shared_ptr<rdma::Transport> transport,
                                         const Clock* clock, std::string* refusal) {
  if (transport == nullptr) return fail(Code::kInvalidArgument, "a client needs a transport");
  auto memory = std::make_shared<client::UserMemory>(transport);
  RKV_ASSIGN_OR_RETURN(auto engine,
                       client::Engine::create(options, std::move(transport), clock, refusal));
  RKV_ASSIGN_OR_RETURN(auto async, AsyncEngine::create(std::move(engine), std::move(memory)));
  return AsyncClient(std::move(async));
}

// ------------------------------------------------------------------------------------ results

Result<Value> AsyncClient::to_value(const AsyncRequest& request, const Result<Outcome>& result) {
  return client::value_of(request, result);
}
Result<ValueSize> AsyncClient::to_size(const AsyncRequest& request, const Result<Outcome>& result) {
  needed_by_last_callback = result ? result->value.value.size() : 0;
  return client::size_of(request, result);
}
std::size_t AsyncClient::needed_bytes() {
  return needed_by_last_callback;
}
Result<Counter> AsyncClient::to_number(const AsyncRequest& request, const Result<Outcome>& result) {
  return client::counter_read(request, result);
}
Result<std::uint64_t> AsyncClient::to_version(const AsyncRequest& request,
                                              const Result<Outcome>& result) {
  return client::version_of(request, result);
}
Result<Counter> AsyncClient::to_counter(const AsyncRequest& request,
                                        const Result<Outcome>& result) {
  return client::counter_after(request, result);
}
Result<CounterSwap> AsyncClient::to_swap(const AsyncRequest& request,
                                         const Result<Outcome>& result) {
  return client::swap_of(request, result);
}

Result<RegisteredBuffer> AsyncClient::allocate_buffer(std::size_t bytes) {
  if (engine().is_inherited()) return std::unexpected(client::kInherited);
  RKV_ASSIGN_OR_RETURN(auto buffer, engine().memory()->allocate(bytes, rdma::Access::kLocal));
  return RegisteredBuffer(
      std::make_unique<RegisteredBuffer::State>(engine().memory(), std::move(buffer)));
}

// ------------------------------------------------------------------------------ the event loop

std::size_t AsyncClient::poll() {
  return engine().poll();
}
bool AsyncClient::arm() {
  return engine().arm();
}
int AsyncClient::descriptor() const {
  return engine().descriptor();
}
Result<std::size_t> AsyncClient::wait(Timeout timeout) {
  return engine().wait(timeout);
}
std::size_t AsyncClient::in_flight() const {
  return engine().in_flight();
}
Status AsyncClient::close() {
  return engine().close();
}
ClientStats AsyncClient::stats() const {
  return engine().stats();
}
const std::string& AsyncClient::last_refusal() {
  return AsyncEngine::refusal();
}
const std::string& AsyncClient::describe() const {
  return engine().engine().description;
}

}  // namespace rkv
