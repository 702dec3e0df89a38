#include "tests/history/run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>

#include "tests/history/async_worker.h"
#include "tests/history/stall_watch.h"
#include "tests/history/worker.h"
#include "tests/system/world.h"

namespace rkv::history {
namespace {

using testing_support::ScratchDirectory;
using testing_support::Server;
using testing_support::server_stat;

// Makes the index grow with the run's progress, by keys that no other operation uses.
void fill(Shared& shared) {
  constexpr std::size_t kBatch = 500;
  const std::size_t total = shared.options.threads * shared.options.operations;
  Client client = connect(shared, 1, 64);
  for (std::size_t first = 0; first < shared.options.fillers; first += kBatch) {
    while (shared.done < total * first / shared.options.fillers)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::vector<std::string> names;
    for (std::size_t i = first; i < first + kBatch; ++i)
      names.push_back(fmt::format("filler-{}", i));
    std::vector<KeyValue> items;
    for (const std::string& name : names)
      items.push_back({.key = name, .value = name});
    (void)client.multi_put(items);
  }
}

// The disturbances of the server while clients are at work.
class Trouble {
 public:
  Trouble(Shared& shared, Server& server)
      : shared_(shared), server_(server), observer_(server.client()) {}

  void run() {
    const RunOptions& options = shared_.options;
    const std::size_t total = options.threads * options.operations;
    const std::size_t acts = options.stops + 1;
    for (std::size_t act = 0; act < acts; ++act) {
      while (shared_.done < total * (act + 1) / (acts + 1))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const Nanos begin = shared_.clock.now();
      if (act == acts / 2 && options.restart) {
        restart();
      } else {
        stand_still();
      }
      longest_ = std::max(longest_, shared_.clock.now() - begin);
    }
  }
  // The longest time for which the server could not run.
  Nanos longest() const { return longest_; }
  std::uint64_t cells() { return server_stat(observer_, "counter_cells_taken"); }
  std::uint64_t splits() { return splits_ + server_stat(observer_, "index_splits"); }

 private:
  // Suspends the server until a write is unanswered, for a limited time, because there may be no
  // write: longer as long as none was, since the clients of a busy machine are slow.
  void stand_still() {
    const std::size_t before = shared_.unanswered;
    server_.process().signal(SIGSTOP);
    shared_.standing = true;
    const Nanos end = shared_.clock.now() + (before == 0 ? 1500 : 300) * kNanosPerMs;
    while (shared_.unanswered < before + 2 && shared_.clock.now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    shared_.standing = false;
    server_.process().signal(SIGCONT);
  }
  void restart() {
    splits_ += server_stat(observer_, "index_splits");
    EXPECT_EQ(server_.stop(), 0) << server_.process().output();
    server_.start();
  }

  Shared& shared_;
  Server& server_;
  Client observer_;
  std::uint64_t splits_ = 0;
  Nanos longest_ = 0;
};

void add(RunReport& report, const Worker& worker) {
  report.unanswered += worker.recorder().unanswered();
  report.clients_replaced += worker.replaced();
  report.reconnects += worker.stats().reconnects;
  report.one_sided_gets += worker.stats().one_sided_gets;
  report.tears_detected += worker.stats().tears_detected;
  report.atomics += worker.stats().atomics;
  for (const auto& [text, count] : worker.errors())
    report.unexpected.push_back(fmt::format("{} times: {}", count, text));
}

void add(RunReport& report, const AsyncWorker& worker) {
  report.async_operations += worker.recorder().history().size();
  report.cancelled += worker.cancelled();
  for (const auto& [text, count] : worker.errors())
    report.unexpected.push_back(fmt::format("{} times: {}", count, text));
}

AsyncClient connect_async(const Shared& shared) {
  auto client = AsyncClient::connect({.server = shared.address,
                                      .name = "history-async",
                                      .timeout = std::chrono::minutes(1),
                                      .transport = shared.transport});
  if (!client) {
    ADD_FAILURE() << to_string(client.error());
    std::abort();
  }
  return std::move(*client);
}

}  // namespace

RunReport run(const RunOptions& options) {
  const SteadyClock clock;
  ScratchDirectory scratch;
  Server server({"--memory", "16MiB", "--data-dir", scratch.path("data")});
  Shared shared{.options = options,
                .clock = clock,
                .address = server.address(),
                .transport = testing_support::test_transport()};
  StallWatch stalls(clock);
  Trouble trouble(shared, server);
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < options.threads; ++i) {
    workers.push_back(std::make_unique<Worker>(shared, static_cast<int>(i)));
    threads.emplace_back([&shared, worker = workers.back().get()] { worker->run(); });
  }
  AsyncClient client = connect_async(shared);
  std::vector<std::unique_ptr<AsyncWorker>> async_workers;
  for (std::size_t i = 0; i < options.async_threads; ++i) {
    async_workers.push_back(
        std::make_unique<AsyncWorker>(shared, client, static_cast<int>(options.threads + i)));
    threads.emplace_back([worker = async_workers.back().get()] { worker->run(); });
  }
  threads.emplace_back([&shared] { fill(shared); });
  trouble.run();
  for (std::thread& thread : threads)
    thread.join();
  workers.push_back(std::make_unique<Worker>(shared, recorders_of(options) - 1));
  workers.back()->look_at_everything();

  RunReport report;
  std::vector<const History*> parts;
  for (const auto& worker : workers) {
    add(report, *worker);
    parts.push_back(&worker->recorder().history());
  }
  for (const auto& worker : async_workers) {
    add(report, *worker);
    parts.push_back(&worker->recorder().history());
  }
  report.async_reconnects = client.stats().reconnects;
  report.history = merge(parts);
  // The bound on late expiry assumes that the machine runs the server's thread.
  report.limits.search.expiry_late += trouble.longest() + stalls.stop();
  report.index_splits = trouble.splits();
  report.cells = trouble.cells();
  return report;
}

}  // namespace rkv::history
