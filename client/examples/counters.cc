// Counters: exact counters, which the server changes, and a counter that clients change by RDMA
// atomics.
//
//   counters [HOST:PORT]
#include <rkv/client.h>

#include <array>
#include <cstdio>

namespace {

int complain(const char* doing, const rkv::Error& error) {
  std::fprintf(stderr, "%s: %s\n", doing, rkv::to_string(error).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  auto client = rkv::Client::connect({.server = argc > 1 ? argv[1] : "127.0.0.1:7471"});
  if (!client) return complain("connect", client.error());
  for (const char* key : {"tickets", "visits"}) {  // from 0, whatever an earlier run left
    const auto removed = client->remove(key);
    if (!removed && removed.error().code != rkv::Code::kNotFound)
      return complain("remove", removed.error());
  }

  // Each change is a request, done exactly once when it is answered.
  const auto ten = client->incr("tickets", 10);
  if (!ten) return complain("incr", ten.error());
  const auto nine = client->decr("tickets");
  if (!nine) return complain("decr", nine.error());
  std::printf("tickets: %lld, then %lld\n", static_cast<long long>(ten->number),
              static_cast<long long>(nine->number));
  const auto swapped = client->counter_cas("tickets", 10, 0);
  if (!swapped) return complain("counter_cas", swapped.error());
  std::printf("tickets are %s 10\n", swapped->done ? "still" : "no longer");

  // The server's processor takes no part here; rkv/client.h says which promises are weaker.
  auto visits = client->open_counter("visits");
  if (!visits) return complain("open_counter", visits.error());
  const std::array<rkv::CounterAddition, 3> additions = {
      {{.counter = &*visits}, {.counter = &*visits}, {.counter = &*visits, .summand = 5}}};
  for (const auto& added : client->multi_incr(additions)) {
    if (!added) return complain("multi_incr", added.error());
  }
  const auto sum = client->get_counter(*visits);
  if (!sum) return complain("get_counter", sum.error());
  std::printf("visits: %lld\n", static_cast<long long>(sum->number));
}
