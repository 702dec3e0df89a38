// A backup that was away comes back although clients write all the time, and could write more than
// it takes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "tests/system/group/replica_group.h"

namespace rkv::testing_support {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kValueBytes = std::size_t{64} << 10;
constexpr std::size_t kKeys = 16;  // of one writer, all written at once
// A primary keeps this much of the log for a replica that is away. More is written meanwhile.
constexpr const char* kQueue = "32MiB";
std::uint64_t written_meanwhile() {
  return std::uint64_t{test_transport() == Transport::kVerbs ? 36U : 100U} << 20;
}

// Writes its keys again and again, as fast as it can, until it is finished. A value begins with the
// number of the round.
class Flood {
 public:
  Flood(Client client, std::string name) : client_(std::move(client)), name_(std::move(name)) {
    thread_ = std::thread([this] {
      while (!ends_.load())
        write_all();
    });
  }
  ~Flood() {
    ends_.store(true);
    if (thread_.joinable()) thread_.join();
  }

  std::uint64_t written() const { return rounds_.load() * kKeys * kValueBytes; }
  // EXPECTs so many more bytes within three minutes.
  void wait_for(std::uint64_t more) const {
    const std::uint64_t bytes = written() + more;
    EXPECT_TRUE(holds_in_time([&] { return written() >= bytes; })) << "it does not write";
  }
  // EXPECTs that all calls were answered and that the keys are as the last ones left them.
  void finish() {
    ends_.store(true);
    thread_.join();
    EXPECT_EQ(failure_, "");
    for (std::size_t key = 0; key != kKeys; ++key) {
      const auto got = client_.get(key_of(key));
      ASSERT_TRUE(got) << to_string(got.error());
      EXPECT_EQ(got->value, value_of(rounds_.load()));
    }
  }

 private:
  std::string key_of(std::size_t number) const { return fmt::format("{}-{}", name_, number); }
  static std::string value_of(std::uint64_t round) {
    std::string value = fmt::format("{}.", round);
    value.resize(kValueBytes, 'x');
    return value;
  }
  void write_all() {
    const std::string value = value_of(rounds_.load() + 1);
    std::vector<std::string> names;
    std::vector<KeyValue> items;
    for (std::size_t key = 0; key != kKeys; ++key)
      names.push_back(key_of(key));
    for (const std::string& name : names)
      items.push_back({.key = name, .value = value});
    for (const auto& put : client_.multi_put(items)) {
      if (!put) failure_ += fmt::format(" round {}: {}", rounds_.load(), to_string(put.error()));
    }
    rounds_.store(rounds_.load() + 1);
  }

  Client client_;
  const std::string name_;
  std::string failure_;
  std::atomic<std::uint64_t> rounds_{0};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// A group of two under two writers, whose backup is killed and started again.
class GroupCatchUp : public ::testing::Test {
 protected:
  GroupCatchUp() {
    group_.start_all();
    primary_ = group_.wait_for_primary();
    one_.emplace(group_.client_of(primary_), "one");
    other_.emplace(group_.client_of(primary_), "other");
    one_->wait_for(kKeys * kValueBytes);
    group_.kill(1 - primary_);
    group_.wait_for_in_sync(1);
    one_->wait_for(written_meanwhile());
  }
  Process& start_backup() {
    began_ = steady_clock::now();
    group_.start(1 - primary_);
    return group_.process(1 - primary_);
  }
  void expect_in_sync_for_good() {
    group_.wait_for_in_sync(2);
    const std::chrono::duration<double> took = steady_clock::now() - began_;
    fmt::print("in sync after {:.1f} s\n", took.count());
    if (test_transport() == Transport::kShm) {
      EXPECT_LT(took.count(), 60) << "by chance";
    }
    // And remains so: its disk is as slow as before.
    one_->wait_for(written_meanwhile());
    EXPECT_EQ(group_.in_sync_count(), 2U) << group_.logs();
    one_->finish();
    other_->finish();
  }

  ReplicaGroup group_{2, {"--queue", kQueue, "--replicate-over", "tcp"}};
  std::size_t primary_ = 0;
  std::optional<Flood> one_;
  std::optional<Flood> other_;
  steady_clock::time_point began_{};
};

TEST_F(GroupCatchUp, ABackupComesBackThoughClientsCouldWriteMoreThanItTakes) {
  start_backup();
  expect_in_sync_for_good();
}

TEST_F(GroupCatchUp, ABackupIsCopiedToThoughClientsCouldWriteMoreThanItTakes) {
  // The log is kept for three seconds for a replica that may be back soon.
  for (const auto end = steady_clock::now() + std::chrono::seconds(4); steady_clock::now() < end;)
    one_->wait_for(written_meanwhile() / 4);
  ASSERT_TRUE(start_backup().wait_for_output("its database is copied", 60)) << group_.logs();
  expect_in_sync_for_good();
}

}  // namespace
}  // namespace rkv::testing_support
