// bench_put: PUTs to a running kvserver; see README.md.
//
//   put        blocking PUTs of values of --value-bytes, one after the other
//   put_by_pipeline  as put, by multi_put_each() of one item a call
//   load       stores --keys records, --depth in flight
//   overwrite  --threads clients, each with --depth PUTs of evenly drawn keys in flight
//
// `load` and `overwrite` put `--depth` records by one call and wait for all of its answers, as
// bench_tcp writes as many requests at once. All PUTs are of --durability. Prints one JSON object.
// Exit status: see program.h.
#include <algorithm>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/program.h"
#include "common/random.h"
#include "common/wire.h"

namespace rkv::bench {
namespace {

Durability durability(const Arguments& given) {
  const auto level = parse_durability(given.text("durability"));
  if (!level) throw Misuse("--durability must be memory, wal or sync");
  return *level;
}

json put(const Arguments& given) {
  const std::vector<std::string> keys = keys_of(given["keys"]);
  const std::vector<std::string> values = values_of(given["value-bytes"]);
  const Durability level = durability(given);
  Client client = given.connect();
  Random random(1);
  Histogram nanoseconds;
  for (std::uint64_t i = 0; i < given["puts"]; ++i) {
    const std::string& key = keys[random.below(keys.size())];
    const std::string& value = values[i % values.size()];
    const auto put =
        timed(nanoseconds, [&] { return client.put_with(key, value, {.durability = level}); });
    if (!put) give_up("put", put.error());
  }
  json result = percentiles(nanoseconds);
  result["puts"] = nanoseconds.count();
  result["request_bytes"] = kRequestHeaderBytes + keys[0].size() + given["value-bytes"];
  return result;
}

json put_by_pipeline(const Arguments& given) {
  const std::vector<std::string> keys = keys_of(given["keys"]);
  const std::vector<std::string> values = values_of(given["value-bytes"]);
  Client client = given.connect();
  Random random(1);
  for (std::uint64_t i = 0; i < given["puts"]; ++i) {
    const KeyValue item{.key = keys[random.below(keys.size())], .value = values[i % values.size()]};
    client.multi_put_each(std::span(&item, 1),
                          [](std::size_t, const Result<std::uint64_t>& version) {
                            if (!version) give_up("put", version.error());
                          },
                          {.durability = durability(given)});
  }
  return {{"puts", given["puts"]}};
}

// A PUT by itself is one that blocks, as a caller of one makes it.
void put_or_give_up(Client& client, std::span<const KeyValue> items, Durability level) {
  std::optional<Error> failed;
  const auto note = [&](const Result<std::uint64_t>& version) {
    if (!version) failed = version.error();
  };
  if (items.size() == 1) {
    note(client.put_with(items[0].key, items[0].value, {.durability = level}));
  } else {
    client.multi_put_each(items,
                          [&](std::size_t, const Result<std::uint64_t>& version) { note(version); },
                          {.durability = level});
  }
  if (failed) give_up("put", *failed);
}

json rate(std::uint64_t puts, double seconds) {
  return {{"puts", puts}, {"puts_per_s", static_cast<double>(puts) / seconds}};
}

json load(const Arguments& given) {
  const std::vector<std::string> keys = keys_of(given["keys"]);
  const std::vector<std::string> values = values_of(given["value-bytes"]);
  std::vector<KeyValue> items;
  items.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i)
    items.push_back({.key = keys[i], .value = values[i % values.size()]});
  const Durability level = durability(given);
  Client client = given.connect();
  const auto begin = Clock::now();
  for (std::span<const KeyValue> left = items; !left.empty();) {
    const std::size_t some = std::min<std::size_t>(given["depth"], left.size());
    put_or_give_up(client, left.first(some), level);
    left = left.subspan(some);
  }
  return rate(items.size(), seconds_since(begin));
}

void put_at_random(const Arguments& given, Client& client, const std::vector<std::string>& keys,
                   const std::vector<std::string>& values, std::uint64_t seed) {
  Random random(seed);
  std::vector<KeyValue> items(given["depth"]);
  const Durability level = durability(given);
  const std::uint64_t rounds = given["puts"] / items.size();
  std::uint64_t next = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (KeyValue& item : items) {
      item = {.key = keys[random.below(keys.size())], .value = values[next++ % values.size()]};
    }
    put_or_give_up(client, items, level);
  }
}

json overwrite(const Arguments& given) {
  const std::vector<std::string> keys = keys_of(given["keys"]);
  const std::vector<std::string> values = values_of(given["value-bytes"]);
  std::vector<Client> clients;
  for (std::uint64_t i = 0; i < given["threads"]; ++i)
    clients.push_back(given.connect());
  const auto begin = Clock::now();
  std::vector<std::future<void>> running;
  for (std::uint64_t i = 0; i < clients.size(); ++i) {
    running.push_back(std::async(
        std::launch::async, [&, i] { put_at_random(given, clients[i], keys, values, i + 1); }));
  }
  for (auto& each : running)
    each.get();
  const std::uint64_t rounds = given["puts"] / given["depth"];
  return rate(rounds * given["depth"] * clients.size(), seconds_since(begin));
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(
      argc, argv,
      {.name = "bench_put",
       .purpose = "Cost of a PUT.",
       .flags = {{"puts", "PUTs of each client to measure", 5000},
                 {"keys", "records in the store", 10'000},
                 {"value-bytes", "size of a value", 100},
                 {"threads", "number of clients", 1},
                 {"depth", "PUTs in flight", 1}},
       .phases = {{"put", rkv::bench::put},
                  {"put_by_pipeline", rkv::bench::put_by_pipeline},
                  {"load", rkv::bench::load},
                  {"overwrite", rkv::bench::overwrite}},
       .texts = {{"durability", "of the PUTs: memory, wal or sync", "memory"}}});
}
