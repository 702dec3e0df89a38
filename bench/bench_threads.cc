// bench_threads: operations of several threads of one process on a running kvserver, one at a time
// each. Each thread has a Client of its own; with --share yes all of them have one SharedClient.
//
//   get   GETs of evenly drawn keys that bench_put's phase `load` has stored; each thread has read
//         every key before
//   put   PUTs of the same keys
//
// Prints one JSON object: the rate of all threads together, and the percentiles of the operations.
// Exit status: see program.h.
#include <array>
#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include "bench/program.h"
#include "common/random.h"
#include "rkv/shared_client.h"

namespace rkv::bench {
namespace {

struct Work {
  std::vector<std::string> keys;
  std::vector<std::string> values;
  std::uint64_t count = 0;  // of each thread
};

template <class Store>
void get(Store& store, const std::string& key, const std::string& /*value*/) {
  std::array<std::byte, 4096> room;
  if (const auto got = store.get_into(key, room); !got) give_up("get", got.error());
}

template <class Store>
void put(Store& store, const std::string& key, const std::string& value) {
  if (const auto version = store.put(key, value); !version) give_up("put", version.error());
}

// Runs `operate(store, key, value)` on each of the stores, on a thread of its own.
template <class Store, class Operate>
json run(const std::vector<Store*>& stores, const Work& work, bool warms, Operate operate) {
  Clock::time_point begin;
  std::barrier ready(static_cast<std::ptrdiff_t>(stores.size()),
                     [&begin]() noexcept { begin = Clock::now(); });
  std::vector<Histogram> times(stores.size());
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < stores.size(); ++t) {
    threads.emplace_back([&, t] {
      Store& store = *stores[t];
      for (std::size_t i = 0; warms && i < work.keys.size(); ++i)
        get(store, work.keys[i], "");
      Random random(t + 1);
      ready.arrive_and_wait();
      for (std::uint64_t i = 0; i < work.count; ++i) {
        const std::string& key = work.keys[random.below(work.keys.size())];
        timed(times[t], [&] {
          operate(store, key, work.values[i % work.values.size()]);
          return 0;
        });
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  const double seconds = seconds_since(begin);
  Histogram all;
  for (const Histogram& each : times)
    all.merge(each);
  json result = percentiles(all);
  result["operations"] = all.count();
  result["per_s"] = static_cast<double>(all.count()) / seconds;
  return result;
}

template <class Call>
json measure(const Arguments& given, bool warms, Call operate) {
  const Work work{.keys = keys_of(given["keys"]),
                  .values = values_of(given["value-bytes"]),
                  .count = given["operations"]};
  const std::size_t threads = given["threads"];
  const std::string& share = given.text("share");
  if (share != "yes" && share != "no") throw Misuse("--share must be yes or no");
  if (share == "no") {
    std::vector<Client> clients;
    std::vector<Client*> stores;
    for (std::size_t i = 0; i < threads; ++i)
      clients.push_back(given.connect());
    for (Client& client : clients)
      stores.push_back(&client);
    return run(stores, work, warms, operate);
  }
  const ClientOptions options = given.client_options();
  auto shared = SharedClient::connect(options, given["connections"]);
  if (!shared) give_up_connecting(shared.error());
  const std::vector<SharedClient*> stores(threads, &*shared);
  return run(stores, work, warms, operate);
}

json measure_get(const Arguments& given) {
  return measure(given, true, [](auto& store, const std::string& key, const std::string& value) {
    get(store, key, value);
  });
}

json measure_put(const Arguments& given) {
  return measure(given, false, [](auto& store, const std::string& key, const std::string& value) {
    put(store, key, value);
  });
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(
      argc, argv,
      {.name = "bench_threads",
       .purpose = "What threads of one process reach with a client each, and with one for all.",
       .flags = {{"threads", "number of threads", 4},
                 {"connections", "of the shared client", 1},
                 {"operations", "of each thread", 100'000},
                 {"keys", "records in the store", 10'000},
                 {"value-bytes", "size of a value", 100}},
       .phases = {{"get", rkv::bench::measure_get}, {"put", rkv::bench::measure_put}},
       .texts = {{"share", "yes: one client for all threads; no: one for each", "no"}}});
}
