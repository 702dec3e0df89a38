// bench_put: PUTs to a running kvserver; see README.md.
//
//   put  blocking PUTs (memory) of values of --value-bytes, one after the other
//
// Prints one JSON object. Exit status: see program.h.
#include <string>
#include <vector>

#include "bench/program.h"
#include "common/random.h"
#include "common/wire.h"

namespace rkv::bench {
namespace {

json put(const Arguments& given) {
  const std::vector<std::string> keys = keys_of(given["keys"]);
  const std::vector<std::string> values = values_of(given["value-bytes"]);
  Client client = given.connect();
  Random random(1);
  Histogram nanoseconds;
  for (std::uint64_t i = 0; i < given["puts"]; ++i) {
    const std::string& key = keys[random.below(keys.size())];
    const std::string& value = values[i % values.size()];
    const auto put = timed(nanoseconds, [&] {
      return client.put_with(key, value, {.durability = Durability::kMemory});
    });
    if (!put) give_up("put", put.error());
  }
  json result = percentiles(nanoseconds);
  result["puts"] = nanoseconds.count();
  result["request_bytes"] = kRequestHeaderBytes + keys[0].size() + given["value-bytes"];
  return result;
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(argc, argv,
                                 {.name = "bench_put",
                                  .purpose = "Cost of a PUT.",
                                  .flags = {{"puts", "PUTs to measure", 5000},
                                            {"keys", "records in the store", 10'000},
                                            {"value-bytes", "size of a value", 100}},
                                  .phases = {{"put", rkv::bench::put}}});
}
