// A transport without a network, worked by hand: the test puts completions into the queue and looks
// at what was posted.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <set>
#include <vector>

#include "common/wire.h"
#include "rdma/transport/transport.h"
#include "tests/support/plain_memory.h"

namespace rkv::server::test {

class FakeConnection final : public rdma::Connection {
 public:
  ~FakeConnection() override {
    if (on_destroyed) on_destroyed();
  }
  struct Posted {
    std::vector<std::byte> bytes;
    bool inline_data;
    bool signaled;
    std::uint64_t context;
  };

  Result<std::size_t> post(std::span<const rdma::Operation> batch) override {
    if (!alive_) return fail(Code::kDisconnected, "gone");
    ++posts;
    for (const auto& operation : batch) {
      if (operation.kind == rdma::Operation::Kind::kRead) {
        if (reads.size() - reads_done >= reads_taken_at_most) return 0U;
        reads.push_back(operation);
        ++in_flight;
        continue;
      }
      EXPECT_EQ(operation.kind, rdma::Operation::Kind::kSend);
      posted.push_back({.bytes = {operation.local.begin(), operation.local.end()},
                        .inline_data = operation.inline_data,
                        .signaled = operation.signaled,
                        .context = operation.context});
      ++in_flight;
    }
    EXPECT_LE(in_flight, limits_.sends_in_flight) << "more than the connection takes";
    return batch.size();
  }
  rdma::ConnectionLimits limits() const override { return limits_; }
  Bytes private_data() const override { return {}; }
  const std::string& peer() const override { return peer_; }
  bool alive() const override { return alive_; }
  void abort() override {
    alive_ = false;
    ++aborts;
  }

  std::vector<Posted> posted;  // in order; never cleared by the connection
  std::size_t completed = 0;   // of those, reported to the queue
  std::vector<rdma::Operation> reads;
  std::size_t reads_done = 0;             // of those, reported
  std::size_t reads_taken_at_most = 100;  // at a time
  std::uint32_t in_flight = 0;
  int posts = 0;
  int aborts = 0;
  std::function<void()> on_destroyed;
  rdma::ConnectionLimits limits_{.reads_in_flight = 16, .sends_in_flight = 24, .inline_bytes = 128};

 private:
  std::string peer_ = "192.0.2.9:1";
  bool alive_ = true;
};

class FakeQueue final : public rdma::Queue {
 public:
  explicit FakeQueue(const rdma::QueueOptions& asked)
      : options(asked), buffers_(asked.receive_buffers) {
    for (std::uint32_t i = 0; i < asked.receive_buffers; ++i)
      free_.insert(i);
  }
  std::size_t poll(std::span<rdma::Completion> out) override {
    std::size_t count = 0;
    for (; count < out.size() && !arrived.empty(); ++count) {
      out[count] = arrived.front();
      arrived.pop_front();
    }
    return count;
  }
  void wait(const Deadline&) override {
    if (on_wait) on_wait();
  }
  void wake() override { ++wakes; }
  void release(std::span<const std::uint32_t> buffers) override {
    for (const std::uint32_t buffer : buffers)
      EXPECT_TRUE(free_.insert(buffer).second) << "released twice";
  }

  // A message of the client arrives.
  void receive(FakeConnection& from, Bytes message) {
    ASSERT_FALSE(free_.empty()) << "the receive queue ran dry";
    const std::uint32_t buffer = *free_.begin();
    free_.erase(free_.begin());
    buffers_[buffer].assign(message.begin(), message.end());
    arrived.push_back({.kind = rdma::Completion::Kind::kReceive,
                       .connection = &from,
                       .message = buffers_[buffer],
                       .receive_buffer = buffer});
  }
  // Everything the client was sent has arrived there.
  void complete_sends(FakeConnection& of) {
    for (; of.completed < of.posted.size(); ++of.completed) {
      const auto& sent = of.posted[of.completed];
      --of.in_flight;
      if (!sent.signaled) continue;
      arrived.push_back(
          {.kind = rdma::Completion::Kind::kSend, .connection = &of, .context = sent.context});
    }
  }
  // The next READ has been carried out: on this process's own memory, or not at all.
  void complete_read(FakeConnection& of,
                     rdma::Completion::Status status = rdma::Completion::Status::kOk) {
    ASSERT_LT(of.reads_done, of.reads.size()) << "no READ is under way";
    const rdma::Operation& read = of.reads[of.reads_done++];
    --of.in_flight;
    if (status == rdma::Completion::Status::kOk) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr)
      std::memcpy(read.local.data(), reinterpret_cast<const void*>(read.remote_address),
                  read.local.size());
    }
    arrived.push_back({.kind = rdma::Completion::Kind::kRead,
                       .status = status,
                       .connection = &of,
                       .context = read.context});
  }
  // The connection dies: what is outstanding is flushed, then the end.
  void end(FakeConnection& of) {
    while (of.reads_done < of.reads.size())
      complete_read(of, rdma::Completion::Status::kFlushed);
    for (; of.completed < of.posted.size(); ++of.completed) {
      arrived.push_back({.kind = rdma::Completion::Kind::kSend,
                         .status = rdma::Completion::Status::kFlushed,
                         .connection = &of,
                         .context = of.posted[of.completed].context});
    }
    arrived.push_back({.kind = rdma::Completion::Kind::kDisconnected, .connection = &of});
  }
  std::size_t free_buffers() const { return free_.size(); }

  const rdma::QueueOptions options;
  std::deque<rdma::Completion> arrived;
  std::atomic<int> wakes = 0;
  std::function<void()> on_wait;  // what happens meanwhile

 private:
  std::vector<std::vector<std::byte>> buffers_;
  std::set<std::uint32_t> free_;
};

class FakeTransport final : public rdma::Transport {
 public:
  std::string describe() const override { return "fake"; }
  bool pins_receive_buffers() const override { return pins; }
  Result<std::unique_ptr<rdma::Region>> allocate(std::size_t length, rdma::Access) override {
    return rkv::testing::PlainRegion::make(length);
  }
  Result<std::unique_ptr<rdma::Queue>> create_queue(const rdma::QueueOptions& options) override {
    auto made = std::make_unique<FakeQueue>(options);
    queue = made.get();
    return made;
  }
  Result<std::unique_ptr<rdma::Listener>> listen(const std::string&) override {
    return fail(Code::kUnsupported, "fake");
  }
  Result<std::unique_ptr<rdma::Connection>> connect(rdma::Queue&, const rdma::ConnectionOptions&,
                                                    const std::string&, Bytes, const Deadline&,
                                                    rdma::Rejection*) override {
    return fail(Code::kUnsupported, "fake");
  }
  FakeQueue* queue = nullptr;
  bool pins = true;
};

}  // namespace rkv::server::test
