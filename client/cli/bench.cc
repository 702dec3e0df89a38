// bench: how fast this client reaches these servers, in some seconds. kvbench is for the rest:
// YCSB's workloads, many threads, distributions.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/many.h"
#include "client/cli/output.h"
#include "common/histogram.h"
#include "common/random.h"

namespace rkv::cli {

namespace {

constexpr std::size_t kAtOnce = 64;  // operations of a pipelined call
// When kvclient is killed, its keys expire. It is longer than four measurements (--time).
constexpr std::chrono::hours kTimeToLive{1};

// One line of the table.
struct Figure {
  const char* name;
  std::uint64_t operations = 0;
  double seconds = 0;
  double reads = 0;      // RDMA READs, of GETs only
  Histogram nanos = {};  // of calls
  bool is_pipelined = false;
};

class Bench {
 public:
  Bench(Cluster& client, const Command& command)
      : client_(client),
        time_(command.interval),
        value_(command.value_bytes, 'v'),
        expires_at_ms_(wall_clock_ms() +
                       static_cast<std::uint64_t>(std::chrono::milliseconds(kTimeToLive).count())) {
    keys_.reserve(command.keys);
    for (std::uint64_t i = 0; i < command.keys; ++i)
      keys_.push_back(fmt::format("kvclient-bench:{}:{}", getpid(), i));
  }

  // Stores the keys. The first error ends it, as in all below.
  Status load() { return put_all(value_, expires_at_ms_); }
  // A key whose time has passed is gone at once.
  void remove() {
    keys_.resize(stored_);
    (void)put_all({}, 1);
  }

  Status put() {
    return measure("put", false, [this] {
      const PutOptions options{.expires_at_ms = expires_at_ms_};
      return done(client_.put_with(any_key(), value_, options));
    });
  }
  Status get() {
    return measure("get", false, [this] { return done(client_.get(any_key())); });
  }
  Status put_many() {
    return measure("put, pipelined", true, [this] {
      std::array<KeyValue, kAtOnce> items;
      for (KeyValue& item : items)
        item = {.key = any_key(), .value = value_, .expires_at_ms = expires_at_ms_};
      return put_each(items);
    });
  }
  Status get_many() {
    return measure("get, pipelined", true, [this] {
      std::array<std::string_view, kAtOnce> keys;
      for (std::string_view& key : keys)
        key = any_key();
      Status all;
      client_.multi_get_into(keys, [&](std::size_t, const Result<ValueView>& got) {
        if (!got) all = std::unexpected(got.error());
      });
      return all;
    });
  }

  const std::vector<Figure>& figures() const { return figures_; }

 private:
  std::string_view any_key() { return keys_[random_.below(keys_.size())]; }
  static Status done(const auto& result) {
    return result ? Status() : Status(std::unexpected(result.error()));
  }
  Status put_each(std::span<const KeyValue> items) {
    Status all;
    client_.multi_put_each(items, [&](std::size_t, const Result<std::uint64_t>& version) {
      if (!version) all = std::unexpected(version.error());
    });
    return all;
  }
  Status put_all(std::string_view value, std::uint64_t expires_at_ms) {
    std::vector<KeyValue> items;
    Status all;
    for (std::size_t i = 0; i < keys_.size() && all; ++i) {
      items.push_back({.key = keys_[i], .value = value, .expires_at_ms = expires_at_ms});
      if (items.size() < kBatchRecords && i + 1 < keys_.size()) continue;
      all = put_each(items);
      stored_ = std::max(stored_, i + 1);
      items.clear();
    }
    return all;
  }
  // Calls `once` until the time is over.
  template <class Once>
  Status measure(const char* name, bool is_pipelined, Once once) {
    Figure figure{.name = name, .is_pipelined = is_pipelined};
    const std::uint64_t reads = client_.stats().rdma_reads;
    const Nanos start = clock_.now();
    const Nanos end = start + std::chrono::nanoseconds(time_).count();
    Nanos before = start;
    while (before < end) {
      RKV_RETURN_IF_ERROR(once());
      const Nanos after = clock_.now();
      figure.nanos.record(static_cast<std::uint64_t>(after - before));
      figure.operations += is_pipelined ? kAtOnce : 1;
      before = after;
    }
    figure.seconds = seconds_between(start, before);
    figure.reads = static_cast<double>(client_.stats().rdma_reads - reads) /
                   static_cast<double>(figure.operations);
    figures_.push_back(std::move(figure));
    return {};
  }

  Cluster& client_;
  const std::chrono::milliseconds time_;
  const std::string value_;
  const std::uint64_t expires_at_ms_;
  std::vector<std::string> keys_;
  std::size_t stored_ = 0;  // of the keys, at most
  std::vector<Figure> figures_;
  Random random_{1};
  SteadyClock clock_;
};

double us(std::uint64_t nanos) {
  return static_cast<double>(nanos) / 1000;
}

void print_table(const Bench& bench, const Cluster& client, const Command& command) {
  print_raw(fmt::format("transport {}; {} records of {} bytes; one thread\n", client.describe(),
                        command.keys, command.value_bytes));
  print_raw(fmt::format("{:16}{:>12}{:>10}{:>10}{:>10}{:>12}\n", "operation", "per second",
                        "p50 us", "p99 us", "max us", "READs each"));
  for (const Figure& figure : bench.figures()) {
    std::string line = fmt::format("{:16}{:>12.0f}", figure.name,
                                   static_cast<double>(figure.operations) / figure.seconds);
    if (figure.is_pipelined) {
      line += fmt::format("{:>30}", "");
    } else {
      line += fmt::format("{:>10.1f}{:>10.1f}{:>10.1f}", us(figure.nanos.percentile(50)),
                          us(figure.nanos.percentile(99)), us(figure.nanos.max()));
    }
    print_raw(line + fmt::format("{:>12.2f}\n", figure.reads));
  }
}

void print_as_json(const Bench& bench, const Cluster& client, const Command& command) {
  Json figures = Json::array();
  for (const Figure& figure : bench.figures()) {
    Json object{{"operation", figure.name},
                {"per_second", static_cast<double>(figure.operations) / figure.seconds},
                {"operations", figure.operations}};
    if (!figure.is_pipelined) {
      object["p50_us"] = us(figure.nanos.percentile(50));
      object["p99_us"] = us(figure.nanos.percentile(99));
      object["max_us"] = us(figure.nanos.max());
    }
    object["rdma_reads_each"] = figure.reads;
    figures.push_back(std::move(object));
  }
  print_json(Json{{"transport", client.describe()},
                  {"records", command.keys},
                  {"value_bytes", command.value_bytes},
                  {"at_once", kAtOnce},
                  {"figures", std::move(figures)}});
}

ExitCode tell(const Error& error, const Cluster& client) {
  if (error.code != Code::kNotFound) return fail_with(error, client);
  complain("the keys of the benchmark have expired: is this host's clock right?");
  return kFailed;
}

}  // namespace

ExitCode run_bench(Cluster& client, const Job& job) {
  const Command& command = job.command;
  Bench bench(client, command);
  Status all = bench.load();
  for (auto part : {&Bench::put, &Bench::put_many, &Bench::get, &Bench::get_many})
    if (all) all = (bench.*part)();
  const ExitCode code = all ? kDone : tell(all.error(), client);
  if (code != kNoServer) bench.remove();
  if (code != kDone) return code;
  if (command.globals.json) {
    print_as_json(bench, client, command);
  } else {
    print_table(bench, client, command);
  }
  return kDone;
}

}  // namespace rkv::cli
