// bench_counters: what changing a counter costs; see README.md.
//
//   request    one after the other, each a request that the server carries out
//   atomic     one after the other, each an RDMA atomic
//   pipelined  RDMA atomics, many in flight
//
// Against a running kvserver. Prints one JSON object. Exit status as bench_get.
#include <algorithm>
#include <chrono>
#include <cxxopts.hpp>
#include <vector>

#include "bench/program.h"
#include "common/histogram.h"

namespace rkv::bench {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

struct Settings {
  ClientOptions client;
  std::string phase;
  std::string transport;
  std::uint64_t additions = 0;
};

OneSidedCounter opened(Client& client) {
  auto counter = client.open_counter("counter");
  if (!counter) give_up("open_counter", counter.error());
  if (!counter->is_one_sided()) throw std::runtime_error("the server has no cell for the counter");
  return std::move(*counter);
}

template <class Add>
json one_by_one(const Settings& settings, Add add) {
  Histogram nanoseconds;
  for (std::uint64_t i = 0; i < settings.additions; ++i) {
    const auto begin = Clock::now();
    if (const Result<Counter> counted = add(); !counted) give_up("incr", counted.error());
    nanoseconds.record(static_cast<std::uint64_t>((Clock::now() - begin).count()));
  }
  return {{"p50_us", static_cast<double>(nanoseconds.percentile(50)) / 1e3},
          {"p99_us", static_cast<double>(nanoseconds.percentile(99)) / 1e3}};
}

json pipelined(const Settings& settings, Client& client, OneSidedCounter& counter) {
  const std::vector<CounterAddition> additions(settings.additions, {.counter = &counter});
  const auto begin = Clock::now();
  const auto results = client.multi_incr(additions);
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  for (const auto& result : results) {
    if (!result) give_up("multi_incr", result.error());
  }
  return {{"per_s", static_cast<double>(settings.additions) / seconds.count()}};
}

json run(const Settings& settings) {
  Client client = connect(settings.client, settings.transport);
  if (settings.phase == "request")
    return one_by_one(settings, [&] { return client.incr("plain"); });
  OneSidedCounter counter = opened(client);
  const auto before = client.get_counter(counter);
  json figures = settings.phase == "atomic"
                     ? one_by_one(settings, [&] { return client.incr(counter); })
                     : pipelined(settings, client, counter);
  const auto after = client.get_counter(counter);
  if (!before || !after ||
      after->number - before->number != static_cast<std::int64_t>(settings.additions)) {
    throw std::runtime_error("the counter does not show what was added");
  }
  figures["requests"] = client.stats().two_sided_requests;
  return figures;
}

Settings parse(int argc, char** argv) {
  cxxopts::Options options("bench_counters", "What changing a counter costs.");
  options.add_options()                                                                          //
      ("server", "HOST:PORT", cxxopts::value<std::string>()->default_value("127.0.0.1:7471"))    //
      ("phase", "request, atomic or pipelined", cxxopts::value<std::string>())                   //
      ("transport", "auto, verbs or shm", cxxopts::value<std::string>()->default_value("auto"))  //
      ("poll", "adaptive, busy or event", cxxopts::value<std::string>()->default_value("busy"))  //
      ("depth", "atomics in flight", cxxopts::value<std::uint32_t>()->default_value("32"))       //
      ("additions", "to measure", cxxopts::value<std::uint64_t>()->default_value("5000"));
  const auto given = options.parse(argc, argv);
  const auto poll = given["poll"].as<std::string>();
  Settings settings{.client = {.server = given["server"].as<std::string>(),
                               .name = "bench_counters",
                               .reads_in_flight = given["depth"].as<std::uint32_t>()},
                    .phase = given["phase"].as<std::string>(),
                    .transport = given["transport"].as<std::string>(),
                    .additions = given["additions"].as<std::uint64_t>()};
  settings.client.timeout = std::chrono::minutes(5);
  settings.client.polling = poll == "busy"    ? Polling::kBusy
                            : poll == "event" ? Polling::kEvent
                                              : Polling::kAdaptive;
  constexpr std::string_view kPhases[] = {"request", "atomic", "pipelined"};
  if (std::ranges::find(kPhases, settings.phase) == std::end(kPhases) || settings.additions == 0) {
    throw cxxopts::exceptions::specification(
        "--phase is request, atomic or pipelined; --additions is at least 1");
  }
  return settings;
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program("bench_counters", argc, argv, rkv::bench::parse, rkv::bench::run);
}
