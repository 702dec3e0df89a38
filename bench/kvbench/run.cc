#include "bench/kvbench/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <latch>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "bench/kvbench/hdr_log.h"
#include "bench/kvbench/status_line.h"
#include "bench/kvbench/watch.h"
#include "bench/kvbench/worker.h"
#include "client/cli/connect.h"
#include "common/standard_streams.h"
#include "common/thread.h"

namespace rkv::kvbench {

namespace {

std::unexpected<Failure> failure(ExitCode exit_code, std::string sentence) {
  return std::unexpected(Failure{.exit_code = exit_code, .sentence = std::move(sentence)});
}

std::expected<Cluster, Failure> connect(const Options& options, const ClientOptions& connection) {
  auto client = cli::connect(options.servers, connection);
  if (client) return std::move(*client);
  return failure(client.error().exit_code == cli::kUsage ? kUsage : kNoServer,
                 client.error().sentence);
}

void add(StoreCounters& sum, const StoreCounters& one) {
  sum.value_bytes_read += one.value_bytes_read;
  sum.value_bytes_written += one.value_bytes_written;
  sum.records_scanned += one.records_scanned;
  sum.update_conflicts += one.update_conflicts;
}

// Process time of servers and client so far.
struct CpuTimes {
  ProcessTime server;
  ProcessTime client;
  std::string server_stats;
  bool server_known = false;
};

// `control` null: skips the server, because the request would only run into its timeout.
CpuTimes cpu_times(Cluster* control) {
  CpuTimes times;
  times.client = ProcessTime::now();
  if (control == nullptr) return times;
  const auto texts = control->server_stats();
  auto all = nlohmann::json::array();
  for (const auto& text : texts) {
    if (!text) return times;
    auto stats = nlohmann::json::parse(*text, nullptr, false);
    if (!stats.is_object()) return times;
    times.server.user_us += stats.value("user_cpu_us", std::uint64_t{0});
    times.server.system_us += stats.value("system_cpu_us", std::uint64_t{0});
    all.push_back(std::move(stats));
  }
  times.server_stats =
      texts.size() == 1 ? *texts.front() : nlohmann::json{{"servers", std::move(all)}}.dump();
  times.server_known = true;
  return times;
}

// Reports, before the first operation, a cause that would make every operation of a kind fail.
std::optional<Failure> probe(Cluster& control, const Options& options) {
  if (options.phase != Phase::kTransactions) return std::nullopt;
  const auto& proportions = options.workload.proportions;
  if (proportions[static_cast<std::size_t>(Operation::kScan)] > 0) {
    if (const auto page = control.scan({.limit = 1}); !page) {
      return Failure{.exit_code = kPartial,
                     .sentence = fmt::format("the workload scans, but the server cannot: {}",
                                             to_string(page.error()))};
    }
  }
  const std::string first = options.workload.keys.name(options.workload.insert_start);
  const auto got = control.get(first);
  if (!got && got.error().code == Code::kNotFound) {
    complain(fmt::format("the first record, {}, is missing: was -load run?", first));
  }
  return std::nullopt;
}

// A server disconnects its clients in turn if there are more than places for them, so that a run
// with too many threads would measure that. The statistics need the role admin; without them
// nothing is said.
std::optional<Failure> place_problem(Cluster& control, std::uint32_t threads) {
  const std::uint64_t connections = std::uint64_t{threads} + 1;  // this client's as well
  for (const auto& text : control.server_stats()) {
    if (!text) continue;
    const auto stats = nlohmann::json::parse(*text, nullptr, false);
    if (!stats.is_object()) continue;
    const auto places = stats.value("max_clients", connections);
    if (places >= connections) continue;
    return Failure{
        .exit_code = kUsage,
        .sentence = fmt::format(
            "{} threads make {} connections, and the server has places for {}: use fewer "
            "-threads, or start kvserver with --max-clients {}",
            threads, connections, places, connections)};
  }
  return std::nullopt;
}

class Run {
 public:
  explicit Run(const Options& options) : options_(options), workload_(options.workload) {}

  std::optional<Failure> prepare() {
    ClientOptions control = options_.client;
    control.cache_bytes = 0;
    control.name = "kvbench control";
    auto client = connect(options_, control);
    if (!client) return client.error();
    control_.emplace(std::move(*client));
    if (auto problem = probe(*control_, options_)) return problem;
    const bool load = options_.phase == Phase::kLoad;
    total_ = load ? options_.workload.load_count : options_.workload.operation_count;
    threads_ = options_.threads;
    if (total_ != 0 && threads_ > total_) {
      threads_ = static_cast<std::uint32_t>(total_);
      complain(fmt::format("only {} threads, one per operation", threads_));
    }
    if (auto problem = place_problem(*control_, threads_)) return problem;
    for (std::uint32_t i = 0; i < threads_; ++i) {
      auto connected = connect(options_, options_.client);
      if (!connected) return connected.error();
      const std::uint64_t share = total_ / threads_ + (i < total_ % threads_ ? 1 : 0);
      workers_.push_back(
          std::make_unique<Worker>(options_, workload_, std::move(*connected), stop_, i, share));
      measured_.push_back(&workers_.back()->measurements());
    }
    if (!options_.hdr_files) return std::nullopt;
    log_.emplace(options_.hdr_path);
    return std::nullopt;
  }

  // Signals are handled only from here on. Earlier steps may block on the server and have measured
  // nothing; a signal ends them as usual.
  std::expected<Results, Failure> run() {
    auto watch = Watch::create();
    if (!watch) return failure(kPartial, to_string(watch.error()));
    watch_.emplace(std::move(*watch));
    const CpuTimes before = cpu_times(&*control_);
    if (auto problem = start()) return std::unexpected(*problem);
    watch_threads();
    join();
    const Nanos ended = clock_.now();
    show_status(ended);
    Results results = gather(before);
    results.seconds = static_cast<double>(ended - began_) / 1e9;
    return results;
  }

 private:
  // Starts all threads or none: they wait for each other before the first operation.
  std::optional<Failure> start() {
    left_ = static_cast<int>(threads_);
    ready_.emplace(static_cast<std::ptrdiff_t>(threads_) + 1);
    running_.reserve(threads_);
    try {
      for (auto& worker : workers_) {
        const std::size_t number = running_.size();
        running_.emplace_back([this, &worker, number] {
          stay(number);
          ready_->arrive_and_wait();
          worker->run();
          if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) watch_->done();
        });
      }
    } catch (const std::exception& problem) {  // std::system_error: no more threads or memory
      const std::size_t started = running_.size();
      stop_.request("");
      ready_->count_down(static_cast<std::ptrdiff_t>(threads_ + 1 - started));
      join();
      return Failure{.exit_code = kPartial,
                     .sentence = fmt::format("cannot start thread {} of {}: {}", started + 1,
                                             threads_, problem.what())};
    }
    status_.emplace(options_.label, clock_.now());
    show_status(clock_.now());  // before anything is done
    began_ = clock_.now();
    ready_->arrive_and_wait();
    return std::nullopt;
  }

  void stay(std::size_t thread) const {
    if (options_.cpus.empty()) return;
    const unsigned cpu = options_.cpus[thread % options_.cpus.size()];
    if (stay_on(cpu)) return;
    complain(fmt::format("cannot bind thread {} to processor {}", thread, cpu));
  }

  void join() {
    for (std::thread& thread : running_)
      thread.join();
  }

  void watch_threads() {
    const Nanos step = kNanosPerSecond * options_.status_interval_s;
    Nanos end = std::numeric_limits<Nanos>::max();
    if (options_.workload.max_seconds != 0) {
      end = began_ + kNanosPerSecond * static_cast<Nanos>(options_.workload.max_seconds);
    }
    Nanos next = began_ + step;
    while (true) {
      switch (watch_->wait_until(std::min(next, end))) {
        case Watch::Event::kDone:
          return;
        case Watch::Event::kSignal:
          stop_.request("stopped by a signal");
          end = std::numeric_limits<Nanos>::max();
          break;
        case Watch::Event::kTime:
          if (clock_.now() >= end) {
            stop_.request("");
            end = std::numeric_limits<Nanos>::max();
          }
          if (clock_.now() >= next) {
            show_status(next);
            next += step;
          }
      }
    }
  }

  // Prints the status line and adds a line to each histogram log.
  void show_status(Nanos now) {
    if (!options_.status && !log_) return;
    std::uint64_t done = 0;
    for (const auto& worker : workers_)
      done += worker->done();
    std::vector<Row> all = collect(measured_);
    const std::vector<Row> fresh = since(all, seen_);
    if (options_.status) status_->print(now, done, total_, fresh);
    if (log_) log_->add(fresh);
    seen_ = std::move(all);
  }

  Results gather(const CpuTimes& before) {
    Results results;
    results.why = stop_.why();
    results.threads = threads_;
    for (const auto& worker : workers_) {
      results.operations += worker->done();
      results.client += worker->stats();
      add(results.counters, worker->counters());
    }
    results.missing = total_ > results.operations ? total_ - results.operations : 0;
    if (results.why.empty() && results.missing != 0) {
      // The time is over. That is a complete end for operations; a load is complete only when all
      // records are stored.
      if (options_.phase == Phase::kLoad) {
        results.why = "maxexecutiontime ended before the load";
      } else {
        results.missing = 0;
      }
    }
    results.complete = results.why.empty();
    results.rows = collect(measured_);
    for (const Row& row : results.rows) {
      for (std::size_t i = 1; i < kOutcomes; ++i)
        results.failed += row.outcomes[i];
    }
    if (log_) results.log_problem = log_->problem();
    results.transport = control_->describe();
    const CpuTimes after = cpu_times(stop_.is_server_lost() ? nullptr : &*control_);
    results.server_stats = after.server_stats;
    if (before.server_known && after.server_known) {
      results.server_time = after.server - before.server;
    }
    results.client_time = after.client - before.client;
    return results;
  }

  const Options& options_;
  Workload workload_;
  std::optional<Watch> watch_;
  const SteadyClock clock_;
  Stop stop_;
  std::optional<Cluster> control_;
  std::uint64_t total_ = 0;  // operations; 0 = until the time is over
  std::uint32_t threads_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<const Measurements*> measured_;
  std::optional<std::latch> ready_;
  std::vector<std::thread> running_;
  std::atomic<int> left_{0};
  Nanos began_ = 0;
  std::optional<StatusLine> status_;
  std::optional<HdrLog> log_;
  std::vector<Row> seen_;  // rows at the last status line
};

}  // namespace

void complain(const std::string& sentence) {
  write_to_stderr(fmt::format("kvbench: {}\n", sentence), kReaderWaitMs);
}

std::expected<Results, Failure> run(const Options& options) {
  Run run(options);
  if (auto problem = run.prepare()) return std::unexpected(*problem);
  return run.run();
}

}  // namespace rkv::kvbench
