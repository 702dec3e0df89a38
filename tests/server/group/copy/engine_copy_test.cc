// Copies of a real database from one data directory to another over real connections: while it is
// written to, one at a time, and cut at any point.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "server/group/copy/copy_directory.h"
#include "server/group/copy/engine_copy_receiver.h"
#include "server/group/copy/engine_copy_sender.h"
#include "server/persistence/storage_engine.h"
#include "tests/server/group/connection/connections.h"

namespace rkv::server::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::size_t kValueBytes = 8000;
constexpr std::uint64_t kRecords = 4000;  // 32 MB

std::string key_of(std::uint64_t number) {
  return "key" + std::to_string(number);
}

void put(StorageEngine& engine, std::uint64_t number) {
  const std::string key = key_of(number);
  const auto value = patterned(number, kValueBytes);
  engine.add_put({.version = {number + 1}, .expiry_ms = 0, .key = as_bytes(key), .value = value});
}

// How many records from 0 on are there, each with the right value; and none beyond a gap.
std::uint64_t records_in(const std::string& directory) {
  auto engine = StorageEngine::open(directory);
  EXPECT_TRUE(engine) << to_string(engine.error());
  if (!engine) return 0;
  std::uint64_t count = 0;
  std::uint64_t highest = 0;
  EXPECT_TRUE((*engine)->read_from({}, [&](const RecordFields& record) {
    const std::uint64_t number = record.version.bits - 1;
    EXPECT_EQ(as_text(record.key), key_of(number));
    EXPECT_TRUE(equal(record.value, patterned(number, kValueBytes)));
    highest = std::max(highest, number + 1);
    ++count;
    return true;
  }));
  EXPECT_EQ(count, highest);
  return count;
}

class EngineCopies : public Connections {
 protected:
  void SetUp() override {
    auto made = StorageEngine::open(from_.path());
    ASSERT_TRUE(made) << to_string(made.error());
    engine_ = std::move(*made);
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      put(*engine_, i);
      if (i % 100 == 99) {
        ASSERT_TRUE(engine_->write_batch());
      }
    }
    {
      auto old = StorageEngine::open(to_.path());
      ASSERT_TRUE(old) << to_string(old.error());
      put(**old, 0);
      ASSERT_TRUE((*old)->write_batch());
    }
    serve();
  }
  void serve(std::chrono::milliseconds silence = EngineCopySender::kSilence) {
    sender_ = std::make_unique<EngineCopySender>(
        io_, from_.path(),
        [this](const std::string& target) {
          ++checkpoints_;
          return engine_->checkpoint(target);
        },
        [this](const std::string& replica, const std::string& problem) {
          outcomes_.push_back(replica + ":" + problem);
        },
        silence);
    std::string problem;
    auto made = ReplicaListener::listen(
        io_, "127.0.0.1:0", a_secret(),
        {.on_connection = [this](auto connection) { take(std::move(connection)); }}, &problem);
    ASSERT_TRUE(made) << problem;
    listener_ = std::move(*made);
  }
  // As a server does: the first message says what the connection is for.
  void take(std::shared_ptr<ReplicaConnection> connection) {
    connection->start({.on_message =
                           [this, connection](const auto& bytes) {
                             const auto message = decode_replication(bytes);
                             ASSERT_TRUE(message);
                             sender_->send(connection, std::get<CopyRequest>(*message));
                           },
                       .on_end = [](auto) {}});
  }
  std::unique_ptr<EngineCopyReceiver> receive(const std::string& directory, const std::string& name,
                                              std::optional<std::string>& outcome) {
    return std::make_unique<EngineCopyReceiver>(
        io_, directory, address(), a_secret(),
        CopyRequest{.replica = {.name = name, .address = "h:1", .epoch = 5}, .group = 7, .term = 1},
        [&outcome](std::string problem) { outcome = std::move(problem); }, kPatience);
  }
  // Expects the state after a copy has failed.
  void expect_old_database() {
    EXPECT_FALSE(fs::exists(to_.file("copying")));
    EXPECT_FALSE(fs::exists(to_.file("copied")));
    EXPECT_EQ(records_in(to_.path()), 1U);
  }

  const TempDir from_;
  const TempDir to_;
  std::unique_ptr<StorageEngine> engine_;
  std::vector<std::string> outcomes_;
  std::atomic<int> checkpoints_{0};
  std::unique_ptr<EngineCopySender> sender_;
};

TEST_F(EngineCopies, ADatabaseIsCopiedWhileItIsWrittenTo) {
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> written{kRecords};
  std::thread writer([&] {
    while (!is_over.load()) {
      put(*engine_, written.load());
      ASSERT_TRUE(engine_->write_batch());
      written.fetch_add(1);
    }
  });
  std::optional<std::string> outcome;
  const auto receiver = receive(to_.path(), "n2", outcome);
  std::uint64_t most = 0;
  EXPECT_TRUE(run_until([&] {
    most = std::max(most, receiver->progress().bytes);
    return outcome && !outcomes_.empty();
  }));
  is_over = true;
  writer.join();
  ASSERT_EQ(outcome.value_or("none"), "");
  EXPECT_EQ(outcomes_.front(), "n2:");
  EXPECT_EQ(receiver->progress().bytes, receiver->progress().total_bytes);
  EXPECT_GT(most, std::uint64_t{20} << 20);
  std::string problem;
  ASSERT_TRUE(install_copy(to_.path(), &problem)) << problem;
  const std::uint64_t copied = records_in(to_.path());
  EXPECT_GE(copied, kRecords);
  EXPECT_LE(copied, written.load());
  sender_.reset();
  EXPECT_FALSE(fs::exists(from_.file("sending")));
  EXPECT_EQ(engine_->hash_seed(), (*StorageEngine::open(to_.path()))->hash_seed());
}

TEST_F(EngineCopies, OneAtATime) {
  const TempDir second;
  std::optional<std::string> one;
  std::optional<std::string> two;
  const auto first_receiver = receive(to_.path(), "n2", one);
  ASSERT_TRUE(run_until([&] { return sender_->progress().replica == "n2"; }));
  const auto second_receiver = receive(second.path(), "n3", two);
  ASSERT_TRUE(run_until([&] { return sender_->progress().waiting == 1 || one.has_value(); }));
  if (!one) {
    EXPECT_LE(checkpoints_.load(), 1) << "the second waits";
  }
  ASSERT_TRUE(run_until([&] { return one && two; }));
  EXPECT_EQ(*one, "");
  EXPECT_EQ(*two, "");
  EXPECT_EQ(checkpoints_.load(), 2);
  std::string problem;
  ASSERT_TRUE(install_copy(second.path(), &problem)) << problem;
  EXPECT_EQ(records_in(second.path()), kRecords);
}

// The receiver ends after each number of bytes; the sender is free for the next one.
TEST_F(EngineCopies, AReceiverThatEndsLeavesTheOldDatabase) {
  for (const std::uint64_t bytes : {0ULL, 1ULL, 10'000'000ULL}) {
    outcomes_.clear();
    std::optional<std::string> outcome;
    auto receiver = receive(to_.path(), "n2", outcome);
    ASSERT_TRUE(run_until([&] {
      return receiver->progress().bytes >= bytes && !sender_->progress().replica.empty();
    }));
    receiver.reset();
    if (outcome) GTEST_FAIL() << "the copy was over before: " << *outcome;
    ASSERT_TRUE(run_until([&] { return !outcomes_.empty(); }));
    EXPECT_NE(outcomes_.front(), "n2:");
    expect_old_database();
  }
  std::optional<std::string> outcome;
  const auto receiver = receive(to_.path(), "n2", outcome);
  ASSERT_TRUE(run_until([&] { return outcome.has_value(); }));
  EXPECT_EQ(*outcome, "");
}

TEST_F(EngineCopies, APrimaryThatEndsLeavesTheOldDatabase) {
  for (const std::uint64_t bytes : {0ULL, 10'000'000ULL}) {
    std::optional<std::string> outcome;
    const auto receiver = receive(to_.path(), "n2", outcome);
    ASSERT_TRUE(run_until([&] {
      return receiver->progress().bytes >= bytes && !sender_->progress().replica.empty();
    }));
    if (bytes == 0) {
      sender_->end_all("this replica is not the primary any more");
    } else {
      sender_.reset();
    }
    ASSERT_TRUE(run_until([&] { return outcome.has_value(); }));
    EXPECT_THAT(*outcome, HasSubstr("ended"));
    expect_old_database();
  }
  EXPECT_EQ(outcomes_.size(), 1U) << "none from the destructor";
}

TEST_F(EngineCopies, ACheckpointThatFailsIsReported) {
  engine_->stop_checkpoints();
  std::optional<std::string> outcome;
  const auto receiver = receive(to_.path(), "n2", outcome);
  ASSERT_TRUE(run_until([&] { return outcome && !outcomes_.empty(); }));
  EXPECT_THAT(outcomes_.front(), HasSubstr("no copy of the database can be made"));
  expect_old_database();
}

// A receiver that reads nothing is given up, and holds up nobody.
TEST_F(EngineCopies, AReceiverThatStopsReadingIsGivenUp) {
  sender_.reset();
  serve(std::chrono::milliseconds(200));
  auto connection = connect(a_secret(), address());
  ASSERT_TRUE(connection) << connection.error().why;
  (*connection)
      ->send(std::make_shared<const std::vector<std::byte>>(encode(CopyRequest{
          .replica = {.name = "n9", .address = "h:1", .epoch = 5}, .group = 7, .term = 1})));
  ASSERT_TRUE(run_until([&] { return !outcomes_.empty(); }));
  EXPECT_THAT(outcomes_.front(), HasSubstr("took nothing"));
}

TEST_F(EngineCopies, APrimaryThatSaysNothingIsGivenUp) {
  std::string problem;
  const auto silent = ReplicaListener::listen(
      io_, "127.0.0.1:0", a_secret(),
      {.on_connection = [this](auto each) { taken_.push_back(std::move(each)); }}, &problem);
  ASSERT_TRUE(silent) << problem;
  std::optional<std::string> outcome;
  const EngineCopyReceiver receiver(
      io_, to_.path(), "127.0.0.1:" + std::to_string((*silent)->port()), a_secret(),
      CopyRequest{.replica = {.name = "n2", .address = "h:1", .epoch = 5}, .group = 7, .term = 1},
      [&](std::string why) { outcome = std::move(why); }, std::chrono::milliseconds(200));
  ASSERT_TRUE(run_until([&] { return outcome.has_value(); }));
  EXPECT_THAT(*outcome, HasSubstr("in time"));
  expect_old_database();
}

TEST_F(EngineCopies, AnotherSecretGetsNothing) {
  std::optional<std::string> outcome;
  const EngineCopyReceiver receiver(
      io_, to_.path(), address(), another_secret(),
      CopyRequest{.replica = {.name = "n2", .address = "h:1", .epoch = 5}, .group = 7, .term = 1},
      [&](std::string why) { outcome = std::move(why); });
  ASSERT_TRUE(run_until([&] { return outcome.has_value(); }));
  EXPECT_THAT(*outcome, HasSubstr("another secret"));
  EXPECT_EQ(checkpoints_.load(), 0);
  expect_old_database();
}

}  // namespace
}  // namespace rkv::server::test
