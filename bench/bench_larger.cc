// bench_larger: more data than the server's memory holds, and a server that has just started; see
// README.md.
//
//   fill     stores the keys
//   mix      YCSB's workload B on them: 95 % GETs, 5 % PUTs, scrambled zipfian 0.99. Measures the
//            share of GETs answered by READs alone. The comparison is an LRU cache of as many
//            records as the server holds in memory, given the same operations
//   restart  time until the first GET is answered, and until all records are loaded
//
// Needs a running kvserver. Prints one JSON object. Exit status: see program.h.
#include <list>
#include <string>
#include <unordered_map>

#include "bench/kvbench/generators.h"
#include "bench/program.h"
#include "common/random.h"

namespace rkv::bench {
namespace {

constexpr std::size_t kValueBytes = 1000;  // YCSB: 10 fields of 100 bytes

// A zipfian over the existing keys, scattered by a hash. (kvbench's scrambled generator draws from
// 10^10 items, as YCSB's does, which is less skewed than 0.99 over the existing keys.)
class Popular {
 public:
  explicit Popular(std::uint64_t keys) : keys_(keys), ranks_(0, keys - 1) {}
  std::uint64_t next(Random& random) const { return mix64(ranks_.next(random)) % keys_; }

 private:
  const std::uint64_t keys_;
  const kvbench::Zipfian ranks_;
};

class Lru {
 public:
  explicit Lru(std::uint64_t capacity) : capacity_(capacity) {}
  bool use(std::uint64_t key) {
    const auto found = where_.find(key);
    if (found != where_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      return true;
    }
    order_.push_front(key);
    where_[key] = order_.begin();
    if (order_.size() > capacity_) {
      where_.erase(order_.back());
      order_.pop_back();
    }
    return false;
  }

 private:
  const std::uint64_t capacity_;
  std::list<std::uint64_t> order_;  // most recent first
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> where_;
};

json fill(const Arguments& given) {
  Client client = given.connect();
  const std::string value(kValueBytes, 'v');
  const auto begin = Clock::now();
  for (std::uint64_t i = 0; i < given["keys"]; ++i) {
    if (const auto put = client.put(key_of(i), value); !put) give_up("put", put.error());
  }
  if (const auto flushed = client.flush(); !flushed) give_up("flush", flushed.error());
  const json stats = server_stats(client);
  return {{"seconds", seconds_since(begin)},
          {"records", stats["records"]},
          {"records_on_disk", stats["records_on_disk"]}};
}

json mix(const Arguments& given) {
  const std::uint64_t operations = given["operations"];
  Client client = given.connect();
  const std::string value(kValueBytes, 'w');
  const Popular popular(given["keys"]);
  Random random(1);
  Lru lru(server_stats(client)["records"].get<std::uint64_t>());
  std::uint64_t gets = 0;
  std::uint64_t lru_hits = 0;
  std::uint64_t asked_before = 0;
  Clock::time_point begin;
  // The first half only warms up both caches.
  for (std::uint64_t n = 0; n < 2 * operations; ++n) {
    if (n == operations) {
      gets = lru_hits = 0;
      asked_before = client.stats().two_sided_gets;
      begin = Clock::now();
    }
    const std::uint64_t key = popular.next(random);
    const bool put = random.below(100) < 5;
    const bool hit = lru.use(key);
    if (put) {
      if (const auto done = client.put(key_of(key), value); !done) give_up("put", done.error());
      continue;
    }
    if (const auto got = client.get(key_of(key)); !got) give_up("get", got.error());
    ++gets;
    lru_hits += hit ? 1 : 0;
  }
  const double seconds = seconds_since(begin);
  const std::uint64_t asked = client.stats().two_sided_gets - asked_before;
  const json stats = server_stats(client);
  const auto part = [&](std::uint64_t hits) {
    return static_cast<double>(hits) / static_cast<double>(gets);
  };
  return {{"hit_rate", part(gets - asked)},
          {"lru_hit_rate", part(lru_hits)},
          {"operations_per_s", static_cast<double>(operations) / seconds},
          {"records", stats["records"]},
          {"records_on_disk", stats["records_on_disk"]}};
}

// REQUIRES: the server has just reported that it is ready.
json restart(const Arguments& given) {
  const auto begin = Clock::now();
  Client client = given.connect();
  if (const auto got = client.get(key_of(given["keys"] / 2)); !got) give_up("get", got.error());
  const double first = seconds_since(begin);
  const bool loading = server_stats(client)["loading"].get<bool>();
  json stats = server_stats(client);
  while (stats["loading"].get<bool>())
    stats = server_stats(client);
  return {{"first_get_seconds", first},
          {"loading_at_first_get", loading},
          {"loaded_seconds", seconds_since(begin)},
          {"records", stats["records"]},
          {"records_on_disk", stats["records_on_disk"]}};
}

Program program() {
  return {.name = "bench_larger",
          .purpose = "More data than memory, and the start of a server.",
          .flags = {{"keys", "records of 1,000 bytes", 100'000},
                    {"operations", "operations to measure", 200'000}},
          .phases = {{"fill", fill}, {"mix", mix}, {"restart", restart}}};
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(argc, argv, rkv::bench::program());
}
