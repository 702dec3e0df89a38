// The reports of a server in every state, without a network.
#include "server/monitor/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/support/manual_clock.h"

namespace rkv::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class MonitorTest : public ::testing::Test {
 protected:
  void become_ready() {
    monitor_.ready({.facts = [this] { return facts(); },
                    .log = [this] { return log_; },
                    .workers = [this] { return workers(); }});
  }
  std::vector<WorkerFacts> workers() const {
    return {{.transport = "shm",
             .number = 3,
             .counters = &counters_,
             .timings = &timings_,
             .room = &room_,
             .clients = 2}};
  }
  static LogFacts log_of(bool persistent) {
    LogFacts log;
    log.persistent = persistent;
    return log;
  }
  ServerFacts facts() const {
    ServerFacts facts;
    facts.log = log_;
    facts.workers = workers();
    facts.store.loading = loading_;
    facts.refusals = refusals_;
    facts.challenges = 9;
    facts.load = {.loaded = 5, .estimated = 70};
    facts.endpoints = endpoints_;
    facts.device = "a \"device\"\n\xff";
    return facts;
  }
  std::string body(const char* path) { return monitor_.answer(path).body; }
  // The facts have changed: what is kept is too old by now.
  void later() { clock_.advance(Monitor::kKept); }
  void pass(Nanos time, bool turning) {
    for (Nanos passed = 0; passed < time; passed += 100 * kNanosPerMs) {
      clock_.advance(100 * kNanosPerMs);
      if (turning) counters_.add(WorkerCounters::kTurns);
      monitor_.tick();
    }
  }

  ManualClock clock_;
  WorkerCounters counters_;
  Timings timings_{clock_, 4};
  MessageBuffers room_;
  LogFacts log_ = log_of(true);
  bool loading_ = false;
  std::vector<EndpointFacts> endpoints_;
  RefusalCounts refusals_{};
  Monitor monitor_{clock_};
};

TEST_F(MonitorTest, SaysWhatTheStartIsDoing) {
  monitor_.doing("opening the database");
  monitor_.tick();
  EXPECT_EQ(monitor_.answer("/readyz").status, 503U);
  EXPECT_EQ(body("/readyz"), "starting: opening the database\n");
  EXPECT_EQ(monitor_.answer("/healthz").status, 200U) << "alive, not ready";
  EXPECT_EQ(json::parse(body("/status")).at("state"), "starting");
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_ready 0\n"));
  EXPECT_THAT(body("/metrics"), Not(HasSubstr("kvserver_requests_total")));
}

TEST_F(MonitorTest, ReadyWithTheStateOfTheDisk) {
  become_ready();
  EXPECT_EQ(monitor_.answer("/readyz").status, 200U);
  EXPECT_EQ(body("/readyz"), "ready\ndisk: ok\n");
  log_.disk = DiskState::kFull;
  later();
  EXPECT_EQ(monitor_.answer("/readyz").status, 200U) << "reads go on";
  EXPECT_EQ(body("/readyz"), "ready\ndisk: full: writes are refused, reads go on\n");
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_disk_state{state=\"full\"} 1\n"));
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_disk_state{state=\"ok\"} 0\n"));
  log_ = log_of(true);
  log_.disk_hangs = true;
  later();
  EXPECT_EQ(body("/readyz"),
            "ready\ndisk: hung: durable writes wait, others are accepted until the queue is full; "
            "reads go on\n");
  EXPECT_EQ(json::parse(body("/status")).at("disk_state"), "hung");
  EXPECT_EQ(json::parse(body("/status")).at("disk_failed"), true);
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_disk_state{state=\"hung\"} 1\n"));
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_disk_state{state=\"ok\"} 0\n"));
  log_ = log_of(false);
  loading_ = true;
  later();
  EXPECT_EQ(body("/readyz"), "ready\ndisk: none\nloading: 5 of about 70 records\n");
}

TEST_F(MonitorTest, ANetworkWithoutItsDeviceIsNamed) {
  endpoints_ = {{.transport = "verbs"}, {.transport = "shm"}};
  become_ready();
  EXPECT_EQ(body("/readyz"), "ready\ndisk: ok\n");
  endpoints_[0].state = rdma::DeviceState::kWaiting;
  endpoints_[0].why = "the device was removed";
  endpoints_[0].losses = 2;
  later();
  EXPECT_EQ(monitor_.answer("/readyz").status, 200U) << "shared memory serves";
  EXPECT_EQ(body("/readyz"),
            "ready\ndisk: ok\nverbs: waits for a device: the device was removed\n");
  const json status = json::parse(body("/status"));
  EXPECT_EQ(status.at("endpoints").at(0).at("state"), "waiting");
  EXPECT_EQ(status.at("endpoints").at(0).at("why"), "the device was removed");
  EXPECT_EQ(status.at("endpoints").at(1).at("state"), "serving");
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_ready 1\n"));
  EXPECT_THAT(body("/metrics"),
              HasSubstr("kvserver_endpoint_state{transport=\"verbs\",state=\"waiting\"} 1\n"));
  EXPECT_THAT(body("/metrics"),
              HasSubstr("kvserver_endpoint_state{transport=\"shm\",state=\"waiting\"} 0\n"));
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_devices_lost_total{transport=\"verbs\"} 2\n"));
}

TEST_F(MonitorTest, NotReadyWhileNoNetworkServes) {
  endpoints_ = {{.transport = "verbs", .state = rdma::DeviceState::kPortDown, .why = "it is DOWN"}};
  become_ready();
  EXPECT_EQ(monitor_.answer("/readyz").status, 503U);
  EXPECT_EQ(body("/readyz"), "no client can reach it\nverbs: carries no traffic: it is DOWN\n");
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_ready 0\n"));
  EXPECT_EQ(monitor_.answer("/healthz").status, 200U);
  endpoints_[0].state = rdma::DeviceState::kServing;
  later();
  EXPECT_EQ(monitor_.answer("/readyz").status, 200U);
}

TEST_F(MonitorTest, NotReadyWhileItStops) {
  become_ready();
  monitor_.stopping();
  EXPECT_EQ(monitor_.answer("/readyz").status, 503U);
  EXPECT_EQ(json::parse(body("/status")).at("state"), "stopping");
  monitor_.close();
  EXPECT_EQ(json::parse(body("/status")).contains("puts"), false) << "there are no facts any more";
}

TEST_F(MonitorTest, AWorkerThatStandsStillIsNotHealthy) {
  become_ready();
  pass(Liveness::kStuckAfter, true);
  EXPECT_EQ(monitor_.answer("/healthz").status, 200U);
  pass(Liveness::kStuckAfter + 100 * kNanosPerMs, false);
  EXPECT_EQ(monitor_.answer("/healthz").status, 503U);
  EXPECT_EQ(body("/healthz"), "worker 3 of shm is stuck\n");
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_healthy 0\n"));
  pass(100 * kNanosPerMs, true);
  EXPECT_EQ(monitor_.answer("/healthz").status, 200U);
}

TEST_F(MonitorTest, AMainThreadThatStandsStillIsNotHealthy) {
  become_ready();
  monitor_.tick();
  clock_.advance(Liveness::kStuckAfter);
  EXPECT_EQ(body("/healthz"), "the main thread is stuck\n");
}

TEST_F(MonitorTest, LagIsTheAgeOfTheOldestWriteBehindAMark) {
  become_ready();
  log_.last_begun = 100;
  log_.wal_mark = 100;
  monitor_.tick();
  pass(2 * kNanosPerSecond, true);
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_wal_lag_seconds 0\n"));
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_sync_lag_seconds 2\n"));
  log_.sync_mark = 100;
  later();
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_sync_lag_seconds 0\n"));
}

TEST_F(MonitorTest, HoweverManyAskItLooksTenTimesASecond) {
  int gathered = 0;
  monitor_.ready({.facts =
                      [&] {
                        ++gathered;
                        return facts();
                      },
                  .log = [this] { return log_; },
                  .workers = [this] { return workers(); }});
  for (int i = 0; i < 10; ++i) {
    for (const char* path : {"/metrics", "/status", "/readyz", "/healthz", "/"})
      EXPECT_EQ(monitor_.answer(path).status, 200U);
  }
  EXPECT_EQ(gathered, 1);
  clock_.advance(Monitor::kKept - 1);
  (void)body("/status");
  EXPECT_EQ(gathered, 1);
  clock_.advance(1);
  counters_.add(WorkerCounters::kTurns, 77);
  EXPECT_THAT(body("/metrics"),
              HasSubstr("kvserver_turns_total{transport=\"shm\",worker=\"3\"} 77\n"));
  EXPECT_EQ(gathered, 2);
  monitor_.stopping();
  EXPECT_EQ(json::parse(body("/status")).at("state"), "stopping") << "a change is seen at once";
}

// Facts that take their time, for want of a lock of the store, keep the main thread from nothing.
TEST_F(MonitorTest, WhoAsksHoldsUpNoTick) {
  std::mutex mutex;
  std::condition_variable changed;
  bool gathering = false;
  bool ticked = false;
  monitor_.ready(
      {.facts =
           [&] {
             std::unique_lock lock(mutex);
             gathering = true;
             changed.notify_all();
             EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return ticked; }));
             return facts();
           },
       .log = [this] { return log_; },
       .workers = [this] { return workers(); }});
  std::thread asks([&] { EXPECT_EQ(monitor_.answer("/metrics").status, 200U); });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return gathering; });
  }
  monitor_.tick();
  {
    const std::lock_guard lock(mutex);
    ticked = true;
  }
  changed.notify_all();
  asks.join();
}

TEST_F(MonitorTest, WritesOnTheirWayAreNeverLessThanNone) {
  log_.applier = {.taken = 1, .saved = 3};  // as when the two were looked at apart
  become_ready();
  EXPECT_THAT(body("/metrics"), HasSubstr("kvserver_queue_unsynced_writes 0\n"));
}

TEST_F(MonitorTest, EndsOfConnectionsByReason) {
  become_ready();
  counters_.dropped(DropReason::kCredits);
  counters_.dropped(DropReason::kSilent);
  counters_.failed(rdma::Completion::Kind::kRead, rdma::Completion::Status::kRemoteAccess);
  refusals_[static_cast<std::size_t>(RefusalReason::kFull)] = 5;
  const std::string text = body("/metrics");
  for (const char* line :
       {"kvserver_connections_refused_total{reason=\"full\"} 5\n",
        "kvserver_connections_refused_total{reason=\"version\"} 0\n",
        "kvserver_challenges_total 9\n",
        "kvserver_connections_dropped_total{reason=\"credits\"} 1\n",
        "kvserver_connections_dropped_total{reason=\"malformed\"} 0\n",
        "kvserver_completion_errors_total{operation=\"read\",error=\"remote_access\"} 1\n",
        "kvserver_completion_errors_total{operation=\"send\",error=\"failed\"} 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  const json status = json::parse(body("/status"));
  EXPECT_EQ(status.at("connections_dropped"), 2);
  EXPECT_EQ(status.at("connections_refused"), 5);
  EXPECT_EQ(status.at("connections_dropped_for").at("silent"), 1);
  EXPECT_EQ(status.at("connections_refused_for").at("full"), 5);
}

TEST_F(MonitorTest, NumbersOfTheProcessHaveTheNamesThatAllProgramsUse) {
  const std::string text = body("/metrics");
  for (const char* name :
       {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds",
        "process_max_fds", "process_start_time_seconds", "process_threads"}) {
    EXPECT_THAT(text, HasSubstr("\n" + std::string(name) + " "));
  }
}

TEST_F(MonitorTest, RequestsByOperationStatusAndTime) {
  become_ready();
  counters_.add(WorkerCounters::kReceived, 4);
  counters_.answered(Opcode::kPut, 0);
  counters_.answered(Opcode::kGet, static_cast<std::uint8_t>(Code::kNotFound));
  counters_.answered(Opcode::kGet, 250);
  timings_.answered(Opcode::kPut, 0);
  timings_.at(1024);
  const std::string text = body("/metrics");
  for (const char* line :
       {"kvserver_requests_total{operation=\"put\",status=\"ok\"} 1\n",
        "kvserver_requests_total{operation=\"get\",status=\"not_found\"} 1\n",
        "kvserver_requests_total{operation=\"get\",status=\"other\"} 1\n",
        "kvserver_request_duration_seconds_bucket{operation=\"put\",le=\"2.56e-07\"} 0\n",
        "kvserver_request_duration_seconds_bucket{operation=\"put\",le=\"1.024e-06\"} 1\n",
        "kvserver_request_duration_seconds_bucket{operation=\"put\",le=\"+Inf\"} 1\n",
        "kvserver_request_duration_seconds_count{operation=\"put\"} 1\n",
        "kvserver_requests_waiting{transport=\"shm\",worker=\"3\"} 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  const json status = json::parse(body("/status"));
  EXPECT_EQ(status.at("operations").at("put").at("latency").at("buckets_ns"),
            json::parse("[[1024, 1]]"));
  EXPECT_EQ(status.at("operations").at("get").at("answers").at("other"), 1);
}

TEST_F(MonitorTest, EveryOperationAndStatusHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kStatuses; ++i)
    EXPECT_TRUE(names.insert(status_name(i)).second) << i;
  names.clear();
  names.insert(to_string(Opcode{}));  // "unknown"
  for (std::size_t i = 1; i < kOperations; ++i) {
    EXPECT_TRUE(names.insert(to_string(static_cast<Opcode>(i))).second) << i;
  }
  EXPECT_EQ(status_name(status_index(0)), "ok");
  for (const Code code : {Code::kBusy, Code::kIo, Code::kInternal, Code::kNotFound}) {
    EXPECT_NE(status_name(status_index(static_cast<std::uint8_t>(code))), "other");
  }
}

TEST_F(MonitorTest, OtherPathsAreNotThere) {
  for (const char* path : {"", "/x", "/metrics/", "/../status", "/status.json"}) {
    EXPECT_EQ(monitor_.answer(path).status, 404U) << path;
  }
  EXPECT_THAT(body("/"), HasSubstr("<!DOCTYPE html>"));
}

}  // namespace
}  // namespace rkv::server
