// Two machines and a replicated group: its primary on the other machine, a backup, etcd and the
// clients on this one. Of the link between them one kind of traffic after the other is cut, or all,
// or the other machine stands still: what the clients were answered is linearizable, by one-sided
// READs of a primary that was replaced and does not know it too; and the group serves again.
//
// RKV_HISTORY_SEED, RKV_HISTORY_DIR: as in run_test.cc.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/group/configuration/etcd_configuration_store.h"
#include "tests/history/crowd.h"
#include "tests/history/crowd_judge.h"
#include "tests/history/netem.h"
#include "tests/history/other_server.h"
#include "tests/server/group/configuration/etcd_servers.h"
#include "tests/system/world.h"

namespace rkv::history {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using testing_support::Process;

constexpr int kRocePort = 4791;  // all that clients exchange with a server
constexpr int kNearPort = 20011;
constexpr int kFarPort = 20001;  // OtherServer's
constexpr milliseconds kBackWithin{5000};
// Emulated processors take seconds for a take-over with its start of a server.
constexpr milliseconds kTakenOverWithin{60'000};

class GroupLink : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    host_ = std::make_unique<OtherHost>();
    etcd_ = std::make_unique<server::EtcdServers>(1, testing_support::test_address());
    data_ = std::make_unique<testing_support::ScratchDirectory>();
    far_ = std::make_unique<OtherServer>(*host_, group_arguments("far"));
    start_near();
  }
  static void TearDownTestSuite() {
    near_.reset();
    far_.reset();
    etcd_.reset();
    data_.reset();
    host_.reset();
  }

  void SetUp() override {
    if (primary() == "near") {  // of the test before
      near_->signal(SIGKILL);
      near_->wait();
      wait_for_primary("far");
      start_near();
    }
    wait_for_in_sync(2);
    ASSERT_EQ(primary(), "far");
    name_ = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    crowd_ = std::make_unique<Crowd>(clock_, far_->address() + "," + near_address(), name_ + "-",
                                     crowd_seed());
    ASSERT_TRUE(crowd_->time_until(1, 60s)) << "the clients do not get to work" << logs();
    before_ = crowd_->rate(2s);
    began_ = configuration();
  }

  static std::string near_address() {
    return fmt::format("{}:{}", testing_support::test_address(), kNearPort);
  }
  static std::string group_arguments(const std::string& name) {
    return fmt::format("--etcd {} --group links --name {}{}", etcd_->addresses().front(), name,
                       name == "far" ? " --found-group" : "");
  }
  static void start_near() {
    near_ = std::make_unique<Process>(std::vector<std::string>{
        "/bin/sh", "-c",
        fmt::format("exec {} --no-auth --listen {} --memory 64MiB --data-dir {} {}", RKV_KVSERVER,
                    near_address(), data_->path("near"), group_arguments("near"))});
  }

  static server::GroupConfiguration configuration() {
    const SteadyClock clock;
    server::EtcdConfigurationStore store(etcd_->addresses(), "links", clock);
    const auto stored = store.read(Deadline::after_ms(clock, 10'000));
    return stored && stored->configuration ? *stored->configuration : server::GroupConfiguration{};
  }
  static std::string primary() { return configuration().primary; }

  template <class Condition>
  static void wait_until(Condition holds, const std::string& what) {
    const SteadyClock clock;
    const Nanos end = clock.now() + kTakenOverWithin.count() * kNanosPerMs;
    while (!holds()) {
      ASSERT_LT(clock.now(), end) << what << "\n" << to_text(configuration()) << logs();
      std::this_thread::sleep_for(20ms);
    }
  }
  static void wait_for_primary(const std::string& name) {
    wait_until([&] { return primary() == name; }, name + " does not become the primary");
  }
  static void wait_for_in_sync(std::size_t count) {
    wait_until([&] { return configuration().in_sync_count() == count; },
               fmt::format("never {} in sync", count));
  }
  static std::string logs() {
    return "\n== far\n" + far_->process().output() + "\n== near\n" + near_->output();
  }

  // The ports of what the replicas say to each other, and of etcd.
  static std::vector<int> replica_ports() { return {kFarPort + 1, kNearPort + 1}; }
  static int etcd_port() {
    const std::string address = etcd_->addresses().front();
    return std::stoi(address.substr(address.rfind(':') + 1));
  }

  // The disturbance that began before ends here.
  void restore() {
    link_.restore();
    EXPECT_GT(link_.packets().dropped, 0U) << "nothing was cut";
  }
  void expect_answers(milliseconds within, const char* when) {
    const auto back = crowd_->time_until(before_ / 4, within);
    EXPECT_TRUE(back) << when << ": not a quarter of " << before_ << " answers a second" << logs();
    if (back) fmt::print("{}: answers after {:.1f} s\n", when, static_cast<double>(*back) / 1e9);
  }
  // The cut is over, and both replicas are well again.
  void expect_all_well() {
    wait_for_in_sync(2);
    expect_answers(kBackWithin, "in the end");
    judge_crowd(*crowd_, name_);
  }

  static std::unique_ptr<OtherHost> host_;
  static std::unique_ptr<server::EtcdServers> etcd_;
  static std::unique_ptr<testing_support::ScratchDirectory> data_;
  static std::unique_ptr<OtherServer> far_;
  static std::unique_ptr<Process> near_;
  const SteadyClock clock_;
  Netem link_{*host_};
  std::string name_;
  std::unique_ptr<Crowd> crowd_;
  double before_ = 0;  // answers a second
  server::GroupConfiguration began_;
};

std::unique_ptr<OtherHost> GroupLink::host_;
std::unique_ptr<server::EtcdServers> GroupLink::etcd_;
std::unique_ptr<testing_support::ScratchDirectory> GroupLink::data_;
std::unique_ptr<OtherServer> GroupLink::far_;
std::unique_ptr<Process> GroupLink::near_;

// The replicas see each other over TCP, and etcd, so nobody is replaced. The backup's lane is cut
// too: it may be left out until it has connected again.
TEST_F(GroupLink, ClientsAreCutOffThePrimary) {
  link_.cut_ports({kRocePort});
  (void)crowd_->rate(3s);
  EXPECT_EQ(crowd_->rate(500ms), 0);
  restore();
  EXPECT_EQ(primary(), began_.primary);
  EXPECT_EQ(configuration().term, began_.term);
  expect_answers(kBackWithin, "restored");
  expect_all_well();
}

TEST_F(GroupLink, ThePrimaryIsCutOffEtcd) {
  link_.cut_ports({etcd_port()});
  EXPECT_GT(crowd_->rate(4s), before_ / 4);  // the group goes on
  restore();
  EXPECT_EQ(configuration(), began_);
  expect_all_well();
}

// Both reach etcd: one leaves the other out, and goes on alone.
TEST_F(GroupLink, TheReplicasAreCutOffEachOther) {
  link_.cut_ports(replica_ports());
  wait_for_in_sync(1);
  expect_answers(kTakenOverWithin, "with one replica");
  restore();
  expect_all_well();
}

// The clients reach the primary's memory all the time, which answers READs although the backup has
// taken over.
TEST_F(GroupLink, ThePrimaryIsCutOffAllButItsClients) {
  std::vector<int> ports = replica_ports();
  ports.push_back(etcd_port());
  link_.cut_ports(ports);
  wait_for_primary("near");
  expect_answers(kTakenOverWithin, "with the other primary");
  (void)crowd_->rate(3s);
  restore();
  EXPECT_TRUE(far_->process().wait_for_output("starting again as a backup", 60)) << logs();
  expect_all_well();
}

TEST_F(GroupLink, ThePrimaryIsCutOffAll) {
  link_.cut();
  wait_for_primary("near");
  expect_answers(kTakenOverWithin, "with the other primary");
  restore();
  expect_all_well();
}

// Its clocks stand still, so it believes that its lease lasts when it goes on.
TEST_F(GroupLink, ThePrimarysMachineStandsStill) {
  const Nanos began = clock_.now();
  host_->pause_machine();
  wait_for_primary("near");
  expect_answers(kTakenOverWithin, "with the other primary");
  host_->continue_machine();
  crowd_->server_stood(clock_.now() - began);
  expect_all_well();
}

}  // namespace
}  // namespace rkv::history
