// Helpers of the contract tests: ends, links, and waiting for completions with an end in sight.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>

#include "tests/contract/harness.h"

namespace rkv::rdma::contract {

inline constexpr int kPatienceMs = 10'000;  // an end for waits that must succeed, not a pause

// Returns true if `call` takes less than `most`, in one of the harness's tries.
template <class Call>
bool ends_within(Harness& harness, Nanos most, Call call) {
  for (int i = 0; i < harness.tries(); ++i) {
    const Nanos start = harness.clock().now();
    call();
    if (harness.clock().now() - start < most) return true;
  }
  return false;
}

template <class T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  ADD_FAILURE() << to_string(result.error());
  throw std::runtime_error(to_string(result.error()));
}

// A completion kept beyond the poll that gave it; a message is copied and its buffer released.
struct Seen {
  Completion::Kind kind;
  Completion::Status status;
  const Connection* connection;
  std::uint64_t context;
  std::string message;
  bool ok() const { return status == Completion::Status::kOk; }
};

// One side: a queue, some memory, and what has arrived.
class End {
 public:
  End(Harness& harness, Transport& transport, const QueueOptions& options = {},
      Access access = Access::kRemoteReadAtomic)
      : harness_(&harness),
        queue(need(transport.create_queue(options))),
        region(need(transport.allocate(std::size_t{1} << 20, access))) {}

  Deadline soon(int ms = kPatienceMs) { return Deadline::after_ms(harness_->clock(), ms); }
  std::byte* at(std::size_t offset) { return region->bytes().data() + offset; }
  // Loads an aligned word. The thread of a transport may have changed it a moment ago.
  std::uint64_t word(std::size_t offset) {
    return load_word(reinterpret_cast<const std::uint64_t*>(at(offset)), std::memory_order_acquire);
  }
  MutableBytes piece(std::size_t offset, std::size_t length) {
    return region->bytes().subspan(offset, length);
  }

  // Polls once, without blocking.
  std::size_t poll_once() {
    std::array<Completion, 16> some;
    const std::size_t count = queue->poll(some);
    for (const Completion& one : std::span(some).first(count)) {
      seen.push_back({.kind = one.kind,
                      .status = one.status,
                      .connection = one.connection,
                      .context = one.context,
                      .message = std::string(as_text(one.message))});
      if (one.kind == Completion::Kind::kReceive) queue->release(std::span(&one.receive_buffer, 1));
    }
    return count;
  }
  // Blocks until `enough` says so; false when patience ran out.
  bool until(const std::function<bool()>& enough) {
    const Deadline end = soon();
    while (!enough()) {
      if (poll_once() != 0) continue;
      if (end.passed()) return false;
      queue->wait(end);
    }
    return true;
  }
  bool until_seen(std::size_t count) {
    return until([&] { return seen.size() >= count; });
  }
  std::size_t count(Completion::Kind kind) const {
    return static_cast<std::size_t>(
        std::count_if(seen.begin(), seen.end(), [&](const Seen& s) { return s.kind == kind; }));
  }
  bool until_disconnected() {
    return until([&] { return count(Completion::Kind::kDisconnected) != 0; });
  }

 private:
  Harness* harness_;

 public:
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Region> region;
  std::vector<Seen> seen;
};

struct LinkOptions {
  QueueOptions queue = {.receive_buffers = 64};
  ConnectionOptions client = {};
  ConnectionOptions server = {.grant = Access::kRemoteReadAtomic};
  Access server_region = Access::kRemoteReadAtomic;
  std::string hello{};
  std::string welcome{};
};

// Connects `client` to `server`, which accepts on its own queue.
inline std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>> join(
    Harness& harness, Listener& listener, End& client, End& server, const LinkOptions& options) {
  std::unique_ptr<Connection> active;
  std::unique_ptr<Connection> passive;
  harness.run_both(
      [&] {
        auto incoming = need(listener.next(server.soon()));
        ASSERT_NE(incoming, nullptr) << "no request came";
        passive = need(incoming->accept(*server.queue, options.server, as_bytes(options.welcome),
                                        server.soon()));
      },
      [&] {
        auto made = harness.client().connect(*client.queue, options.client,
                                             harness.connect_address(listener.port()),
                                             as_bytes(options.hello), client.soon(), nullptr);
        ASSERT_TRUE(made) << to_string(made.error());
        active = std::move(*made);
      });
  return {std::move(active), std::move(passive)};
}

// A connected pair. Members are destroyed from the bottom: connections before queues.
struct Link {
  Completion::Status status_of_refusal;
  std::unique_ptr<Listener> listener;
  End client;
  End server;
  std::unique_ptr<Connection> active;   // the client's
  std::unique_ptr<Connection> passive;  // the server's

  explicit Link(Harness& harness, const LinkOptions& options = {})
      : status_of_refusal(harness.client().tells_refusals() ? Completion::Status::kRemoteAccess
                                                            : Completion::Status::kFlushed),
        listener(need(harness.server().listen(harness.listen_address()))),
        client(harness, harness.client(), options.queue, Access::kRemoteRead),
        server(harness, harness.server(), options.queue, options.server_region) {
    std::tie(active, passive) = join(harness, *listener, client, server, options);
    if (active == nullptr || passive == nullptr) throw std::runtime_error("not connected");
  }

  // Operations of the client on the server's memory.
  Operation read(std::size_t offset, std::size_t length, std::uint64_t context,
                 std::size_t to = 0) {
    return Operation::read(client.piece(to, length), client.region->local_key(),
                           server.region->address() + offset, server.region->remote_key(), context);
  }
  Operation atomic(Operation::Kind kind, std::size_t offset, std::uint64_t compare_or_add,
                   std::uint64_t swap, std::uint64_t context) {
    Operation operation = read(offset, 8, context);
    operation.kind = kind;
    operation.compare_or_add = compare_or_add;
    operation.swap = swap;
    return operation;
  }
  Operation send(std::size_t offset, std::size_t length, std::uint64_t context) {
    return Operation::send(client.piece(offset, length), client.region->local_key(), context);
  }
  void post(std::span<const Operation> batch) {
    EXPECT_EQ(need(active->post(batch)), batch.size());
  }
  void post(const Operation& one) { post(std::span(&one, 1)); }
  // A transport without atomics refuses them before anything is posted, and the connection goes on.
  void expect_no_atomics() {
    for (const auto kind : {Operation::Kind::kCompareSwap, Operation::Kind::kFetchAdd}) {
      const std::array<Operation, 2> batch = {read(0, 8, 1), atomic(kind, 0, 1, 2, 2)};
      EXPECT_EQ(active->post(batch).error().code, Code::kUnsupported);
    }
    EXPECT_EQ(client.poll_once(), 0U);
    post(read(0, 8, 3));
    EXPECT_TRUE(client.until_seen(1));
    EXPECT_TRUE(client.seen[0].ok());
    EXPECT_EQ(client.seen[0].context, 3U);
  }
};

}  // namespace rkv::rdma::contract
