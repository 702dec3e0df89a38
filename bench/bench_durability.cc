// bench_durability: the cost of durable data; see README.md.
//
//   background      PUTs (memory) of --keys new keys, pipelined, until a flush reports that all are
//                   on disk
//   put             latency of PUTs (memory) at --server and, in turn, at --other, in slices
//   sync            PUTs (sync) of --writers clients and, in turn, fdatasync of as many bytes to a
//                   file in --directory, in slices
//   sync_pipelined  the same with a quarter of the clients, each with four PUTs in flight
//   first_get       time until a starting server answers a GET, and until it has loaded all records
//
// Needs running kvservers. Prints one JSON object. Exit status: see program.h.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "bench/program.h"
#include "common/random.h"

namespace rkv::bench {
namespace {

// ------------------------------------------------------------------------------------ background

json background(const Arguments& given) {
  constexpr std::size_t kChunk = 8192;
  const std::vector<std::string> keys = shuffled_keys_of(given["keys"]);
  const std::vector<std::string> values = values_of(given["value-bytes"]);
  Client client = given.connect();
  const json before = server_stats(client);
  std::vector<KeyValue> items;
  const auto begin = Clock::now();
  for (std::size_t first = 0; first < keys.size(); first += kChunk) {
    items.clear();
    for (std::size_t i = first; i < std::min(first + kChunk, keys.size()); ++i)
      items.push_back({.key = keys[i], .value = values[i % values.size()]});
    put_all(client, items);
  }
  const double accepted = seconds_since(begin);
  value_or_give_up("flush", client.flush());
  const double seconds = seconds_since(begin);
  const json after = server_stats(client);
  const auto rise = [&](const char* name) {
    return after[name].get<std::uint64_t>() - before[name].get<std::uint64_t>();
  };
  return {{"seconds", seconds},
          {"accepted_seconds", accepted},
          {"records_per_s", static_cast<double>(keys.size()) / seconds},
          {"records", after["records"]},
          {"batches", rise("batches")},
          {"syncs", rise("syncs")},
          {"queue_full", rise("queue_full")},
          {"coalesced", rise("coalesced_writes")}};
}

// ------------------------------------------------------------------------------------------- put

// One PUT at a time for a second, or a schedule of `per_second`. On a schedule the time counts from
// when a PUT was due, so that PUTs that wait for a slow PUT are measured too.
json one_by_one(Client& client, const Arguments& given, const std::vector<std::string>& keys,
                const std::vector<std::string>& values, bool paced) {
  Histogram nanoseconds;
  Random random(1);
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::milliseconds(given["slice-ms"]);
  const std::chrono::nanoseconds gap(1'000'000'000 / given["per-second"]);
  for (auto due = begin; due < end;) {
    while (paced && Clock::now() < due) {
    }
    const auto from = paced ? due : Clock::now();
    const std::uint64_t drawn = random();
    const auto put = client.put(keys[drawn % keys.size()], values[drawn % values.size()]);
    const auto now = Clock::now();
    nanoseconds.record(static_cast<std::uint64_t>((now - from).count()));
    if (!put) give_up("put", put.error());
    due = paced ? due + gap : now;
  }
  json result = percentiles(nanoseconds);
  result["puts"] = nanoseconds.count();
  return result;
}

json put(const Arguments& given) {
  const std::vector<std::string> keys = keys_of(given["keys"]);
  const std::vector<std::string> values = values_of(given["value-bytes"]);
  ClientOptions other = given.client_options();
  other.server = given.text("other");
  Client clients[] = {given.connect(), given.connect(other)};
  json slices = json::array();
  for (std::uint64_t slice = 0; slice <= given["slices"]; ++slice) {
    json pair;
    for (const bool paced : {false, true}) {
      for (const bool persistent : {true, false}) {
        Client& client = clients[persistent ? 0 : 1];
        pair[persistent ? "with" : "without"][paced ? "paced" : "closed"] =
            one_by_one(client, given, keys, values, paced);
        // The flush leaves no background work for the slices of the other server.
        if (persistent) value_or_give_up("flush", client.flush());
      }
    }
    if (slice != 0) slices.push_back(pair);  // the first slice creates the keys
  }
  return {{"slices", slices}};
}

// ------------------------------------------------------------------------------------------ sync

// A file that sync() appends to; each append and fdatasync is timed.
class RawFile {
 public:
  explicit RawFile(const std::string& directory) : path_(directory + "/fdatasync") {
    descriptor_ = open(path_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    // Reserves blocks without changing the length, as RocksDB does for a log.
    const bool made =
        descriptor_ >= 0 && fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, 36 << 20) == 0;
    if (!made) throw std::system_error(errno, std::generic_category(), path_);
  }
  ~RawFile() {
    close(descriptor_);
    unlink(path_.c_str());
  }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  Histogram sync(std::size_t bytes, std::uint64_t times) {
    const std::string data(bytes, 'x');
    Histogram nanoseconds;
    for (std::uint64_t i = 0; i < times; ++i) {
      const bool synced = timed(nanoseconds, [&] {
        return write(descriptor_, data.data(), data.size()) == static_cast<ssize_t>(bytes) &&
               fdatasync(descriptor_) == 0;
      });
      if (!synced) throw std::system_error(errno, std::generic_category(), path_);
    }
    return nanoseconds;
  }

 private:
  const std::string path_;
  int descriptor_;
};

// Size of a record in the write-ahead log beyond key and value: RocksDB's tag 1, length of a key of
// 16 bytes 1, length of a value 2 if 128 or more (else 1), our version and traits. A batch adds
// RocksDB's headers of a fragment 7 and of a batch 12, and our stamp 28 with its tag and length.
// (The fragment header per 32 KiB is left out.)
constexpr std::size_t log_record_bytes(std::size_t value_bytes) {
  return 1 + 1 + (value_bytes + 16 < 128 ? 1 : 2) + 16;
}
constexpr std::size_t kLogBatchBytes = 7 + 12 + 1 + 1 + 28;

// --writers PUTs in flight in total, from clients in threads of their own.
class Writers {
 public:
  Writers(const Arguments& given, std::uint64_t in_flight)
      : in_flight_(in_flight),
        keys_(keys_of(given["keys"])),
        values_(values_of(given["value-bytes"])),
        turn_(static_cast<std::ptrdiff_t>(given["writers"] / in_flight) + 1) {
    const std::uint64_t count = given["writers"] / in_flight;
    for (std::uint64_t i = 0; i < count; ++i)
      clients_.push_back(given.connect());
    for (std::uint64_t i = 0; i < count; ++i)
      threads_.emplace_back([this, i] { run(clients_[i], i); });
  }
  ~Writers() {
    each_ = 0;
    turn_.arrive_and_wait();
    threads_.clear();
  }
  Writers(const Writers&) = delete;
  Writers& operator=(const Writers&) = delete;

  // Each client puts `each` values per PUT in flight. Returns when all are done.
  void put(std::uint64_t each) {
    each_ = each;
    turn_.arrive_and_wait();
    turn_.arrive_and_wait();
    if (failed_.load()) throw std::runtime_error("put: a sync PUT failed");
  }

 private:
  void run(Client& client, std::uint64_t number) {
    Random random(number + 1);
    for (;;) {
      turn_.arrive_and_wait();
      if (each_ == 0) return;
      std::vector<KeyValue> items(each_ * in_flight_);
      for (KeyValue& item : items) {
        const std::uint64_t drawn = random();
        item = {.key = keys_[drawn % keys_.size()], .value = values_[drawn % values_.size()]};
      }
      if (!put_items(client, items)) failed_.store(true);
      turn_.arrive_and_wait();
    }
  }
  bool put_items(Client& client, const std::vector<KeyValue>& items) const {
    const auto done = [](const auto& put) { return put.has_value(); };
    if (in_flight_ > 1)
      return std::ranges::all_of(client.multi_put(items, {.durability = Durability::kSync}), done);
    return std::ranges::all_of(items, [&](const KeyValue& item) {
      return done(client.put_with(item.key, item.value, {.durability = Durability::kSync}));
    });
  }

  const std::uint64_t in_flight_;
  const std::vector<std::string> keys_;
  const std::vector<std::string> values_;
  std::barrier<> turn_;
  std::uint64_t each_ = 0;  // written between turns; 0: end
  std::atomic<bool> failed_{false};
  std::vector<Client> clients_;
  std::vector<std::jthread> threads_;
};

json groups_against_fdatasync(const Arguments& given, Writers& writers) {
  Client observer = given.connect();
  const auto syncs = [&] { return server_stats(observer)["syncs"].get<std::uint64_t>(); };
  RawFile file(given.text("directory"));
  json slices = json::array();
  for (std::uint64_t slice = 0; slice <= given["slices"]; ++slice) {
    const std::uint64_t before = syncs();
    const auto begin = Clock::now();
    writers.put(given["operations"]);
    const double seconds = seconds_since(begin);
    const std::uint64_t groups = syncs() - before;
    const std::uint64_t puts = given["writers"] * given["operations"];
    const double group = static_cast<double>(puts) / static_cast<double>(groups);
    const std::size_t bytes =
        kLogBatchBytes + static_cast<std::size_t>(
                             group * static_cast<double>(16 + given["value-bytes"] +
                                                         log_record_bytes(given["value-bytes"])));
    const auto begin_raw = Clock::now();
    const Histogram raw = file.sync(bytes, groups);
    const double raw_seconds = seconds_since(begin_raw);
    if (slice == 0) continue;  // warm-up
    const auto of_groups = static_cast<double>(groups);
    slices.push_back({{"puts", puts},
                      {"groups", groups},
                      {"puts_per_group", group},
                      {"group_us", seconds * 1e6 / of_groups},
                      {"fdatasync_us", raw_seconds * 1e6 / of_groups},
                      {"fdatasync_p10_us", static_cast<double>(raw.percentile(10)) / 1e3},
                      {"fdatasync_bytes", bytes}});
  }
  return {{"slices", slices}};
}

json sync(const Arguments& given) {
  Writers writers(given, 1);
  return groups_against_fdatasync(given, writers);
}

// Each client has as many PUTs in flight as the server grants it requests: kCredits.
json sync_pipelined(const Arguments& given) {
  constexpr std::uint64_t kCredits = 4;
  if (given["writers"] % kCredits != 0) throw Misuse("--writers must be a multiple of 4");
  Writers writers(given, kCredits);
  return groups_against_fdatasync(given, writers);
}

// ------------------------------------------------------------------------------------- first GET

double cpu_seconds(const json& stats) {
  return (stats["user_cpu_us"].get<double>() + stats["system_cpu_us"].get<double>()) / 1e6;
}

// --since: start of the server, nanoseconds of the monotonic clock.
json first_get(const Arguments& given) {
  const auto since = Clock::time_point(std::chrono::nanoseconds(given["since"]));
  ClientOptions options = given.client_options();
  options.timeout = std::chrono::seconds(5);
  auto client = Client::connect(options);
  while (!client) {
    if (seconds_since(since) > 120) give_up_connecting(client.error());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    client = Client::connect(options);
  }
  const double connected = seconds_since(since);
  const Value got = value_or_give_up("get", client->get(key_of(given["keys"] / 2)));
  const double answered = seconds_since(since);
  json stats = server_stats(*client);
  const bool loading = stats["loading"].get<bool>();
  const double cpu_before = cpu_seconds(stats);
  while (stats["loading"].get<bool>()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    stats = server_stats(*client);
  }
  return {{"connected_seconds", connected},
          {"first_get_seconds", answered},
          {"value_bytes", got.value.size()},
          {"loading_at_first_get", loading},
          {"cpu_seconds", cpu_seconds(stats) - cpu_before},
          {"records", stats["records"]},
          {"records_on_disk", stats["records_on_disk"]}};
}

Program program() {
  return {.name = "bench_durability",
          .purpose = "Cost of durability.",
          .flags = {{"keys", "records in the store", 100'000},
                    {"value-bytes", "size of a value", 100},
                    {"per-second", "PUTs on a schedule", 2000},
                    {"slices", "slices of each kind, in turn", 10},
                    {"slice-ms", "length of a slice of PUTs (memory)", 500},
                    {"writers", "clients that PUT (sync)", 16},
                    {"operations", "PUTs (sync) of a writer in a slice", 50},
                    {"since", "when the server was started, monotonic ns", 1}},
          .phases = {{"background", background},
                     {"put", put},
                     {"sync", sync},
                     {"sync_pipelined", sync_pipelined},
                     {"first_get", first_get}},
          .texts = {{"other", "address of the server without a data directory"},
                    {"directory", "directory for the file that is synced", "."}}};
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(argc, argv, rkv::bench::program());
}
