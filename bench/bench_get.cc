// bench_get: one phase of the GET benchmark against a running kvserver; see README.md.
//
//   load       stores the keys
//   warm       blocking GETs of keys whose index groups are cached
//   cold       blocking GETs without a cache
//   pipelined  as many GETs as --depth in flight, groups cached
//   threads    as warm, --threads clients at once, for their rate together
//   copy       no server: copies of as many bytes as a warm GET READs, from as much shared memory
//   as
//              the records take, each from another place
//
// Prints one JSON object on stdout. Exit status 0, 2 for usage, 3 when the server could not be
// reached, 4 for anything else.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <cxxopts.hpp>
#include <future>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/histogram.h"
#include "common/layout.h"
#include "common/random.h"
#include "rkv/client.h"

namespace rkv {
namespace {

struct Settings {
  std::string server;
  std::string phase;
  std::uint64_t gets = 0;
  std::uint64_t keys = 0;
  std::size_t value_bytes = 0;
  std::uint32_t depth = 0;
  std::uint32_t threads = 0;
  std::string poll;
  Transport transport = Transport::kAuto;
};

class Problem {
 public:
  Problem(const char* what, const Error& error)
      : text_(fmt::format("{}: {}", what, to_string(error))) {}
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string key_of(std::uint64_t number) {
  return fmt::format("user{:012}", number);
}

Client open(const Settings& settings, std::size_t cache_bytes) {
  ClientOptions options{.server = settings.server, .name = "bench_get"};
  options.transport = settings.transport;
  options.cache_bytes = cache_bytes;
  options.reads_in_flight = settings.depth;
  options.timeout = std::chrono::minutes(5);  // of a whole pipelined call
  options.polling = settings.poll == "busy"    ? Polling::kBusy
                    : settings.poll == "event" ? Polling::kEvent
                                               : Polling::kAdaptive;
  auto client = Client::connect(options);
  if (!client) throw Problem("connect", client.error());
  return std::move(*client);
}

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

std::uint64_t server_user_cpu_us(Client& client) {
  const auto text = client.server_stats();
  if (!text) throw Problem("stats", text.error());
  return nlohmann::json::parse(*text).at("user_cpu_us").get<std::uint64_t>();
}

// Fetches each key once, many at a time, so that every group is in the cache.
void warm_up(Client& client, const std::vector<std::string_view>& keys) {
  Error last{};
  bool failed = false;
  client.multi_get_into(keys, [&](std::size_t, const Result<ValueView>& got) {
    if (got) return;
    failed = true;
    last = got.error();
  });
  if (failed) throw Problem("warm-up", last);
}

void load(const Settings& settings, const std::vector<std::string_view>& keys) {
  Client client = open(settings, 0);
  const std::string value(settings.value_bytes, 'v');
  std::vector<KeyValue> items;
  items.reserve(keys.size());
  for (const std::string_view key : keys)
    items.push_back({.key = key, .value = value});
  for (const auto& put : client.multi_put(items)) {
    if (!put) throw Problem("put", put.error());
  }
}

// What one warm GET READs: the comparison uses as many bytes.
std::size_t record_read_bytes(const Settings& settings) {
  return record_units(record_bytes(key_of(0).size(), settings.value_bytes)) * kUnitBytes;
}

nlohmann::json percentiles(const Histogram& latency_ns) {
  return {{"p50_us", static_cast<double>(latency_ns.percentile(50)) / 1e3},
          {"p99_us", static_cast<double>(latency_ns.percentile(99)) / 1e3}};
}

// A GET of each of `keys`, drawn at random, `settings.gets` times.
void get_at_random(const Settings& settings, Client& client,
                   const std::vector<std::string_view>& keys, std::uint64_t seed,
                   Histogram& latency_ns) {
  Random random(seed);
  std::vector<std::byte> value(kMaxInlineBytes);
  for (std::uint64_t i = 0; i < settings.gets; ++i) {
    const std::string_view key = keys[random.below(keys.size())];
    const std::uint64_t start = now_ns();
    const auto got = client.get_into(key, value);
    latency_ns.record(now_ns() - start);
    if (!got || got->bytes != settings.value_bytes) {
      throw Problem("get", got ? Error{.text = "a value of another length"} : got.error());
    }
  }
}

nlohmann::json one_by_one(const Settings& settings, const std::vector<std::string_view>& keys,
                          bool warm) {
  Client client = open(settings, warm ? ClientOptions{}.cache_bytes : 0);
  if (warm) warm_up(client, keys);
  Histogram latency_ns;
  const ClientStats before = client.stats();
  const std::uint64_t cpu_before = server_user_cpu_us(client);
  get_at_random(settings, client, keys, 1, latency_ns);
  const std::uint64_t cpu_us = server_user_cpu_us(client) - cpu_before;
  const ClientStats after = client.stats();
  const auto gets = static_cast<double>(settings.gets);
  nlohmann::json result = percentiles(latency_ns);
  result.update(
      {{"reads_per_get", static_cast<double>(after.rdma_reads - before.rdma_reads) / gets},
       {"retries", after.retries - before.retries},
       {"tears_detected", after.tears_detected - before.tears_detected},
       {"two_sided_gets", after.two_sided_gets - before.two_sided_gets},
       {"server_user_cpu_ns_per_get", static_cast<double>(cpu_us) * 1e3 / gets}});
  return result;
}

nlohmann::json threads(const Settings& settings, const std::vector<std::string_view>& keys) {
  std::vector<Client> clients;
  clients.reserve(settings.threads);
  for (std::uint32_t i = 0; i < settings.threads; ++i) {
    clients.push_back(open(settings, ClientOptions{}.cache_bytes));
    warm_up(clients.back(), keys);
  }
  std::vector<std::future<void>> running;
  running.reserve(settings.threads);
  const std::uint64_t start = now_ns();
  for (std::uint32_t i = 0; i < settings.threads; ++i) {
    running.push_back(std::async(std::launch::async, [&, i] {
      Histogram latency_ns;
      get_at_random(settings, clients[i], keys, i + 1, latency_ns);
    }));
  }
  for (auto& each : running)
    each.get();
  const double seconds = static_cast<double>(now_ns() - start) / 1e9;
  const auto gets = static_cast<double>(settings.gets) * settings.threads;
  return {{"gets_per_s", gets / seconds}};
}

nlohmann::json copy(const Settings& settings) {
  const std::size_t bytes = record_read_bytes(settings);
  const std::size_t span = settings.keys * bytes;
  const int fd = memfd_create("bench_get", MFD_CLOEXEC);
  if (span == 0 || fd < 0 || ftruncate(fd, static_cast<off_t>(span)) != 0) throw std::bad_alloc();
  void* memory = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  std::memset(memory, 1, span);
  const auto* records = static_cast<const std::byte*>(memory);
  std::vector<std::byte> to(bytes);
  Random random(1);
  Histogram latency_ns;
  for (std::uint64_t i = 0; i < settings.gets; ++i) {
    const std::byte* from = records + random.below(settings.keys) * bytes;
    const std::uint64_t start = now_ns();
    std::memcpy(to.data(), from, bytes);
    asm volatile("" : : "r"(to.data()) : "memory");  // the copy is wanted
    latency_ns.record(now_ns() - start);
  }
  munmap(memory, span);
  close(fd);
  return percentiles(latency_ns);
}

nlohmann::json pipelined(const Settings& settings, const std::vector<std::string_view>& keys) {
  Client client = open(settings, ClientOptions{}.cache_bytes);
  warm_up(client, keys);
  Random random(1);
  std::vector<std::string_view> wanted;
  wanted.reserve(settings.gets);
  for (std::uint64_t i = 0; i < settings.gets; ++i)
    wanted.push_back(keys[random.below(keys.size())]);
  const ClientStats before = client.stats();
  const std::uint64_t cpu_before = server_user_cpu_us(client);
  const std::uint64_t start = now_ns();
  warm_up(client, wanted);
  const double seconds = static_cast<double>(now_ns() - start) / 1e9;
  const std::uint64_t cpu_us = server_user_cpu_us(client) - cpu_before;
  const ClientStats after = client.stats();
  const auto gets = static_cast<double>(settings.gets);
  return {{"gets_per_s", gets / seconds},
          {"server_user_cpu_ns_per_get", static_cast<double>(cpu_us) * 1e3 / gets},
          {"reads_per_get", static_cast<double>(after.rdma_reads - before.rdma_reads) / gets}};
}

int run(const Settings& settings) {
  std::vector<std::string> names;
  names.reserve(settings.keys);
  for (std::uint64_t i = 0; i < settings.keys; ++i)
    names.push_back(key_of(i));
  const std::vector<std::string_view> keys(names.begin(), names.end());
  nlohmann::json result = nlohmann::json::object();
  if (settings.phase == "copy") {
    result = copy(settings);
  } else if (settings.phase == "threads") {
    result = threads(settings, keys);
  } else if (settings.phase == "load") {
    load(settings, keys);
  } else if (settings.phase == "pipelined") {
    result = pipelined(settings, keys);
  } else {
    result = one_by_one(settings, keys, settings.phase == "warm");
  }
  result["record_read_bytes"] = record_read_bytes(settings);
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

Settings parse(int argc, char** argv) {
  cxxopts::Options options("bench_get", "One phase of the GET benchmark.");
  options.add_options()                                                                          //
      ("server", "HOST:PORT", cxxopts::value<std::string>()->default_value("127.0.0.1:7471"))    //
      ("phase", "load, warm, cold, pipelined, threads or copy", cxxopts::value<std::string>())   //
      ("threads", "clients at once", cxxopts::value<std::uint32_t>()->default_value("1"))        //
      ("transport", "auto, verbs or shm", cxxopts::value<std::string>()->default_value("auto"))  //
      ("gets", "GETs to measure", cxxopts::value<std::uint64_t>()->default_value("5000"))        //
      ("keys", "keys in the store", cxxopts::value<std::uint64_t>()->default_value("10000"))     //
      ("value-bytes", "size of a value", cxxopts::value<std::size_t>()->default_value("100"))    //
      ("depth", "GETs in flight", cxxopts::value<std::uint32_t>()->default_value("32"))          //
      ("poll", "adaptive, busy or event", cxxopts::value<std::string>()->default_value("adaptive"));
  const auto given = options.parse(argc, argv);
  Settings settings{.server = given["server"].as<std::string>(),
                    .phase = given["phase"].as<std::string>(),
                    .gets = given["gets"].as<std::uint64_t>(),
                    .keys = given["keys"].as<std::uint64_t>(),
                    .value_bytes = given["value-bytes"].as<std::size_t>(),
                    .depth = given["depth"].as<std::uint32_t>(),
                    .threads = given["threads"].as<std::uint32_t>(),
                    .poll = given["poll"].as<std::string>()};
  constexpr std::string_view kPhases[] = {"load", "warm", "cold", "pipelined", "threads", "copy"};
  if (std::ranges::find(kPhases, settings.phase) == std::end(kPhases) || settings.gets == 0 ||
      settings.keys == 0 || settings.threads == 0) {
    throw cxxopts::exceptions::specification(
        "--phase is load, warm, cold, pipelined, threads or copy; --gets, --keys and --threads are "
        "at least 1");
  }
  const auto transport = given["transport"].as<std::string>();
  settings.transport = transport == "verbs" ? Transport::kVerbs
                       : transport == "shm" ? Transport::kShm
                                            : Transport::kAuto;
  return settings;
}

}  // namespace
}  // namespace rkv

int main(int argc, char** argv) {
  rkv::Settings settings;
  try {
    settings = rkv::parse(argc, argv);
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "bench_get: %s\n", wrong.what());
    return 2;
  }
  try {
    return rkv::run(settings);
  } catch (const rkv::Problem& problem) {
    std::fprintf(stderr, "bench_get: %s\n", problem.text().c_str());
    return problem.text().starts_with("connect") ? 3 : 4;
  } catch (const std::exception& other) {
    std::fprintf(stderr, "bench_get: %s\n", other.what());
    return 4;
  }
}
