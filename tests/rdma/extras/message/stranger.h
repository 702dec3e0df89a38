// A peer that does not follow the protocol of message transports: its own verbs calls, and a token.
#pragma once

#include "rdma/extras/message/token.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/message/credit_ring.h"
#include "tests/rdma/extras/message/ends.h"

namespace rkv::rdma::testing {

using detail::Token;
using detail::TransportKind;

inline constexpr int kShortMs = 500;  // for waits that must end by a time-out
inline constexpr RingOptions kRing = {.ring_bytes = 4096, .slots = 4};

// The peer's side of a connection, without any of the library's message code.
struct Stranger {
  ProtectionDomain pd;
  CompletionChannel channel;
  CompletionQueue queue;
  MemoryRegion memory;
  std::optional<CmConnection> link;
  Result<Token> server = fail(Code::kInternal, "not connected");

  explicit Stranger(const Device& device)
      : pd(need(ProtectionDomain::allocate(device))),
        channel(need(CompletionChannel::create(device))),
        queue(need(CompletionQueue::create(device, {.entries = 64, .channel = &channel}))),
        memory(need(MemoryRegion::allocate(pd, 65536, kEverything))) {}

  Token token(TransportKind kind) const {
    Token out{.kind = kind, .max_message = 1000, .slots = 4};
    if (kind != TransportKind::kSendReceive) out.ring = *memory.remote().subspan(0, 4096);
    return out;
  }
  PreparedQueuePair<> make() { return need(QueuePair::create(pd, queue, queue, {})); }

  // Sends one record with this immediate data, and `freed` as its report.
  void ring(std::uint32_t offset, std::uint32_t length, std::uint32_t immediate,
            std::uint64_t freed = 0) {
    store_le(memory.bytes().data() + 16384, freed);
    Batch batch = link->qp.batch();
    batch.op(1).signaled().immediate(immediate).write(memory.local(16384, length),
                                                      *server->ring.subspan(offset, length));
    need(std::move(batch).submit());
    await();
  }
  void say(Bytes message) {
    std::ranges::copy(message, memory.bytes().begin() + 16384);
    Batch batch = link->qp.batch();
    batch.send(2, OpFlags::kSignaled, memory.local(16384, message.size()));
    need(std::move(batch).submit());
    await();
  }
  void await() {
    std::array<WorkCompletion, 1> one;
    need(queue.wait(one, soon()));
  }
};

// A stranger that connects, and the transport that accepted it as one of its kind.
template <class Builder>
struct Visit {
  std::optional<typename Builder::Transport> server;
  std::unique_ptr<Stranger> stranger;
  std::function<void(Stranger&)> say_;
  std::optional<Result<typename Builder::Transport>> accepted;

  explicit Visit(TransportKind kind, const Builder& builder) {
    server.emplace(need(meet(kind, builder)));
  }
  // `say`: what the stranger sends before it is accepted.
  Visit(TransportKind kind, const Builder& builder, std::function<void(Stranger&)> say)
      : say_(std::move(say)), accepted(meet(kind, builder)) {}

 private:
  Result<typename Builder::Transport> meet(TransportKind kind, const Builder& builder) {
    CmListener listener = need(builder.listen(device_address()));
    auto dialled = std::async(std::launch::async, [&] { dial(listener.address(), kind); });
    auto out = builder.accept(listener, soon(say_ ? kShortMs : kPatienceMs));
    dialled.get();
    stranger->server = detail::decode(stranger->link->peer_data.bytes(), kind);
    need(stranger->server);
    return out;
  }
  void dial(const SocketAddress& to, TransportKind kind) {
    Connector connector = need(Connector::resolve(to, {}, soon()));
    stranger = std::make_unique<Stranger>(connector.device());
    Token token = stranger->token(kind);
    token.key_follows = say_ != nullptr;
    stranger->link.emplace(need(std::move(connector).connect(
        stranger->make(), {.remote_access = kEverything}, detail::encode(token), soon())));
    if (say_) say_(*stranger);
  }
};

// Polls until the transport returns an error.
template <class T>
Error failure_of(T& transport, std::size_t* delivered = nullptr) {
  const Deadline deadline = soon();
  std::array<Received, 8> got;
  while (!deadline.passed()) {
    const auto count = transport.poll_receives(got);
    if (!count) return count.error();
    if (delivered != nullptr) *delivered += *count;
  }
  return {.code = Code::kInternal, .text = "no failure"};
}

template <class T>
void expect_corrupt(T& transport, std::string_view what) {
  const Error error = failure_of(transport);
  EXPECT_EQ(error.code, Code::kCorrupt) << to_string(error);
  EXPECT_NE(to_string(error).find(what), std::string::npos) << to_string(error);
  EXPECT_TRUE(transport.poll_disconnect());
  const auto sent = transport.send_copy(pattern(0, 8));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::kCorrupt);
}

}  // namespace rkv::rdma::testing
