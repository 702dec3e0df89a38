// bench_get: one phase of the GET benchmark against a running kvserver; see README.md.
//
//   load            stores the keys
//   warm            blocking GETs of keys whose index groups are cached
//   cold            blocking GETs without a cache
//   pipelined       --depth GETs in flight, groups cached
//   pipelined_cold  the same without a cache
//   warm_by_pipeline  as warm, by multi_get_into() of one key a call
//   warm_of_cluster   as warm, by a Cluster of one server
//   shard           no server: the server of each key, of three servers
//   threads         as warm, with --threads clients at once; their total rate
//   connected       --threads clients that have done a GET and a PUT: memory of the server --pid
//   copy            no server: copies of as many bytes as a warm GET READs, from as much shared
//                   memory as the records take, each from another place
//
// Prints one JSON object. Exit status: see program.h.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "bench/program.h"
#include "common/layout.h"
#include "common/random.h"
#include "rkv/cluster.h"

namespace rkv::bench {
namespace {

using Keys = std::vector<std::string_view>;

// The keys of the store.
struct KeySet {
  explicit KeySet(const Arguments& given)
      : names(keys_of(given["keys"])), keys(names.begin(), names.end()) {}
  const std::vector<std::string> names;
  const Keys keys;
};

Client open(const Arguments& given, std::size_t cache_bytes = ClientOptions{}.cache_bytes) {
  ClientOptions options = given.client_options();
  options.cache_bytes = cache_bytes;
  options.reads_in_flight = static_cast<std::uint32_t>(given["depth"]);
  return given.connect(options);
}

std::uint64_t server_user_cpu_us(Client& client) {
  return server_stats(client).at("user_cpu_us").get<std::uint64_t>();
}

// Gets each key once, many at a time; with a cache, all groups are in it afterwards.
void get_all(Client& client, std::span<const std::string_view> keys) {
  Error last{};
  bool failed = false;
  client.multi_get_into(keys, [&](std::size_t, const Result<ValueView>& got) {
    if (got) return;
    failed = true;
    last = got.error();
  });
  if (failed) give_up("get", last);
}

// Bytes that one warm GET READs: the comparison uses as many.
std::size_t record_read_bytes(const Arguments& given) {
  return record_units(record_bytes(key_of(0).size(), given["value-bytes"])) * kUnitBytes;
}

json load(const Arguments& given) {
  Client client = open(given, 0);
  const KeySet set(given);
  const std::string value(given["value-bytes"], 'v');
  std::vector<KeyValue> items;
  items.reserve(set.keys.size());
  for (const std::string_view key : set.keys)
    items.push_back({.key = key, .value = value});
  put_all(client, items);
  return {{"record_read_bytes", record_read_bytes(given)}};
}

// Gets random keys of `keys`, --gets times, once ready() returns.
void get_at_random(
    const Arguments& given, Client& client, const Keys& keys, std::uint64_t seed,
    Histogram& nanoseconds, const std::function<void()>& ready = [] {}) {
  Random random(seed);
  std::vector<std::byte> value(kMaxInlineBytes);
  ready();
  const std::uint64_t gets = given["gets"];
  const std::uint64_t value_bytes = given["value-bytes"];
  for (std::uint64_t i = 0; i < gets; ++i) {
    const std::string_view key = keys[random.below(keys.size())];
    const auto got = timed(nanoseconds, [&] { return client.get_into(key, value); });
    if (!got) give_up("get", got.error());
    if (got->bytes != value_bytes) give_up("get", {.text = "a value of another length"});
  }
}

// Processor time of client and server per GET since construction.
class Costs {
 public:
  explicit Costs(Client& client)
      : client_(client), cpu_us_(server_user_cpu_us(client)), stats_(client.stats()) {}
  json per_get(std::uint64_t gets) const {
    const ClientStats now = client_.stats();
    const auto per = [&](std::uint64_t spent) {
      return static_cast<double>(spent) / static_cast<double>(gets);
    };
    return {{"reads_per_get", per(now.rdma_reads - stats_.rdma_reads)},
            {"retries", now.retries - stats_.retries},
            {"tears_detected", now.tears_detected - stats_.tears_detected},
            {"two_sided_gets", now.two_sided_gets - stats_.two_sided_gets},
            {"server_user_cpu_ns_per_get", 1e3 * per(server_user_cpu_us(client_) - cpu_us_)}};
  }

 private:
  Client& client_;
  const std::uint64_t cpu_us_;
  const ClientStats stats_;
};

json one_by_one(const Arguments& given, Client& client, const Keys& keys) {
  Histogram nanoseconds;
  const Costs costs(client);
  get_at_random(given, client, keys, 1, nanoseconds);
  json result = costs.per_get(given["gets"]);
  result.update(percentiles(nanoseconds));
  result["record_read_bytes"] = record_read_bytes(given);
  return result;
}

json threads(const Arguments& given) {
  const KeySet set(given);
  const std::uint64_t count = given["threads"];
  std::vector<Client> clients;
  clients.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    clients.push_back(open(given));
    get_all(clients.back(), set.keys);
  }
  // From the first GET to the last: starting the threads takes longer than short runs.
  struct Run {
    Clock::time_point begin;
    Clock::time_point end;
  };
  std::barrier all_ready(static_cast<std::ptrdiff_t>(count));
  std::vector<std::future<Run>> running;
  running.reserve(count);
  const auto run_one = [&](std::uint64_t i) {
    Histogram nanoseconds;
    Run run;
    get_at_random(given, clients[i], set.keys, i + 1, nanoseconds, [&] {
      all_ready.arrive_and_wait();
      run.begin = Clock::now();
    });
    run.end = Clock::now();
    return run;
  };
  try {
    for (std::uint64_t i = 0; i < count; ++i)
      running.push_back(std::async(std::launch::async, run_one, i));
  } catch (const std::system_error&) {  // release the threads that already wait
    for (std::uint64_t i = running.size(); i < count; ++i)
      all_ready.arrive_and_drop();
    throw;
  }
  Run all{.begin = Clock::time_point::max(), .end = Clock::time_point::min()};
  for (auto& each : running) {
    const Run run = each.get();
    all = {.begin = std::min(all.begin, run.begin), .end = std::max(all.end, run.end)};
  }
  const double seconds = std::chrono::duration<double>(all.end - all.begin).count();
  return {{"gets_per_s", static_cast<double>(given["gets"] * count) / seconds}};
}

// Resident memory of a process, including shared memory and the rings of the device's queues. Pages
// of programs and libraries are left out: how many the system maps varies by some MiB.
std::uint64_t resident_kib(std::uint64_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/smaps");
  std::uint64_t total_kib = 0;
  bool counts = false;
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "Rss: %" SCNu64, &kib) == 1) {
      if (counts) total_kib += kib;
    } else if (line.find(':') > line.find(' ')) {  // first line of a mapping
      const std::string file = line.substr(std::min(line.find('/'), line.size()));
      counts = !file.starts_with('/') || file.starts_with("/dev/") || file.starts_with("/memfd:");
    }
  }
  if (total_kib == 0) throw std::runtime_error("--pid needs the server's process");
  return total_kib;
}

json connected(const Arguments& given) {
  const std::string value(given["value-bytes"], 'v');
  std::vector<Client> clients;
  for (std::uint64_t i = 0; i < given["threads"]; ++i) {
    clients.push_back(open(given));
    value_or_give_up("put", clients.back().put(key_of(0), value));
    value_or_give_up("get", clients.back().get(key_of(0)));
  }
  return {{"clients", clients.size()}, {"resident_kib", resident_kib(given["pid"])}};
}

json copy(const Arguments& given) {
  const std::size_t bytes = record_read_bytes(given);
  const std::size_t span = given["keys"] * bytes;
  const int fd = memfd_create("bench_get", MFD_CLOEXEC);
  if (span == 0 || fd < 0 || ftruncate(fd, static_cast<off_t>(span)) != 0) throw std::bad_alloc();
  void* memory = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  std::memset(memory, 1, span);
  const auto* records = static_cast<const std::byte*>(memory);
  std::vector<std::byte> to(bytes);
  Random random(1);
  Histogram nanoseconds;
  const std::uint64_t gets = given["gets"];
  const std::uint64_t keys = given["keys"];
  for (std::uint64_t i = 0; i < gets; ++i) {
    const std::byte* from = records + random.below(keys) * bytes;
    timed(nanoseconds, [&] {
      std::memcpy(to.data(), from, bytes);
      asm volatile("" : : "r"(to.data()) : "memory");  // keeps the copy from being optimised away
      return 0;
    });
  }
  munmap(memory, span);
  close(fd);
  return percentiles(nanoseconds);
}

json many_in_flight(const Arguments& given, Client& client, const Keys& keys) {
  Random random(1);
  Keys wanted(given["gets"]);
  for (std::string_view& key : wanted)
    key = keys[random.below(keys.size())];
  const Costs costs(client);
  const auto begin = Clock::now();
  get_all(client, wanted);
  const double seconds = seconds_since(begin);
  json result = costs.per_get(wanted.size());
  result["gets_per_s"] = static_cast<double>(wanted.size()) / seconds;
  return result;
}

json one_by_pipeline(const Arguments& given, Client& client, const Keys& keys) {
  Random random(1);
  const std::uint64_t gets = given["gets"];
  for (std::uint64_t i = 0; i < gets; ++i)
    get_all(client, std::span(&keys[random.below(keys.size())], 1));
  return {{"gets", gets}};
}

json warm_of_cluster(const Arguments& given) {
  const ClientOptions options = given.client_options();
  const auto map = ShardMap::parse(options.server);
  if (!map) throw Misuse("--server is not a server");
  auto cluster = Cluster::connect(*map, options);
  if (!cluster) give_up_connecting(cluster.error());
  const KeySet set(given);
  for (const auto& got : cluster->multi_get(set.keys))
    if (!got) give_up("get", got.error());
  Random random(1);
  std::vector<std::byte> value(kMaxInlineBytes);
  for (std::uint64_t i = 0; i < given["gets"]; ++i)
    value_or_give_up("get", cluster->get_into(set.keys[random.below(set.keys.size())], value));
  return {{"gets", given["gets"]}};
}

json shard(const Arguments& given) {
  const auto map = ShardMap::parse("one:1,two:1,three:1");
  if (!map) throw std::runtime_error("a list of servers is not valid");
  const KeySet set(given);
  std::vector<std::uint64_t> keys_of_server(map->servers().size());
  for (std::uint64_t i = 0; i < given["gets"]; ++i)
    ++keys_of_server[map->shard_of(set.keys[i % set.keys.size()])];
  return {{"keys", keys_of_server}};
}

using Measure = json (*)(const Arguments& given, Client& client, const Keys& keys);

template <Measure measure>
json with_groups_cached(const Arguments& given) {
  Client client = open(given);
  const KeySet set(given);
  get_all(client, set.keys);
  return measure(given, client, set.keys);
}

template <Measure measure>
json without_a_cache(const Arguments& given) {
  Client client = open(given, 0);
  return measure(given, client, KeySet(given).keys);
}

Program program() {
  return {.name = "bench_get",
          .purpose = "One phase of the GET benchmark.",
          .flags = {{"threads", "number of clients", 1},
                    {"pid", "process of the server", 1},
                    {"gets", "GETs to measure", 5000},
                    {"keys", "records in the store", 10'000},
                    {"value-bytes", "size of a value", 100},
                    {"depth", "GETs in flight", 32}},
          .phases = {{"load", load},
                     {"warm", with_groups_cached<one_by_one>},
                     {"cold", without_a_cache<one_by_one>},
                     {"pipelined", with_groups_cached<many_in_flight>},
                     {"pipelined_cold", without_a_cache<many_in_flight>},
                     {"warm_by_pipeline", with_groups_cached<one_by_pipeline>},
                     {"warm_of_cluster", warm_of_cluster},
                     {"shard", shard},
                     {"threads", threads},
                     {"connected", connected},
                     {"copy", copy}}};
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(argc, argv, rkv::bench::program());
}
