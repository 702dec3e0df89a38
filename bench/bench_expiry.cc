// bench_expiry: what keys that expire cost writes beside them, and how late keys end; see
// README.md.
//
//   fill       stores the keys, with a time to live of an hour
//   alone      PUTs of keys that do not expire are timed. Meanwhile keys with a short time to live
//              are stored, and looked at until they are gone
//   plain      the same beside a neighbour that writes the keys at --rate, without a time to live
//   refreshed  the same beside a neighbour that gives each key that it writes another hour
//
// Needs a running kvserver. Prints one JSON object. Exit status: see program.h.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "bench/program.h"
#include "common/random.h"

namespace rkv::bench {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kAtOnce = 100;
constexpr std::size_t kValueBytes = 32;
constexpr milliseconds kLong{3'600'000};
constexpr milliseconds kShort{300};
constexpr milliseconds kBetweenShortLived{50};
constexpr milliseconds kBetweenLooks{5};

void put_keys(Client& client, const std::vector<std::string>& keys, milliseconds ttl) {
  const std::string value(kValueBytes, 'v');
  std::vector<KeyValue> items;
  for (const std::string& key : keys)
    items.push_back({.key = key, .value = value, .ttl = ttl});
  put_all(client, items);
}

json fill(const Arguments& given) {
  Client client = given.connect();
  const auto begin = Clock::now();
  std::vector<std::string> keys;
  for (std::uint64_t i = 0; i < given["keys"]; ++i) {
    keys.push_back(key_of(i));
    if (keys.size() < 10 * kAtOnce && i + 1 < given["keys"]) continue;
    put_keys(client, keys, kLong);
    keys.clear();
  }
  return {{"seconds", seconds_since(begin)},
          {"expiring", server_stats(client)["expiring_records"]}};
}

// Writes keys drawn at random, --rate in each second. Returns how many.
std::uint64_t write_keys(const Arguments& given, milliseconds ttl, const std::stop_token& over) {
  Client client = given.connect();
  Random random(1);
  std::uint64_t written = 0;
  std::vector<std::string> keys(kAtOnce);
  const auto begin = Clock::now();
  while (!over.stop_requested()) {
    for (std::string& key : keys)
      key = key_of(random.below(given["keys"]));
    put_keys(client, keys, ttl);
    written += kAtOnce;
    std::this_thread::sleep_until(
        begin + std::chrono::nanoseconds(1'000'000'000 * written / given["rate"]));
  }
  return written;
}

// Keys that live for kShort. How late they are: from the end of that time, counted from before
// their PUT, until a GET misses them.
class ShortLived {
 public:
  explicit ShortLived(Client& client) : client_(client) {}
  // Stores one and looks for others, if it is time.
  void step() {
    const auto now = Clock::now();
    if (now >= next_put_) {
      next_put_ = now + kBetweenShortLived;
      keys_.push_back({.name = fmt::format("short-lived-{}", count_++), .ends = now + kShort});
      if (const auto put = client_.put_with(keys_.back().name, "v", {.ttl = kShort}); !put)
        give_up("put", put.error());
    }
    if (now < next_look_) return;
    next_look_ = now + kBetweenLooks;
    while (!keys_.empty() && is_gone(keys_.front()))
      keys_.pop_front();
  }
  double latest_ms() const { return latest_ms_; }
  std::uint64_t count() const { return count_ - keys_.size(); }

 private:
  struct Key {
    std::string name;
    Clock::time_point ends;
  };
  bool is_gone(const Key& key) {
    const auto got = client_.get(key.name);
    if (got) return false;
    if (got.error().code != Code::kNotFound) give_up("get", got.error());
    const std::chrono::duration<double, std::milli> late = Clock::now() - key.ends;
    if (late.count() < 0) throw std::runtime_error("a key was gone before its time");
    latest_ms_ = std::max(latest_ms_, late.count());
    return true;
  }

  Client& client_;
  std::deque<Key> keys_;
  Clock::time_point next_put_ = Clock::now();
  Clock::time_point next_look_ = Clock::now();
  std::uint64_t count_ = 0;
  double latest_ms_ = 0;
};

json time_puts(const Arguments& given, std::optional<milliseconds> neighbours_ttl) {
  std::uint64_t written = 0;
  std::jthread neighbour([&](const std::stop_token& over) {
    if (neighbours_ttl) written = write_keys(given, *neighbours_ttl, over);
  });
  Client client = given.connect();
  ShortLived short_lived(client);
  Histogram puts;
  Random random(2);
  const std::string value(kValueBytes, 'p');
  const auto begin = Clock::now();
  while (seconds_since(begin) < static_cast<double>(given["seconds"])) {
    const std::string key = fmt::format("plain-{:05}", random.below(10'000));
    const auto put = timed(puts, [&] { return client.put(key, value); });
    if (!put) give_up("put", put.error());
    short_lived.step();
  }
  neighbour.request_stop();
  neighbour.join();
  json result = percentiles(puts);
  result["puts_per_s"] = static_cast<double>(puts.count()) / seconds_since(begin);
  result["neighbour_per_s"] = static_cast<double>(written) / seconds_since(begin);
  result["latest_ms"] = short_lived.latest_ms();
  result["short_lived"] = short_lived.count();
  result["expiring"] = server_stats(client)["expiring_records"];
  return result;
}

json alone(const Arguments& given) {
  return time_puts(given, std::nullopt);
}
json plain(const Arguments& given) {
  return time_puts(given, milliseconds{0});
}
json refreshed(const Arguments& given) {
  return time_puts(given, kLong);
}

Program program() {
  return {.name = "bench_expiry",
          .purpose = "What keys that expire cost writes beside them.",
          .flags = {{"keys", "that expire", 10'000'000},
                    {"rate", "keys that the neighbour writes in a second", 20'000},
                    {"seconds", "of each measurement", 10}},
          .phases = {{"fill", fill}, {"alone", alone}, {"plain", plain}, {"refreshed", refreshed}}};
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(argc, argv, rkv::bench::program());
}
