// rkv::AsyncClient: many operations in flight over one connection, from one thread or several, on
// the event loop of the program.
//
//   auto client = rkv::AsyncClient::connect({.server = "10.0.0.1:7471"});
//
//   client->get("name").then([](const rkv::Result<rkv::ValueView>& got) { ... });  // a callback
//   rkv::Result<rkv::Value> got = co_await client->get("name");                    // a coroutine
//   auto pending = client->get("name").start();                                    // a handle
//   ... pending.wait();
//
//   for (;;) {                                       // the event loop:
//     client->poll();                                // ends operations, calls callbacks
//     if (client->arm()) wait_for(client->descriptor());  // readable: poll() again
//   }
//
// Nothing is submitted before then(), co_await or start(), and nothing is done before a poll().
// Operations that are in flight together have no order, those on one key included. Writes that wait
// together travel in packs of up to 32, and READs that begin together are posted with one doorbell.
// AsyncClient takes the options of Client; reads_in_flight and requests_in_flight bound what is
// under way, and the others wait in the client, as many as there are.
//
// Memory: for then(), key and value must stay valid and unchanged until the operation has ended.
// co_await and start() copy them. After the first operations nothing is allocated for one, apart
// from a Value's bytes, handles, callbacks that hold more than two pointers, and copies of values
// longer than 128 KiB. An operation whose Value finds no memory ends with kOutOfMemory.
//
// A coroutine that waits may be destroyed, which withdraws the operation, as that of a handle: on
// the thread that polls, or while no thread is in poll(), wait() or close().
//
// Threads: any thread may submit and cancel. One thread at a time is in the other calls: poll() and
// arm() return at once while another thread is, and wait() and close() wait for their turn.
// Callbacks and coroutines run in poll(), wait() and close(), on their thread. They may submit, but
// not wait() for or close the client they run in: kInvalidArgument. A callback must not throw: the
// program would end.
//
// Blocking: connect(), wait() and close(), and Pending::wait(). What would block besides (a new
// connection, the server's map READ again) is done by a thread of the client, which is started when
// it is first needed.
//
// Fork: as Client.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "rkv/async_operation.h"
#include "rkv/check.h"
#include "rkv/client_stats.h"
#include "rkv/export.h"
#include "rkv/fork.h"
#include "rkv/operations.h"
#include "rkv/options.h"
#include "rkv/registered_buffer.h"
#include "rkv/result.h"
#include "rkv/values.h"

namespace rkv {

class Clock;
namespace rdma {
class Transport;
}  // namespace rdma

namespace client {

// Cancels an operation when its stop token asks for it.
class StopOperation {
 public:
  void watch(AsyncCore& core, AsyncOperation& operation, std::stop_token stop) {
    if (stop.stop_possible()) callback_.emplace(std::move(stop), Cancel{&core, &operation});
  }
  // After this the token does nothing any more. Waits for a cancel() that is being called.
  void forget() { callback_.reset(); }

 private:
  struct Cancel {
    AsyncCore* core;
    AsyncOperation* operation;
    void operator()() const noexcept { core->cancel(*operation); }
  };
  std::optional<std::stop_callback<Cancel>> callback_;
};

// An operation with a callback of any type. Nodes are kept by the engine for later operations.
struct CallbackNode : AsyncOperation {
  std::move_only_function<void(const AsyncRequest&, const Result<Outcome>&)> callback;
  StopOperation stop;
  std::string key;  // copies, if own() was called
  std::string value;
  NodePool* pool = nullptr;  // that the node goes back to
  CallbackNode* next_free = nullptr;
  // The caller's key and value may go.
  void own() {
    key = request.key;
    value = request.value;
    request.key = key;
    request.value = value;
  }
};

// A node until it is submitted.
class NewNode {
 public:
  explicit NewNode(AsyncCore& core) : core_(core), node_(core.take_node()) {}
  ~NewNode() {
    if (node_ != nullptr) core_.give_back(*node_);
  }
  NewNode(const NewNode&) = delete;
  NewNode& operator=(const NewNode&) = delete;
  CallbackNode* operator->() const { return node_; }
  CallbackNode* get() const { return node_; }
  CallbackNode* release() { return std::exchange(node_, nullptr); }

 private:
  AsyncCore& core_;
  CallbackNode* node_;
};

inline constexpr Error kClosedClient{.code = Code::kInvalidArgument,
                                     .text = "the client is closed"};

// The results of the operations, as Client returns them.
template <class T>
using Convert = Result<T> (*)(const AsyncRequest& request, const Result<Outcome>& result);

}  // namespace client

// An operation that was started. It has copies of its key and value. Destroying the object before
// the operation has ended withdraws the operation; a write that was sent may happen. Leave a
// get_into() that way on the thread that polls only: another one may be copying.
// One thread at a time.
template <class T>
class [[nodiscard]] Pending {
 public:
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = delete;
  ~Pending() {
    if (state_ == nullptr) return;
    State* const state = state_.release();
    if (!state->waiter.ended()) state->core->cancel(*state);
    state->leave();
  }
  // Whether the operation has ended: then wait() returns at once. Does not poll.
  bool ready() const {
    RKV_CHECK(state_ != nullptr, "this rkv::Pending was moved from");
    return state_->waiter.ended();
  }
  // Polls until the operation has ended. kInvalidArgument: a callback of the client waits.
  // REQUIRES: called once.
  Result<T> wait() {
    if (!ready()) RKV_RETURN_IF_ERROR(state_->core->wait_for(state_->waiter));
    return std::move(*state_->result);
  }

 private:
  template <class>
  friend class Call;
  // Freed by the second of the two that leave it: the handle and the operation.
  struct State : AsyncOperation {
    AsyncCore* core = nullptr;
    client::Convert<T> convert = nullptr;
    client::StopOperation stop;
    std::string key;
    std::string value;
    client::Waiter waiter;
    std::atomic<bool> left = false;
    std::optional<Result<T>> result;
    void leave() {
      if (left.exchange(true, std::memory_order_acq_rel)) delete this;
    }
  };
  explicit Pending(std::unique_ptr<State> state) : state_(std::move(state)) {}
  std::unique_ptr<State> state_;
};

// An operation that has not been submitted. Each is submitted at most once.
template <class T>
class [[nodiscard]] Call {
 public:
  // Calls `done` with the result when the operation has ended: with a Result<T>, or, of a get, with
  // a const Result<ValueView>&, whose bytes are valid during the call and are not copied. Returns
  // false if the client is closed: then `done` is destroyed, and not called.
  template <class Done>
  bool then(Done done) && {
    client::NewNode node(*core_);
    node->request = request_;
    node->callback = [done = std::move(done), convert = convert_](
                         const AsyncRequest& request, const Result<Outcome>& result) mutable {
      if constexpr (std::same_as<T, Value> && std::invocable<Done&, const Result<ValueView>&>) {
        done(view_of(result));
      } else {
        done(convert(request, result));
      }
    };
    return submit(node);
  }

  // Submits the operation and returns a handle to wait for. Allocates, and copies key and value.
  Pending<T> start() && {
    auto state = std::make_unique<typename Pending<T>::State>();
    state->core = core_;
    state->convert = convert_;
    state->request = request_;
    state->key = request_.key;
    state->value = request_.value;
    state->request.key = state->key;
    state->request.value = state->value;
    state->done = [](AsyncOperation& self, const Result<Outcome>& result) {
      auto& own = static_cast<typename Pending<T>::State&>(self);
      own.stop.forget();
      // A handle that was destroyed may have taken the memory of get_into() with it.
      if (!own.left.load(std::memory_order_acquire)) own.result = own.convert(own.request, result);
      own.waiter.end();
      own.leave();
    };
    if (!submit(*state, state->stop)) state->done(*state, std::unexpected(client::kClosedClient));
    return Pending<T>(std::move(state));
  }

  // The operation ends with kCancelled at the poll() after the token was asked to stop. A write
  // that was sent may have happened; Error::write says so.
  Call until(std::stop_token stop) && {
    stop_ = std::move(stop);
    return std::move(*this);
  }

  // The operation is not in the coroutine's frame: a coroutine that is destroyed while it waits
  // leaves it, as a handle does.
  class [[nodiscard]] Awaiter {
   public:
    Awaiter(const Awaiter&) = delete;
    Awaiter& operator=(const Awaiter&) = delete;
    ~Awaiter() {
      if (node_ == nullptr) return;
      node_->callback = nullptr;
      call_.core_->cancel(*node_);
    }
    bool await_ready() const noexcept { return false; }
    // False: the client is closed. The frame may be gone when submit() has returned true.
    bool await_suspend(std::coroutine_handle<> handle) {
      client::NewNode node(*call_.core_);
      node->request = call_.request_;
      node->own();
      node->callback = [this, handle](const AsyncRequest& request, const Result<Outcome>& result) {
        result_.emplace(call_.convert_(request, result));
        node_ = nullptr;
        handle.resume();
      };
      node_ = node.get();
      if (call_.submit(node)) return true;
      node_ = nullptr;
      result_.emplace(std::unexpected(client::kClosedClient));
      return false;
    }
    Result<T> await_resume() { return std::move(*result_); }

   private:
    friend class Call;
    explicit Awaiter(Call&& call) : call_(std::move(call)) {}
    Call call_;
    client::CallbackNode* node_ = nullptr;  // while it waits
    std::optional<Result<T>> result_;
  };
  Awaiter operator co_await() && { return Awaiter(std::move(*this)); }

 private:
  friend class AsyncClient;
  Call(AsyncCore& core, const AsyncRequest& request, client::Convert<T> convert)
      : core_(&core), request_(request), convert_(convert) {}
  static Result<ValueView> view_of(const Result<Outcome>& result) {
    if (!result) return std::unexpected(result.error());
    return result->value;
  }
  bool submit(AsyncOperation& operation, client::StopOperation& stop) {
    stop.watch(*core_, operation, std::move(stop_));
    return core_->submit(operation);
  }
  bool submit(client::NewNode& node) {
    client::CallbackNode* const own = node.release();
    if (submit(*own, own->stop)) return true;
    core_->give_back(*own);
    return false;
  }

  AsyncCore* core_;
  AsyncRequest request_;
  client::Convert<T> convert_;
  std::stop_token stop_;
};

class RKV_EXPORT AsyncClient {
 public:
  // As Client::connect(): blocks until there is a connection, or the options' timeout.
  static Result<AsyncClient> connect(const ClientOptions& options, std::string* refusal = nullptr);
  // Over a given transport; `clock` null: the system's.
  static Result<AsyncClient> connect(const ClientOptions& options,
                                     std::shared_ptr<rdma::Transport> transport, const Clock* clock,
                                     std::string* refusal = nullptr);
  AsyncClient(AsyncClient&&) noexcept;
  AsyncClient& operator=(AsyncClient&&) noexcept;
  ~AsyncClient();  // as close(). REQUIRES that no callback of the client runs.

  // ---- operations. Their rules, costs and errors are those of operations.h.

  Call<Value> get(std::string_view key, const GetOptions& options = {}) {
    return {core(), {.kind = Kind::kGet, .key = key, .get = options}, to_value};
  }
  // Copies the value to `out`, which must stay valid until the operation has ended. kTooLarge: it
  // does not fit; nothing is copied. A value longer than 128 KiB is READ straight into `out` if
  // that lies in a buffer of allocate_buffer(). Such an operation ends later than its deadline or
  // its withdrawal: when its READs have landed, or nothing has come over the connection for 2 s.
  // After an error the content of `out` is undefined. A handle that is destroyed says nothing of
  // the end: in_flight() does. kInvalidArgument: the key lies in `out`. Nobody notices that `out`
  // overlaps the key or the memory of another operation in flight. Then its content is undefined,
  // and the other operation may end with kNotFound.
  Call<ValueSize> get_into(std::string_view key, std::span<std::byte> out,
                           const GetOptions& options = {}) {
    return {core(), {.kind = Kind::kGet, .key = key, .get = options, .into = out}, to_size};
  }
  // In a callback of get_into() that has failed with kTooLarge: the length of the value.
  static std::size_t needed_bytes();
  // In a callback of an operation that has failed: the server's message, if it is the server that
  // refused; else empty.
  static const std::string& last_refusal();
  Call<Counter> get_counter(std::string_view key, const GetOptions& options = {}) {
    return {core(), {.kind = Kind::kGet, .key = key, .get = options}, to_number};
  }
  // The version of the write.
  Call<std::uint64_t> put(std::string_view key, std::string_view value,
                          const WriteOptions& options = {}) {
    return put_with(key, value, as_put(options));
  }
  Call<std::uint64_t> put_with(std::string_view key, std::string_view value,
                               const PutOptions& options) {
    return {core(), {.kind = Kind::kPut, .key = key, .value = value, .put = options}, to_version};
  }
  // `ttl`: 0: the key does not expire any more. Operations::touch() says more.
  Call<std::uint64_t> touch(std::string_view key, std::chrono::milliseconds ttl,
                            const WriteOptions& options = {}) {
    PutOptions put = as_put(options);
    put.ttl = ttl;
    put.keep_value = true;
    return put_with(key, {}, put);
  }
  Call<std::uint64_t> remove(std::string_view key, const WriteOptions& options = {}) {
    return {core(), {.kind = Kind::kRemove, .key = key, .put = as_put(options)}, to_version};
  }
  Call<std::uint64_t> remove_if_version(std::string_view key, std::uint64_t version,
                                        const WriteOptions& options = {}) {
    PutOptions put = as_put(options);
    put.if_version = version;
    return {core(), {.kind = Kind::kRemove, .key = key, .put = put}, to_version};
  }
  // A negative number is subtracted: there is no decr().
  Call<Counter> incr(std::string_view key, std::int64_t by = 1, const WriteOptions& options = {}) {
    return {core(),
            {.kind = Kind::kAdd, .key = key, .operand = by, .put = as_put(options)},
            to_counter};
  }
  Call<CounterSwap> counter_cas(std::string_view key, std::int64_t expected, std::int64_t desired,
                                const WriteOptions& options = {}) {
    return {core(),
            {.kind = Kind::kSwap,
             .key = key,
             .operand = expected,
             .desired = desired,
             .put = as_put(options)},
            to_swap};
  }

  // ---- registered memory

  // As Client::allocate_buffer(), for get_into().
  Result<RegisteredBuffer> allocate_buffer(std::size_t bytes);

  // ---- the event loop

  // Does what can be done without blocking, and calls the callbacks of what has ended. Returns how
  // many operations have ended.
  std::size_t poll();
  // Prepares the descriptor for a wait. Returns false if there is something to do at once: poll()
  // first. If another thread is in a call of the client, its end makes the descriptor readable. A
  // program that polls in a loop without waiting does not need it.
  bool arm();
  // For poll(2), epoll or any event loop: readable after arm() when poll() has something to do. The
  // same during the client's life. Do not read it.
  int descriptor() const;
  // Polls until an operation has ended or nothing is in flight, and sleeps as
  // ClientOptions::polling says. Returns how many operations have ended; 0 after `timeout`, if it
  // is not 0.
  Result<std::size_t> wait(Timeout timeout = {});
  // Operations that were submitted and have not ended.
  std::size_t in_flight() const;
  // Ends all operations in flight: kDisconnected; writes that were sent may have happened. None is
  // accepted any more, those of callbacks that close() calls included: then() returns false,
  // co_await and Pending::wait() return kInvalidArgument at once.
  Status close();

  ClientStats stats() const;  // while something blocks: as of the moment before
  // The transport, and the reason when connect() chose it: one line for people.
  const std::string& describe() const;

 private:
  using Kind = AsyncRequest::Kind;
  AsyncCore& core();
  client::AsyncEngine& engine() const;
  explicit AsyncClient(std::unique_ptr<client::AsyncEngine> engine);
  static PutOptions as_put(const WriteOptions& options) {
    return {.timeout = options.timeout, .durability = options.durability};
  }
  static Result<Value> to_value(const AsyncRequest& request, const Result<Outcome>& result);
  static Result<ValueSize> to_size(const AsyncRequest& request, const Result<Outcome>& result);
  static Result<Counter> to_number(const AsyncRequest& request, const Result<Outcome>& result);
  static Result<std::uint64_t> to_version(const AsyncRequest& request,
                                          const Result<Outcome>& result);
  static Result<Counter> to_counter(const AsyncRequest& request, const Result<Outcome>& result);
  static Result<CounterSwap> to_swap(const AsyncRequest& request, const Result<Outcome>& result);

  ForkOwned<client::AsyncEngine> engine_;
};

}  // namespace rkv
