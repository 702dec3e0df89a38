// bench_growth: a client's view of a store that fills and grows; see README.md.
//
//   loads     READs per GET, hit and miss, with the index filled to 25 to 90 % of its slots
//   doubling  latency of GETs while nothing is written, while others overwrite, and while
//             the number of keys doubles
//   memory    bytes of index per key (groups alone, and all memory of the index), averaged
//             while the number of keys doubles; bytes of memory per record beyond key and value
//   mixed     GETs/s alone, and with one PUT for nine GETs
//
// Needs a running, empty kvserver. Prints one JSON object. Exit status: see program.h.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/program.h"
#include "common/layout.h"
#include "common/random.h"

namespace rkv::bench {
namespace {

Client without_cache(const Arguments& given) {
  ClientOptions options = given.client_options();
  options.cache_bytes = 0;
  return given.connect(options);
}

// Puts keys first..first+count-1, new or existing; values of 100 bytes or of a size drawn by
// `size`.
void put(
    Client& client, std::uint64_t first, std::uint64_t count,
    const std::function<std::size_t()>& size = [] { return 100; }) {
  std::vector<std::string> keys;
  for (std::uint64_t i = 0; i < count; ++i)
    keys.push_back(key_of(first + i));
  const std::string value(kMaxInlineBytes, 'v');
  std::vector<KeyValue> items;
  for (const std::string& key : keys)
    items.push_back({.key = key, .value = std::string_view(value).substr(0, size())});
  put_all(client, items);
}

// ------------------------------------------------------------------------------------- loads

// READs and requests per GET of `count` keys drawn from `name`.
json measure_reads(Client& client, std::uint64_t count,
                   const std::function<std::string(std::uint64_t)>& name, bool there) {
  const ClientStats before = client.stats();
  Random random(1);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto got = client.get(name(random()));
    if (got.has_value() != there) throw std::runtime_error("a GET has the wrong answer");
  }
  const ClientStats after = client.stats();
  const auto gets = static_cast<double>(count);
  return {{"reads", static_cast<double>(after.rdma_reads - before.rdma_reads) / gets},
          {"asked", static_cast<double>(after.two_sided_gets - before.two_sided_gets) / gets}};
}

json loads(const Arguments& given) {
  Client writer = without_cache(given);
  put(writer, 0, given["keys"]);
  json result = json::array();
  std::uint64_t keys = given["keys"];
  double load = 1;
  const auto fill = [&](double least) {
    for (;;) {
      const json stats = server_stats(writer);
      load = static_cast<double>(stats["records"]) / static_cast<double>(stats["index_slots"]);
      if (load >= least) return;
      const std::uint64_t step = 1'000;
      put(writer, keys, step);
      keys += step;
    }
  };
  for (const double wanted : {0.25, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9}) {
    fill(wanted);
    Client cold = without_cache(given);
    Client warm = given.connect();
    const auto hit = [&](std::uint64_t drawn) { return key_of(drawn % keys); };
    const auto miss = [](std::uint64_t drawn) { return fmt::format("absent{:016x}", drawn); };
    for (std::uint64_t i = 0; i < keys; ++i)
      (void)warm.get(key_of(i));
    result.push_back({{"wanted", wanted},
                      {"load", load},
                      {"keys", keys},
                      {"cold", measure_reads(cold, given["gets"], hit, true)},
                      {"warm", measure_reads(warm, given["gets"], hit, true)},
                      {"miss", measure_reads(cold, given["gets"], miss, false)},
                      {"warm_miss", measure_reads(warm, given["gets"], miss, false)}});
  }
  return result;
}

// ---------------------------------------------------------------------------------- doubling

// Latency of GETs of old keys while `others` runs; at least one GET.
json latency_while(const Arguments& given, std::uint64_t old_keys,
                   const std::function<void()>& others) {
  Client client = given.connect();
  for (std::uint64_t i = 0; i < old_keys; ++i)
    (void)client.get(key_of(i));
  std::atomic<bool> over{false};
  std::thread working([&] {
    others();
    over = true;
  });
  constexpr double kWindowSeconds = 0.1;
  Histogram all;
  json windows = json::array();
  Random random(1);
  std::uint64_t failed = 0;
  const auto begin = Clock::now();
  do {
    Histogram window;
    const double until = seconds_since(begin) + kWindowSeconds;
    do {
      const std::string key = key_of(random.below(old_keys));
      const auto got = timed(window, [&] { return client.get(key); });
      failed += got ? 0 : 1;
    } while (!over.load(std::memory_order_relaxed) && seconds_since(begin) < until);
    all.merge(window);
    windows.push_back({{"seconds", seconds_since(begin)},
                       {"p50_us", static_cast<double>(window.percentile(50)) / 1e3},
                       {"p99_us", static_cast<double>(window.percentile(99)) / 1e3}});
  } while (!over.load(std::memory_order_relaxed));
  working.join();
  json result = percentiles(all);
  result.update({{"gets", all.count()}, {"failed", failed}, {"windows", windows}});
  return result;
}

// Puts batches with pauses, so that the few processors of the machine do not limit the result.
void put_slowly(Client& writer, std::uint64_t first, std::uint64_t count) {
  constexpr std::uint64_t kBatch = 50;
  for (std::uint64_t i = 0; i < count; i += kBatch) {
    put(writer, first + i, kBatch);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

json doubling(const Arguments& given) {
  Client writer = without_cache(given);
  put(writer, 0, given["keys"]);
  const std::uint64_t read_keys = std::min<std::uint64_t>(given["keys"], 20'000);
  const auto splits = [&] { return server_stats(writer)["index_splits"].get<std::uint64_t>(); };
  json result;
  result["quiet"] =
      latency_while(given, read_keys, [] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
  result["overwriting"] =
      latency_while(given, read_keys, [&] { put_slowly(writer, 0, given["keys"]); });
  const std::uint64_t before = splits();
  result["doubling"] =
      latency_while(given, read_keys, [&] { put_slowly(writer, given["keys"], given["keys"]); });
  result["splits"] = splits() - before;
  return result;
}

// ------------------------------------------------------------------------------------ memory

json memory(const Arguments& given) {
  constexpr std::uint64_t kSteps = 100;
  Client writer = without_cache(given);
  Random random(1);
  std::uint64_t value_bytes = 0;
  const std::uint64_t least = given["least-bytes"];
  const std::uint64_t most = given["most-bytes"];
  if (most < least || most > kMaxInlineBytes)
    throw std::runtime_error("--least-bytes must not exceed --most-bytes, which is at most 64 KiB");
  const auto size = [&] {
    const std::size_t bytes = least + random.below(most - least + 1);
    value_bytes += bytes;
    return bytes;
  };
  std::uint64_t keys = given["keys"];
  const std::uint64_t step = (keys + kSteps - 1) / kSteps;
  put(writer, 0, keys, size);
  double groups = 0;
  double allocated = 0;
  json stats;
  for (std::uint64_t i = 0; i < kSteps; ++i, keys += step) {
    put(writer, keys, step, size);
    stats = server_stats(writer);
    const auto number = [&](const char* name) { return stats[name].get<double>(); };
    constexpr double kSlotBytes = static_cast<double>(kGroupBytes) / kSlotsPerGroup;
    groups += number("index_slots") * kSlotBytes / number("records");
    // All memory except records and cells of counters: groups, space for more groups, directory,
    // root.
    allocated += (number("memory_bytes") - number("data_bytes") -
                  number("counter_cells") * sizeof(std::uint64_t)) /
                 number("records");
  }
  const double in_use = stats["data_bytes_used"].get<double>() - static_cast<double>(value_bytes);
  return {{"keys", keys},
          {"records", stats["records"]},
          {"group_bytes_per_key", groups / kSteps},
          {"index_bytes_per_key", allocated / kSteps},
          {"record_overhead_bytes",
           in_use / static_cast<double>(keys) - static_cast<double>(key_of(0).size())}};
}

// ------------------------------------------------------------------------------------- mixed

json mixed(const Arguments& given) {
  const std::uint64_t keys = given["keys"];
  const std::uint64_t gets = given["gets"];
  Client client = given.connect();
  put(client, 0, keys);
  for (std::uint64_t i = 0; i < keys; ++i)
    (void)client.get(key_of(i));
  const std::string value(100, 'w');
  const auto run = [&](bool puts) {
    Random random(1);
    std::chrono::nanoseconds in_gets{};
    for (std::uint64_t i = 0; i < gets; i += 9) {
      const auto begin = Clock::now();
      for (int n = 0; n < 9; ++n) {
        if (const auto got = client.get(key_of(random.below(keys))); !got)
          give_up("get", got.error());
      }
      in_gets += Clock::now() - begin;
      if (!puts) continue;
      if (const auto put = client.put(key_of(random.below(keys)), value); !put)
        give_up("put", put.error());
    }
    return static_cast<double>(gets) * 1e9 / static_cast<double>(in_gets.count());
  };
  const double alone = run(false);
  return {{"alone_gets_per_s", alone}, {"mixed_gets_per_s", run(true)}};
}

Program program() {
  return {
      .name = "bench_growth",
      .purpose = "GETs while the store fills and grows.",
      .flags = {{"keys", "records at the start", 100'000},
                {"gets", "GETs to measure", 50'000},
                {"least-bytes", "least bytes of a value, for memory", 100},
                {"most-bytes", "most bytes of a value, for memory", 100}},
      .phases = {{"loads", loads}, {"doubling", doubling}, {"memory", memory}, {"mixed", mixed}}};
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(argc, argv, rkv::bench::program());
}
