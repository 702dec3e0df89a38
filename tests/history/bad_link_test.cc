// Two machines and a link that is disturbed in every way, or a server that stands still or dies:
// what the clients on the other machine were answered is linearizable, no operation outlives its
// deadline by more than client/README.md says, no durable write is lost, and the rate is back
// within seconds.
//
// RKV_HISTORY_SEED, RKV_HISTORY_DIR: as in run_test.cc. RKV_BAD_LINK_SHORT: disturbances of the
// short form, which last as long as a caller's deadline or a little longer; all bounds are the
// same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "tests/history/bulk_client.h"
#include "tests/history/crowd.h"
#include "tests/history/crowd_judge.h"
#include "tests/history/netem.h"
#include "tests/history/other_server.h"

namespace rkv::history {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr milliseconds kBackWithin{5000};

bool is_short() {
  return std::getenv("RKV_BAD_LINK_SHORT") != nullptr;
}

milliseconds lasting(milliseconds whole, milliseconds in_short) {
  return is_short() ? in_short : whole;
}

// Packets that came twice, or too early, as the adapter of a machine has counted them.
const std::string kCounters = "/sys/class/infiniband/rxe0/ports/1/hw_counters/";

class BadLink : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    host_ = std::make_unique<OtherHost>();
    server_ = std::make_unique<OtherServer>(*host_);
  }
  static void TearDownTestSuite() {
    if (server_) server_->stop_and_check();
    server_.reset();
    host_.reset();
  }

  void SetUp() override {
    const std::uint64_t chosen = crowd_seed();
    name_ = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    crowd_ = std::make_unique<Crowd>(clock_, server_->address(), name_ + "-", chosen);
    ASSERT_TRUE(crowd_->time_until(1, 60s)) << "the clients do not get to work";
    before_ = crowd_->rate(2s);
  }

  // The rate while the link is like this.
  double disturb(const std::string& how, milliseconds time) {
    link_.disturb(how);
    const double rate = crowd_->rate(time);
    link_.restore();
    EXPECT_GT(link_.packets().sent + link_.packets().dropped, 0U);
    fmt::print("{}: {:.0f} answers a second instead of {:.0f}, {} of {} packets dropped\n", how,
               rate, before_, link_.packets().dropped,
               link_.packets().sent + link_.packets().dropped);
    return rate;
  }

  // Returns the sum of this counter over both machines.
  std::uint64_t counted(const std::string& counter) {
    std::uint64_t here = 0;
    std::ifstream(kCounters + counter) >> here;
    return here + std::strtoull(host_->run("cat " + kCounters + counter).c_str(), nullptr, 10);
  }

  void cut_for(milliseconds time) {
    disturb("loss 100%", time);
    EXPECT_GT(link_.packets().dropped, 0U);
  }

  // From now on nothing disturbs the clients.
  void expect_recovery() {
    const auto back = crowd_->time_until(before_ / 2, kBackWithin);
    EXPECT_TRUE(back) << "not half of " << before_ << " answers a second after "
                      << kBackWithin.count() << " ms";
    if (back) fmt::print("back after {:.1f} s\n", static_cast<double>(*back) / 1e9);
  }

  CrowdReport judge_crowd(bool is_server_there = true) {
    return rkv::history::judge_crowd(*crowd_, name_, is_server_there);
  }

  static std::unique_ptr<OtherHost> host_;
  static std::unique_ptr<OtherServer> server_;
  const SteadyClock clock_;
  Netem link_{*host_};
  std::string name_;
  std::unique_ptr<Crowd> crowd_;
  double before_ = 0;  // answers a second
};

std::unique_ptr<OtherHost> BadLink::host_;
std::unique_ptr<OtherServer> BadLink::server_;

TEST_F(BadLink, LosesOneInAHundred) {
  EXPECT_GT(disturb("loss 1%", 3s), 0);
  EXPECT_GT(link_.packets().dropped, 0U);
  expect_recovery();
  judge_crowd();
}

TEST_F(BadLink, LosesOneInTen) {
  EXPECT_GT(disturb("loss 10%", lasting(10s, 3s)), 0);
  EXPECT_GT(link_.packets().dropped, 0U);
  expect_recovery();
  judge_crowd();
}

// One client alone, so the only right answer to each call is known. Its atomics and READs follow
// requests: SoftRoCE completes some of these without their data (rdma/transport/verbs/README.md).
TEST_F(BadLink, GivesNoOldAnswers) {
  crowd_->pause();
  auto client = Client::connect({.server = server_->address(), .transport = Transport::kVerbs});
  ASSERT_TRUE(client);
  std::vector<OneSidedCounter> counters;
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::string name = fmt::format("{}-one-sided-{}", name_, i);
    ASSERT_TRUE(client->incr(name, i));
    counters.push_back(std::move(*client->open_counter(name)));
  }
  std::size_t answers = 0;
  std::size_t old_numbers = 0;
  std::size_t old_values = 0;
  link_.disturb("loss 20%");
  const Nanos end = clock_.now() + lasting(10s, 3s).count() * kNanosPerMs;
  for (std::int64_t round = 0; clock_.now() < end; ++round) {
    (void)client->incr(name_ + "-by-requests", 1, {.timeout = 30s});
    const auto counted = client->get_counter(counters[round % 2], 30s);
    if (counted && counted->number != round % 2) ++old_numbers;
    const std::string value = fmt::format("value-{}", round % 2);
    const bool put = client->put(name_ + "-value", value, 30s).has_value();
    const auto got = client->get(name_ + "-value", 30s);
    if (put && got && got->value != value) ++old_values;
    answers += (got ? 1 : 0) + (counted ? 1 : 0);
  }
  link_.restore();
  EXPECT_GT(link_.packets().dropped, 0U);
  EXPECT_GT(answers, 0U);
  fmt::print("{} answers, {} reconnects\n", answers, client->stats().reconnects);
  EXPECT_EQ(old_numbers, 0U);
  EXPECT_EQ(old_values, 0U);
  crowd_->resume();
  expect_recovery();
  judge_crowd();
}

TEST_F(BadLink, IsSlow) {
  const milliseconds time = lasting(10s, 3s);
  const double rate = disturb("delay 50ms", time);
  EXPECT_GT(rate, 0);
  // Each client waits 100 ms for an answer. One answer of each may be under way when it begins.
  EXPECT_LT(rate, Crowd::kClients * (10 + 1 / std::chrono::duration<double>(time).count()) + 1);
  expect_recovery();
  judge_crowd();
}

TEST_F(BadLink, Duplicates) {
  const std::uint64_t before = counted("duplicate_request");
  EXPECT_GT(disturb("duplicate 20%", lasting(10s, 3s)), 0);
  // Packets that are sent again are counted too, but are far fewer.
  EXPECT_GT(counted("duplicate_request") - before, link_.packets().sent / 40);
  expect_recovery();
  judge_crowd();
}

// The crowd's clients have few packets under way at a time, so a client with many joins them. The
// adapter counts a request that comes too early, and drops all behind it until the gap is filled.
// So one in a hundred of all packets is counted.
TEST_F(BadLink, Reorders) {
  BulkClient bulk(server_->address(), name_ + "-");
  const std::uint64_t before = counted("out_of_seq_request");
  EXPECT_GT(disturb("delay 10ms reorder 25% 50%", lasting(10s, 3s)), 0);
  const std::uint64_t early = counted("out_of_seq_request") - before;
  bulk.stop();
  fmt::print("{} of {} packets came too early; many at a time: {} answers\n", early,
             link_.packets().sent, bulk.answers());
  EXPECT_GT(early, link_.packets().sent / 200);
  EXPECT_GT(bulk.answers(), 0U);
  EXPECT_EQ(bulk.wrong(), "");
  expect_recovery();
  judge_crowd();
}

TEST_F(BadLink, IsCutForAMoment) {
  cut_for(3s);
  expect_recovery();
  EXPECT_GT(judge_crowd().reconnects, 0U);
}

TEST_F(BadLink, IsCutForTenSeconds) {
  cut_for(10s);
  expect_recovery();
  EXPECT_GT(judge_crowd().reconnects, 0U);
}

TEST_F(BadLink, FlapsEachSecond) {
  for (int i = 0; i < (is_short() ? 3 : 5); ++i) {
    cut_for(1s);
    std::this_thread::sleep_for(1s);
  }
  expect_recovery();
  EXPECT_GT(judge_crowd().reconnects, 0U);
}

TEST_F(BadLink, LeadsToAServerThatIsPaused) {
  const Nanos began = clock_.now();
  server_->suspend();
  std::this_thread::sleep_for(lasting(5s, 3s));
  server_->go_on();
  crowd_->server_stood(clock_.now() - began);
  expect_recovery();
  EXPECT_GT(judge_crowd().unanswered, 0U);
}

TEST_F(BadLink, LeadsToAMachineThatIsPaused) {
  const Nanos began = clock_.now();
  host_->pause_machine();
  std::this_thread::sleep_for(lasting(5s, 3s));
  EXPECT_EQ(crowd_->rate(1s), 0);
  host_->continue_machine();
  crowd_->server_stood(clock_.now() - began);
  expect_recovery();
  EXPECT_GT(judge_crowd().reconnects, 0U);
}

TEST_F(BadLink, LeadsToAServerThatIsKilled) {
  for (int i = 0; i < (is_short() ? 1 : 3); ++i) {
    server_->kill();
    crowd_->pause();
    server_->start();
    crowd_->see_restart();
    crowd_->resume();
    expect_recovery();
  }
  EXPECT_GT(judge_crowd().reconnects, 0U);
}

// As when its machine dies: it does not take leave.
TEST_F(BadLink, IsCutBeforeTheServerIsKilled) {
  link_.cut();
  server_->kill();
  crowd_->pause();
  link_.restore();
  server_->start();
  crowd_->see_restart();
  crowd_->resume();
  expect_recovery();
  EXPECT_GT(judge_crowd().reconnects, 0U);
}

// The last one: the machine does not come back.
TEST_F(BadLink, LosesTheOtherMachine) {
  host_->end_machine();
  std::this_thread::sleep_for(lasting(5s, 3s));
  EXPECT_EQ(crowd_->rate(1s), 0);
  judge_crowd(false);
  server_.reset();
}

}  // namespace
}  // namespace rkv::history
