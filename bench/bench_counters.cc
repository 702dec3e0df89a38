// bench_counters: the cost of changing a counter; see README.md.
//
//   request    one request at a time, which the server carries out
//   atomic     one RDMA atomic at a time
//   pipelined  many RDMA atomics in flight
//   packed     many additions to counters without cells, one by one and in one call
//
// Needs a running kvserver; the last phase needs one without cells (--counter-cells 0). Prints one
// JSON object. Exit status: see program.h.
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/program.h"

namespace rkv::bench {
namespace {

OneSidedCounter opened(Client& client) {
  auto counter = value_or_give_up("open_counter", client.open_counter("counter"));
  if (!counter.is_one_sided()) throw std::runtime_error("the server has no cell for the counter");
  return counter;
}

Client connect(const Arguments& given) {
  ClientOptions options = given.client_options();
  options.reads_in_flight = static_cast<std::uint32_t>(given["depth"]);
  return given.connect(options);
}

template <class Add>
json one_by_one(const Arguments& given, Add add) {
  Histogram nanoseconds;
  for (std::uint64_t i = 0; i < given["additions"]; ++i) {
    const Result<Counter> counted = timed(nanoseconds, add);
    if (!counted) give_up("incr", counted.error());
  }
  return percentiles(nanoseconds);
}

// Runs `add` (adds 1 to the counter) --additions times.
template <class Add>
json checked(const Arguments& given, Client& client, OneSidedCounter& counter, Add add) {
  const auto number = [&] {
    return value_or_give_up("get_counter", client.get_counter(counter)).number;
  };
  const std::int64_t before = number();
  json figures = add();
  if (number() - before != static_cast<std::int64_t>(given["additions"]))
    throw std::runtime_error("the counter does not show the additions");
  figures["requests"] = client.stats().two_sided_requests;
  return figures;
}

json request(const Arguments& given) {
  Client client = connect(given);
  return one_by_one(given, [&] { return client.incr("plain"); });
}

json atomic(const Arguments& given) {
  Client client = connect(given);
  OneSidedCounter counter = opened(client);
  return checked(given, client, counter,
                 [&] { return one_by_one(given, [&] { return client.incr(counter); }); });
}

json all_at_once(Client& client, std::span<const CounterAddition> additions) {
  const auto begin = Clock::now();
  const auto results = client.multi_incr(additions);
  const double seconds = seconds_since(begin);
  for (const auto& result : results) {
    if (!result) give_up("multi_incr", result.error());
  }
  return {{"per_s", static_cast<double>(additions.size()) / seconds}};
}

json pipelined(const Arguments& given) {
  Client client = connect(given);
  OneSidedCounter counter = opened(client);
  const std::vector<CounterAddition> additions(given["additions"], {.counter = &counter});
  return checked(given, client, counter, [&] { return all_at_once(client, additions); });
}

json packed(const Arguments& given) {
  constexpr std::size_t kCounters = 64;
  Client client = connect(given);
  std::vector<OneSidedCounter> counters;
  while (counters.size() < kCounters) {
    counters.push_back(value_or_give_up(
        "open_counter", client.open_counter("packed" + std::to_string(counters.size()))));
    if (counters.back().is_one_sided())
      throw std::runtime_error("the server has cells: start it with --counter-cells 0");
  }
  std::vector<CounterAddition> additions(given["additions"]);
  for (std::size_t i = 0; i < additions.size(); ++i)
    additions[i].counter = &counters[i % kCounters];
  const auto begin = Clock::now();
  for (const CounterAddition& one : additions) {
    if (const auto added = client.incr(*one.counter, one.summand); !added)
      give_up("incr", added.error());
  }
  const double seconds = seconds_since(begin);
  const std::uint64_t requests = client.stats().two_sided_requests;
  json figures = all_at_once(client, additions);
  figures["requests"] = client.stats().two_sided_requests - requests;
  figures["one_by_one_per_s"] = static_cast<double>(additions.size()) / seconds;
  return figures;
}

Program program() {
  return {
      .name = "bench_counters",
      .purpose = "Cost of changing a counter.",
      .flags = {{"depth", "atomics in flight", 32}, {"additions", "additions to measure", 5000}},
      .phases = {
          {"request", request}, {"atomic", atomic}, {"pipelined", pipelined}, {"packed", packed}}};
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(argc, argv, rkv::bench::program());
}
