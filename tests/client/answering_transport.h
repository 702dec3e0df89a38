// A transport for unit tests of the client's error paths: memory copies, and messages answered by
// a function. Not a device and no model of one: every operation happens at once when it is posted,
// nothing is ever torn or reordered. What real verbs do is the contract and system tests' business.
//
// Time stands still except in Queue::wait, which moves the clock to the deadline when there is
// nothing to do; so time-outs take no time.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/clock.h"
#include "common/pack.h"
#include "common/wire.h"
#include "rdma/transport/transport.h"
#include "tests/client/count_allocations.h"
#include "tests/client/get/scripted_memory.h"
#include "tests/support/manual_clock.h"

namespace rkv::testing {

class AnsweringConnection;

// The other side: memory, answers, and how it misbehaves.
struct FakeServer {
  std::unique_ptr<ScriptedMemory> memory = std::make_unique<ScriptedMemory>();
  std::uint16_t credits = 8;
  std::uint32_t max_sent_bytes = kMaxMessageBytes;
  // Returns the answer; nullopt: there is never one. The response's sequence and opcode are filled
  // in.
  std::function<std::optional<Response>(const Request&)> answer = [](const Request&) {
    return Response{};
  };
  // Outcomes of writes whose answers were lost. If it `remembers`, it knows the writes that
  // `answer` has answered with code 0; otherwise it has forgotten everything.
  bool remembers = false;
  bool knows_outcomes = true;  // false: an old server, which does not know the question
  bool dies_after = false;     // at die_at_send the message is carried out, and its answer lost
  bool says_nothing = false;   // about outcomes
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::byte>> outcomes;  // encoded
  std::vector<WriteId> questions;
  Version asked_since{};                         // of the newest question
  std::vector<std::uint64_t> sequences;          // of the requests of the present connection
  std::deque<Error> connect_errors;              // one per attempt, then success
  std::vector<std::byte> reject;                 // the reason that goes with kRejected
  std::optional<std::vector<std::byte>> accept;  // instead of a good one
  std::function<void()> before_read;             // what the server does in the meantime
  std::function<void()> before_connect;          // likewise
  // Servers of a group that refuse: what they say, by address.
  std::function<std::optional<ConnectReject>(const std::string& address)> refuse;
  std::vector<std::string> called;  // the address of each attempt
  bool in_group = false;
  std::uint32_t store = 0;    // ConnectAccept::store
  bool answers_pings = true;  // in a group: the rounds behind them are made
  int pings = 0;              // in a group
  bool ticks = true;          // in a group: the group line has the present time
  int group_reads = 0;        // READs of the group line
  bool reads_hang = false;
  bool reads_at_once = false;
  Nanos latency = 0;           // of its answers
  bool answers_apart = false;  // nothing waits behind an answer that is not due; pings are prompt
  Nanos read_latency = 0;      // of its READs; the bytes land at once
  bool never_drains = false;   // a connection's end is not reported
  int die_at_read = 0;         // the connection ends instead of the n-th READ from now; 0 = not
  int die_at_send = 0;         // ... after the n-th message from now has been taken
  bool answer_garbage = false;
  std::function<void(std::vector<std::byte>&)> change_answer;  // the encoded message
  std::function<std::uint64_t()> atomic_result;  // of every atomic; without it there are none

  // Its clock is 7 seconds ahead of the client's.
  static constexpr Nanos kAhead = 7 * kNanosPerSecond;
  std::uint64_t now_us() const { return static_cast<std::uint64_t>((clock.now() + kAhead) / 1000); }
  // Before each READ, as the primary's replicator would have done.
  void tick() {
    if (in_group && ticks) memory->set_group_line(clock.now() + kAhead);
  }

  ManualClock clock;
  AnsweringConnection* connection = nullptr;  // the present one
  int connects = 0;
  int requests = 0;
  int unanswered = 0;  // requests held back at the moment
  int most_unanswered = 0;
  int reads = 0;
  int long_requests = 0;             // of the requests, those that were READ
  std::size_t registered_bytes = 0;  // by regions and receive buffers, ever
  int receives_held = 0;             // receive buffers given out and not released
  std::uint16_t max_packed = 0;      // 0: a server that knows no packs
  int packs = 0;                     // requests that were packs
  std::vector<std::string> log;      // opcode and key of each request
};

class AnsweringRegion final : public rdma::Region {
 public:
  explicit AnsweringRegion(std::size_t length) : words_((length + 7) / 8 + 8), length_(length) {}
  MutableBytes bytes() const override {
    auto* start = reinterpret_cast<std::byte*>(const_cast<std::uint64_t*>(words_.data()));
    const std::size_t skip = (64 - reinterpret_cast<std::uintptr_t>(start) % 64) % 64;
    return {start + skip, length_};
  }
  std::uint32_t local_key() const override { return 77; }
  std::uint32_t remote_key() const override { return kKey; }
  static constexpr std::uint32_t kKey = 78;

 private:
  std::vector<std::uint64_t> words_;
  std::size_t length_;
};

class AnsweringQueue final : public rdma::Queue {
 public:
  explicit AnsweringQueue(FakeServer& server) : server_(&server) {}
  ~AnsweringQueue() override { server_->receives_held -= static_cast<int>(messages_.size()); }
  void push(const rdma::Completion& completion, Nanos latency = 0) {
    RKV_CHECK(end_ - next_ < ring_.size(), "the fake queue is full");
    ring_[end_++ % ring_.size()] = {.completion = completion,
                                    .due = server_->clock.now() + latency};
  }
  // A ring, so that nothing allocates while the client is watched for that.
  std::size_t poll(std::span<rdma::Completion> out) override {
    std::size_t count = 0;
    while (count < out.size() && is_due())
      out[count++] = ring_[next_++ % ring_.size()].completion;
    if (count < out.size() && is_due(apart_)) {
      out[count++] = apart_->completion;
      apart_.reset();
    }
    return count;
  }
  void wait(const Deadline& deadline) override {
    if (is_due() || is_due(apart_)) return;
    Nanos until =
        next_ == end_ ? deadline.at() : std::min(deadline.at(), ring_[next_ % ring_.size()].due);
    if (apart_) until = std::min(until, apart_->due);
    const Nanos left = until - server_->clock.now();
    if (left > 0) server_->clock.advance(left);
  }
  // In wait_any(): looking takes time, so that time passes there too.
  bool is_ready() override {
    if (!is_due()) server_->clock.advance(kLookTime);
    return is_due();
  }
  void wake() override {}
  void release(std::span<const std::uint32_t> buffers) override {
    for (const std::uint32_t buffer : buffers) {
      RKV_CHECK(messages_.erase(buffer) == 1, "released a receive buffer twice");
      --server_->receives_held;
    }
  }
  void deliver(rdma::Connection* connection, std::vector<std::byte> message, Nanos latency) {
    auto& kept = messages_[++last_buffer_] = std::move(message);
    ++server_->receives_held;
    const rdma::Completion completion{.kind = rdma::Completion::Kind::kReceive,
                                      .connection = connection,
                                      .message = kept,
                                      .receive_buffer = last_buffer_};
    if (!server_->answers_apart || latency == 0) return push(completion, latency);
    RKV_CHECK(!apart_, "one answer at a time comes apart");
    apart_ = {.completion = completion, .due = server_->clock.now() + latency};
  }

 private:
  static constexpr Nanos kLookTime = 1000;
  FakeServer* server_;
  struct Entry {
    rdma::Completion completion;
    Nanos due = 0;
  };
  // In the order of their coming: what comes behind one that is not due waits as well.
  bool is_due() const {
    return next_ != end_ && ring_[next_ % ring_.size()].due <= server_->clock.now();
  }
  bool is_due(const std::optional<Entry>& entry) const {
    return entry && entry->due <= server_->clock.now();
  }
  std::array<Entry, 4096> ring_;
  std::optional<Entry> apart_;
  std::size_t next_ = 0;
  std::size_t end_ = 0;
  std::map<std::uint32_t, std::vector<std::byte>> messages_;
  std::uint32_t last_buffer_ = 0;
};

class AnsweringConnection final : public rdma::Connection {
 public:
  AnsweringConnection(FakeServer& server, AnsweringQueue& queue, std::vector<std::byte> accept)
      : server_(&server),
        queue_(&queue),
        accept_(std::move(accept)),
        session_(static_cast<std::uint64_t>(server.connects)) {
    server.connection = this;
    server.sequences.clear();
  }
  ~AnsweringConnection() override {
    if (server_->connection == this) server_->connection = nullptr;
  }

  Result<std::size_t> post(std::span<const rdma::Operation> batch) override {
    if (!alive_) return fail(Code::kDisconnected, "dead");
    for (const rdma::Operation& operation : batch) {
      if (!alive_) {
        push(operation, rdma::Completion::Status::kFlushed);
      } else if (operation.kind == rdma::Operation::Kind::kRead) {
        read(operation);
      } else if (operation.kind != rdma::Operation::Kind::kSend) {
        RKV_CHECK(server_->atomic_result, "the fake server has no words for atomics");
        store_le(operation.local.data(), server_->atomic_result());
        push(operation, Outcome::kOk);
      } else {
        send(operation);
      }
    }
    if (!alive_) end();
    return batch.size();
  }
  bool read_at_once(MutableBytes to, std::uint64_t address, std::uint32_t key) override {
    if (!server_->reads_at_once || !alive_) return false;
    ++server_->reads;
    if (address == server_->memory->window().address + kGroupLineOffset) ++server_->group_reads;
    if (server_->before_read) server_->before_read();
    server_->tick();
    if (!dies_now(server_->die_at_read)) return server_->memory->read(address, key, to);
    alive_ = false;
    end();
    return false;
  }
  rdma::ConnectionLimits limits() const override {
    return {.reads_in_flight = 16,
            .sends_in_flight = 4096,
            .inline_bytes = 64,
            .reads_at_once = server_->reads_at_once};
  }
  Bytes private_data() const override { return accept_; }
  const std::string& peer() const override { return peer_; }
  bool alive() const override { return alive_; }
  void abort() override {
    alive_ = false;
    end();
  }

 private:
  using Outcome = rdma::Completion::Status;
  void push(const rdma::Operation& operation, Outcome status, Nanos latency = 0) {
    using Kind = rdma::Completion::Kind;
    static constexpr Kind kKinds[] = {Kind::kRead, Kind::kSend, Kind::kCompareSwap,
                                      Kind::kFetchAdd};
    using Of = rdma::Operation::Kind;
    const std::size_t kind = operation.kind == Of::kRead          ? 0
                             : operation.kind == Of::kSend        ? 1
                             : operation.kind == Of::kCompareSwap ? 2
                                                                  : 3;
    queue_->push(
        {.kind = kKinds[kind], .status = status, .connection = this, .context = operation.context},
        latency);
  }
  static bool dies_now(int& countdown) {
    if (countdown == 0) return false;
    --countdown;
    return countdown == 0;
  }
  void read(const rdma::Operation& operation) {
    ++server_->reads;
    const std::uint64_t group_line = server_->memory->window().address + kGroupLineOffset;
    if (operation.remote_address == group_line) ++server_->group_reads;
    if (server_->before_read) server_->before_read();
    server_->tick();
    if (dies_now(server_->die_at_read)) {
      alive_ = false;
      return push(operation, Outcome::kFailed);
    }
    if (server_->reads_hang) return hanging_.push_back(operation);
    const bool granted =
        server_->memory->read(operation.remote_address, operation.remote_key, operation.local);
    if (!granted) alive_ = false;
    push(operation, granted ? Outcome::kOk : Outcome::kRemoteAccess, server_->read_latency);
  }
  void send(const rdma::Operation& operation) {
    const Uncounted of_server;
    std::uint64_t sequence = 0;
    RKV_CHECK(operation.local.size() <= server_->max_sent_bytes, "the client sent too much");
    auto request = decode_request(operation.local, &sequence);
    RKV_CHECK(request, "the client sent a request that does not decode");
    if (request->opcode == Opcode::kLong) request = read_long(*request);
    const bool asks = request->opcode == Opcode::kOutcome;
    if (!asks) {
      ++server_->requests;
      server_->log.push_back(std::string(to_string(request->opcode)) + " " +
                             std::string(as_text(request->key)));
    }
    server_->sequences.push_back(sequence);
    server_->most_unanswered = std::max(server_->most_unanswered, ++server_->unanswered);
    push(operation, Outcome::kOk);
    const bool dies = dies_now(server_->die_at_send);
    if (dies) alive_ = false;
    if (dies && (asks || !server_->dies_after)) return;
    if (asks) return answer_outcome(*request, sequence);
    if (server_->in_group && request->opcode == Opcode::kPing) {
      ++server_->pings;
      if (server_->answers_pings && !dies)
        deliver({.opcode = Opcode::kPing, .sequence = sequence, .server_us = server_->now_us()});
      return;
    }
    auto response =
        request->opcode == Opcode::kPack ? answer_pack(*request) : server_->answer(*request);
    if (!response) return;
    response->sequence = sequence;
    response->opcode = request->opcode;
    if (response->code == 0 && server_->remembers) {
      auto& kept = server_->outcomes[{session_, sequence}];
      kept.resize(kResponseHeaderBytes + response->value.size());
      encode(*response, kept);
    }
    if (!dies) deliver(*response);
  }
  void deliver(const Response& response) {
    --server_->unanswered;
    std::vector<std::byte> message(kResponseHeaderBytes + response.value.size());
    encode(response, message);
    if (server_->answer_garbage) message[8] ^= std::byte{0x55};
    if (server_->change_answer) server_->change_answer(message);
    const bool is_prompt = server_->answers_apart && response.opcode == Opcode::kPing;
    queue_->deliver(this, std::move(message), is_prompt ? 0 : server_->latency);
  }
  // Each operation is answered as if it had come by itself. One that gets no answer is refused with
  // refused_alone().
  std::optional<Response> answer_pack(const Request& request) {
    ++server_->packs;
    PackReader reader(request.value);
    results_.resize(kMaxInlineBytes);
    ResultWriter results(results_);
    while (const auto operation = reader.next()) {
      server_->log.push_back(std::string(to_string(operation->opcode)) + " " +
                             std::string(as_text(operation->key)));
      auto response = server_->answer(*operation);
      if (!response) response = ResultWriter::refused_alone(operation->opcode);
      response->opcode = operation->opcode;
      results.add(*response, 0);
    }
    Response all;
    all.value = results.finish();
    return all;
  }
  void answer_outcome(const Request& request, std::uint64_t sequence) {
    if (!server_->knows_outcomes) {
      return deliver({.opcode = Opcode::kPing,
                      .code = static_cast<std::uint8_t>(Code::kInvalidArgument),
                      .sequence = sequence});
    }
    const WriteId asked = *decode_write_id(request.value);
    server_->questions.push_back(asked);
    server_->asked_since = request.expected;
    if (server_->says_nothing) return;
    const auto kept = server_->outcomes.find({asked.session, asked.sequence});
    const bool applied = server_->remembers && kept != server_->outcomes.end();
    const Code none = server_->remembers ? Code::kNotFound : Code::kStale;
    Response response = applied ? *decode_response(kept->second)
                                : Response{.code = static_cast<std::uint8_t>(none)};
    response.opcode = Opcode::kOutcome;
    response.sequence = sequence;
    deliver(response);
  }
  // At once: the bytes must be what they are when the client is answered.
  Result<Request> read_long(const Request& sent) {
    const auto source = decode_message_source(sent.value);
    RKV_CHECK(source && source->remote_key == AnsweringRegion::kKey, "memory the server may READ");
    RKV_CHECK(source->length > server_->max_sent_bytes, "it could have been sent");
    ++server_->long_requests;
    std::uint64_t sequence = 0;
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    const auto* const bytes = reinterpret_cast<const std::byte*>(source->address);
    auto request = decode_request({bytes, source->length}, &sequence);
    RKV_CHECK(request && sequence == sent.sequence, "the request that was announced");
    return request;
  }
  void end() {
    if (ended_ || server_->never_drains) return;
    ended_ = true;
    for (const auto& operation : hanging_)
      push(operation, Outcome::kFlushed);
    server_->unanswered = 0;
    queue_->push({.kind = rdma::Completion::Kind::kDisconnected, .connection = this});
  }

  FakeServer* server_;
  AnsweringQueue* queue_;
  std::vector<std::byte> accept_;
  const std::uint64_t session_;
  std::string peer_ = "fake:1";
  bool alive_ = true;
  bool ended_ = false;
  std::vector<rdma::Operation> hanging_;
  std::vector<std::byte> results_;
};

class AnsweringTransport final : public rdma::Transport {
 public:
  explicit AnsweringTransport(FakeServer& server) : server_(&server) {}
  std::string describe() const override { return "fake"; }
  Result<std::unique_ptr<rdma::Region>> allocate(std::size_t length, rdma::Access) override {
    server_->registered_bytes += length;
    return std::make_unique<AnsweringRegion>(length);
  }
  Result<std::unique_ptr<rdma::Queue>> create_queue(const rdma::QueueOptions& options) override {
    server_->registered_bytes += std::size_t{options.receive_buffers} * options.receive_bytes;
    return std::make_unique<AnsweringQueue>(*server_);
  }
  Result<std::unique_ptr<rdma::Listener>> listen(const std::string&) override {
    return fail(Code::kUnsupported, "fake");
  }
  Result<std::unique_ptr<rdma::Connection>> connect(rdma::Queue& queue,
                                                    const rdma::ConnectionOptions&,
                                                    const std::string& address, Bytes private_data,
                                                    const Deadline&,
                                                    rdma::Rejection* rejection) override {
    ++server_->connects;
    if (server_->before_connect) server_->before_connect();
    RKV_CHECK(decode_connect_request(private_data), "the client's request must decode");
    server_->called.push_back(address);
    if (const auto refused = server_->refuse ? server_->refuse(address) : std::nullopt) {
      std::array<std::byte, kConnectRejectMaxBytes> reason{};
      rejection->length = encode(*refused, reason);
      std::copy_n(reason.begin(), rejection->length, rejection->reason);
      return fail(Code::kRejected, "scripted");
    }
    if (!server_->connect_errors.empty()) {
      const Error error = server_->connect_errors.front();
      server_->connect_errors.pop_front();
      rejection->length = std::min(server_->reject.size(), sizeof rejection->reason);
      std::copy_n(server_->reject.begin(), rejection->length, rejection->reason);
      return std::unexpected(error);
    }
    std::vector<std::byte> accept(196);
    encode(ConnectAccept{.epoch = server_->memory->epoch,
                         .session = static_cast<std::uint64_t>(server_->connects),
                         .credits = server_->credits,
                         .max_message_bytes = kMaxMessageBytes,
                         .max_sent_bytes = server_->max_sent_bytes,
                         .root = server_->memory->window(),
                         .hints = {},
                         .counters = {},
                         .server_us = server_->in_group ? server_->now_us() : 0,
                         .max_packed = server_->max_packed,
                         .in_group = server_->in_group,
                         .store = server_->store},
           accept);
    if (server_->accept) accept = *server_->accept;
    return std::make_unique<AnsweringConnection>(*server_, static_cast<AnsweringQueue&>(queue),
                                                 std::move(accept));
  }

 private:
  FakeServer* server_;
};

}  // namespace rkv::testing
