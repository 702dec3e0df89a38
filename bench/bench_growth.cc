// bench_growth: what a client sees of a store that fills and grows; see README.md.
//
//   loads     READs a GET, hit and miss, with the index filled to 50, 75 and 90 % of its slots
//   doubling  latency of GETs while nobody writes, while others overwrite, and while the number of
//             keys doubles
//   mixed     GETs/s alone, and with one PUT for nine GETs
//
// Against a running, empty kvserver. Prints one JSON object. Exit status as bench_get.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cxxopts.hpp>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/program.h"
#include "common/histogram.h"
#include "common/random.h"

namespace rkv::bench {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

struct Settings {
  std::string server;
  std::string phase;
  std::string transport;
  std::uint64_t keys = 0;
  std::uint64_t gets = 0;
};

std::string key_of(std::uint64_t number) {
  return fmt::format("user{:012}", number);
}

class Store {
 public:
  explicit Store(const Settings& settings) : settings_(settings) {}

  Client open(std::size_t cache_bytes = ClientOptions{}.cache_bytes) const {
    ClientOptions options{.server = settings_.server, .name = "bench_growth"};
    options.cache_bytes = cache_bytes;
    options.timeout = std::chrono::minutes(5);
    return connect(options, settings_.transport);
  }

  // Keys first..first+count-1, new ones or again.
  static void put(Client& client, std::uint64_t first, std::uint64_t count) {
    std::vector<std::string> keys;
    for (std::uint64_t i = 0; i < count; ++i)
      keys.push_back(key_of(first + i));
    const std::string value(100, 'v');
    std::vector<KeyValue> items;
    for (const std::string& key : keys)
      items.push_back({.key = key, .value = value});
    for (const auto& done : client.multi_put(items)) {
      if (!done) give_up("put", done.error());
    }
  }

  static json stats(Client& client) {
    const auto text = client.server_stats();
    if (!text) give_up("stats", text.error());
    return json::parse(*text);
  }

 private:
  const Settings& settings_;
};

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

json loads(const Settings& settings) {
  const Store store(settings);
  Client writer = store.open(0);
  Store::put(writer, 0, settings.keys);
  json result = json::array();
  std::uint64_t keys = settings.keys;
  double load = 1;
  const auto fill = [&](double least) {
    for (;;) {
      const json stats = Store::stats(writer);
      load = static_cast<double>(stats["records"]) / static_cast<double>(stats["index_slots"]);
      if (load >= least) return;
      const std::uint64_t step = 1'000;
      Store::put(writer, keys, step);
      keys += step;
    }
  };
  for (const double wanted : {0.5, 0.75, 0.9}) {
    fill(wanted);
    Client cold = store.open(0);
    Client warm = store.open();
    const auto hit = [&](std::uint64_t drawn) { return key_of(drawn % keys); };
    const auto miss = [](std::uint64_t drawn) { return fmt::format("absent{:016x}", drawn); };
    for (std::uint64_t i = 0; i < keys; ++i)
      (void)warm.get(key_of(i));
    result.push_back({{"load", load},
                      {"keys", keys},
                      {"cold", measure_reads(cold, settings.gets, hit, true)},
                      {"warm", measure_reads(warm, settings.gets, hit, true)},
                      {"miss", measure_reads(cold, settings.gets, miss, false)}});
  }
  return result;
}

// ---------------------------------------------------------------------------------- doubling

// GETs of old keys while `others` works; until it has finished.
json latency_while(const Store& store, std::uint64_t old_keys,
                   const std::function<void()>& others) {
  Client client = store.open();
  for (std::uint64_t i = 0; i < old_keys; ++i)
    (void)client.get(key_of(i));
  std::atomic<bool> over{false};
  std::thread working([&] {
    others();
    over = true;
  });
  Histogram nanoseconds;
  Random random(1);
  std::uint64_t failed = 0;
  while (!over.load(std::memory_order_relaxed)) {
    const std::string key = key_of(random.below(old_keys));
    const auto begin = Clock::now();
    const auto got = client.get(key);
    nanoseconds.record(static_cast<std::uint64_t>((Clock::now() - begin).count()));
    failed += got ? 0 : 1;
  }
  working.join();
  return {{"gets", nanoseconds.count()},
          {"failed", failed},
          {"p50_us", static_cast<double>(nanoseconds.percentile(50)) / 1e3},
          {"p99_us", static_cast<double>(nanoseconds.percentile(99)) / 1e3},
          {"p999_us", static_cast<double>(nanoseconds.percentile(99.9)) / 1e3}};
}

// Batches with pauses, so that the machine's few processors are not what is measured.
void put_slowly(Client& writer, std::uint64_t first, std::uint64_t count) {
  constexpr std::uint64_t kBatch = 50;
  for (std::uint64_t i = 0; i < count; i += kBatch) {
    Store::put(writer, first + i, kBatch);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

json doubling(const Settings& settings) {
  const Store store(settings);
  Client writer = store.open(0);
  Store::put(writer, 0, settings.keys);
  const std::uint64_t read_keys = std::min<std::uint64_t>(settings.keys, 20'000);
  const auto splits = [&] { return Store::stats(writer)["index_splits"].get<std::uint64_t>(); };
  json result;
  result["quiet"] =
      latency_while(store, read_keys, [] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
  result["overwriting"] =
      latency_while(store, read_keys, [&] { put_slowly(writer, 0, settings.keys); });
  const std::uint64_t before = splits();
  result["doubling"] =
      latency_while(store, read_keys, [&] { put_slowly(writer, settings.keys, settings.keys); });
  result["splits"] = splits() - before;
  return result;
}

// ------------------------------------------------------------------------------------- mixed

json mixed(const Settings& settings) {
  const Store store(settings);
  Client client = store.open();
  Store::put(client, 0, settings.keys);
  for (std::uint64_t i = 0; i < settings.keys; ++i)
    (void)client.get(key_of(i));
  const std::string value(100, 'w');
  const auto run = [&](bool puts) {
    Random random(1);
    std::chrono::nanoseconds in_gets{};
    for (std::uint64_t i = 0; i < settings.gets; i += 9) {
      const auto begin = Clock::now();
      for (int n = 0; n < 9; ++n) {
        if (const auto got = client.get(key_of(random.below(settings.keys))); !got)
          give_up("get", got.error());
      }
      in_gets += Clock::now() - begin;
      if (!puts) continue;
      if (const auto put = client.put(key_of(random.below(settings.keys)), value); !put)
        give_up("put", put.error());
    }
    return static_cast<double>(settings.gets) * 1e9 / static_cast<double>(in_gets.count());
  };
  const double alone = run(false);
  return {{"alone_gets_per_s", alone}, {"mixed_gets_per_s", run(true)}};
}

json run(const Settings& settings) {
  if (settings.phase == "loads") return loads(settings);
  if (settings.phase == "doubling") return doubling(settings);
  return mixed(settings);
}

Settings parse(int argc, char** argv) {
  cxxopts::Options options("bench_growth", "What a client sees of a store that fills and grows.");
  options.add_options()                                                                          //
      ("server", "HOST:PORT", cxxopts::value<std::string>()->default_value("127.0.0.1:7471"))    //
      ("phase", "loads, doubling or mixed", cxxopts::value<std::string>())                       //
      ("transport", "auto, verbs or shm", cxxopts::value<std::string>()->default_value("auto"))  //
      ("keys", "keys at the start", cxxopts::value<std::uint64_t>()->default_value("100000"))    //
      ("gets", "operations to measure", cxxopts::value<std::uint64_t>()->default_value("50000"));
  const auto given = options.parse(argc, argv);
  Settings settings{.server = given["server"].as<std::string>(),
                    .phase = given["phase"].as<std::string>(),
                    .transport = given["transport"].as<std::string>(),
                    .keys = given["keys"].as<std::uint64_t>(),
                    .gets = given["gets"].as<std::uint64_t>()};
  constexpr std::string_view kPhases[] = {"loads", "doubling", "mixed"};
  if (std::ranges::find(kPhases, settings.phase) == std::end(kPhases) || settings.keys == 0 ||
      settings.gets == 0) {
    throw cxxopts::exceptions::specification(
        "--phase is loads, doubling or mixed; --keys and --gets are at least 1");
  }
  return settings;
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program("bench_growth", argc, argv, rkv::bench::parse, rkv::bench::run);
}
