// A worker on a network that is worked by hand.
#pragma once

#include <gtest/gtest.h>

#include <thread>

#include "server/request/worker.h"
#include "tests/server/persistence/support.h"
#include "tests/server/request/fake_transport.h"
#include "tests/support/manual_clock.h"

namespace rkv::server {

using test::FakeConnection;
using test::patterned;

inline constexpr std::uint32_t kClients = 3;

class WorkerTest : public ::testing::Test {
 protected:
  explicit WorkerTest(CommitLog::Group group = CommitLog::Group::kNone) {
    memory_ = rkv::testing::make_plain_memory(
        {.memory_bytes = kMinMemoryBytes, .epoch = 1, .hash_seed = 2});
    log_ = std::move(*CommitLog::create(CommitLog::kMinCapacityBytes, group));
    store_ = std::make_unique<Store>(*memory_, *log_, clock_, 1);
    auto worker = Worker::create(parts_of_worker(), {.clients = kClients});
    worker_ = std::move(*worker);
    all_buffers_ = queue().free_buffers();
  }
  Worker::Parts parts_of_worker() {
    return {.transport = transport_,
            .store = *store_,
            .log = *log_,
            .clock = clock_,
            .boot = 1,
            .stats = [this] { return stats_; },
            .make_durable =
                [this](Durability level, std::uint64_t sequence) {
                  asked_ = sequence;
                  asked_level_ = level;
                  ++times_asked_;
                },
            .outcomes = &outcomes_};
  }
  test::FakeQueue& queue() { return *transport_.queue; }

  FakeConnection* connect(std::uint16_t credits = kMaxCredits) {
    EXPECT_TRUE(worker_->sessions().reserve_client());
    auto connection = std::make_unique<FakeConnection>();
    FakeConnection* const raw = connection.get();
    worker_->sessions().adopt({.connection = std::move(connection),
                               .session = ++sessions_,
                               .credits = credits,
                               .name = "test",
                               .place = nullptr});
    worker_->poll_once();
    return raw;
  }
  void ask(FakeConnection& from, const Request& request) {
    std::vector<std::byte> message(kRequestHeaderBytes + request.key.size() + request.value.size());
    message.resize(encode(request, message));
    queue().receive(from, message);
  }
  void ping(FakeConnection& from, std::uint64_t sequence = 0) {
    ask(from, {.opcode = Opcode::kPing, .sequence = sequence});
  }
  void put(FakeConnection& from, Bytes key, Bytes value,
           Durability durability = Durability::kDefault) {
    ask(from, {.opcode = Opcode::kPut,
               .sequence = 1,
               .durability = durability,
               .key = key,
               .value = value});
  }
  static Response answer(const FakeConnection& of, std::size_t number) {
    const auto response = decode_response(of.posted.at(number).bytes);
    EXPECT_TRUE(response);
    return response ? *response : Response{};
  }
  void turn() {
    while (worker_->poll_once() != 0) {
    }
  }
  void write_all() {
    CommitLog::Entry entry;
    while (log_->consume(&entry)) {
    }
    log_->set_wal_mark(log_->consumed());
    worker_->wake_for_answers();
  }
  void sync_all() {
    write_all();
    log_->set_sync_mark(log_->consumed());
    log_->advance();
    worker_->wake_for_answers();
  }

  ManualClock clock_;
  OutcomeArchive outcomes_{clock_, 8};
  test::FakeTransport transport_;
  std::unique_ptr<StoreMemory> memory_;
  std::unique_ptr<CommitLog> log_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Worker> worker_;
  std::string stats_ = "{}";
  std::uint64_t asked_ = 0;  // of make_durable(), and how often
  Durability asked_level_ = Durability::kDefault;
  int times_asked_ = 0;
  std::uint64_t sessions_ = 0;
  std::size_t all_buffers_ = 0;
};

}  // namespace rkv::server
