// bench_larger: more data than the server's memory holds, and a server that has just started; see
// README.md.
//
//   fill     stores the keys
//   mix      YCSB's workload B on them: 95 % GETs, 5 % PUTs, scrambled zipfian 0.99. The part of
//   the
//            GETs answered by READs alone, against what an LRU cache of as many records as the
//            server has in memory would have answered, given the same operations
//   restart  until the first GET is answered; until all records are loaded
//
// Against a running kvserver. Prints one JSON object. Exit status as bench_get.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cxxopts.hpp>
#include <list>
#include <string>
#include <unordered_map>

#include "bench/program.h"
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
  std::uint64_t operations = 0;
};

constexpr std::size_t kValueBytes = 1000;  // YCSB: 10 fields of 100 bytes

std::string key_of(std::uint64_t number) {
  return fmt::format("user{:012}", number);
}

// Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994, as YCSB uses
// it; popular keys are scattered by a hash.
class Zipfian {
 public:
  explicit Zipfian(std::uint64_t items) : items_(items) {
    for (std::uint64_t i = 1; i <= items; ++i)
      zeta_ += 1 / std::pow(static_cast<double>(i), kTheta);
    const double zeta2 = 1 + std::pow(0.5, kTheta);
    const auto n = static_cast<double>(items);
    eta_ = (1 - std::pow(2 / n, 1 - kTheta)) / (1 - zeta2 / zeta_);
  }

  template <class Random>
  std::uint64_t next(Random& random) const {
    const double u = static_cast<double>(random.below(std::uint64_t{1} << 53)) * 0x1p-53;
    const double uz = u * zeta_;
    std::uint64_t rank = 0;
    if (uz >= 1) {
      rank = 1;
      if (uz >= 1 + std::pow(0.5, kTheta)) {
        rank = static_cast<std::uint64_t>(static_cast<double>(items_) *
                                          std::pow(eta_ * u - eta_ + 1, 1 / (1 - kTheta)));
      }
    }
    return mix64(rank) % items_;
  }

 private:
  static constexpr double kTheta = 0.99;
  const std::uint64_t items_;
  double zeta_ = 0;
  double eta_ = 0;
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
  std::list<std::uint64_t> order_;  // the latest first
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> where_;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Client open(const Settings& settings) {
  ClientOptions options{.server = settings.server, .name = "bench_larger"};
  options.timeout = std::chrono::minutes(5);
  return connect(options, settings.transport);
}

json server_stats(Client& client) {
  const auto text = client.server_stats();
  if (!text) give_up("stats", text.error());
  return json::parse(*text);
}

json fill(const Settings& settings) {
  Client client = open(settings);
  const std::string value(kValueBytes, 'v');
  const auto begin = Clock::now();
  for (std::uint64_t i = 0; i < settings.keys; ++i) {
    if (const auto put = client.put(key_of(i), value); !put) give_up("put", put.error());
  }
  if (const auto flushed = client.flush(); !flushed) give_up("flush", flushed.error());
  const json stats = server_stats(client);
  return {{"seconds", seconds_since(begin)},
          {"records", stats["records"]},
          {"records_on_disk", stats["records_on_disk"]}};
}

json mix(const Settings& settings) {
  Client client = open(settings);
  const std::string value(kValueBytes, 'w');
  const Zipfian zipfian(settings.keys);
  Random random(1);
  Lru lru(server_stats(client)["records"].get<std::uint64_t>());
  std::uint64_t gets = 0;
  std::uint64_t lru_hits = 0;
  std::uint64_t asked_before = 0;
  Clock::time_point begin;
  // The first half is there to fill both caches with what is used.
  for (std::uint64_t n = 0; n < 2 * settings.operations; ++n) {
    if (n == settings.operations) {
      gets = lru_hits = 0;
      asked_before = client.stats().two_sided_gets;
      begin = Clock::now();
    }
    const std::uint64_t key = zipfian.next(random);
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
          {"operations_per_s", static_cast<double>(settings.operations) / seconds},
          {"records", stats["records"]},
          {"records_on_disk", stats["records_on_disk"]}};
}

// The server has just said that it is ready.
json restart(const Settings& settings) {
  const auto begin = Clock::now();
  Client client = open(settings);
  if (const auto got = client.get(key_of(settings.keys / 2)); !got) give_up("get", got.error());
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

json run(const Settings& settings) {
  if (settings.phase == "fill") return fill(settings);
  if (settings.phase == "mix") return mix(settings);
  return restart(settings);
}

Settings parse(int argc, char** argv) {
  cxxopts::Options options("bench_larger", "More data than memory, and a server that starts.");
  options.add_options()                                                                          //
      ("server", "HOST:PORT", cxxopts::value<std::string>()->default_value("127.0.0.1:7471"))    //
      ("phase", "fill, mix or restart", cxxopts::value<std::string>())                           //
      ("transport", "auto, verbs or shm", cxxopts::value<std::string>()->default_value("auto"))  //
      ("keys", "keys of 1000 bytes", cxxopts::value<std::uint64_t>()->default_value("100000"))   //
      ("operations", "to measure", cxxopts::value<std::uint64_t>()->default_value("200000"));
  const auto given = options.parse(argc, argv);
  Settings settings{.server = given["server"].as<std::string>(),
                    .phase = given["phase"].as<std::string>(),
                    .transport = given["transport"].as<std::string>(),
                    .keys = given["keys"].as<std::uint64_t>(),
                    .operations = given["operations"].as<std::uint64_t>()};
  const bool known =
      settings.phase == "fill" || settings.phase == "mix" || settings.phase == "restart";
  if (!known || settings.keys < 10 || settings.operations == 0) {
    throw cxxopts::exceptions::specification(
        "--phase is fill, mix or restart; --keys is at least 10 and --operations 1");
  }
  return settings;
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program("bench_larger", argc, argv, rkv::bench::parse, rkv::bench::run);
}
