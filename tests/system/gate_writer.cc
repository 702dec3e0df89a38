// gate_writer SERVER FIRST_KEY KEYS SEED: writes to the keys "gate-N" without pause until it is
// killed: in place (the same length as before), moving (another length), removed and put again.
// Values are whole_value() of a counter that rises. Prints "storming" after the first round.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/random.h"
#include "rkv/client.h"
#include "tests/system/whole_value.h"

namespace {

using rkv::testing_support::whole_value;

// Mostly short, now and then longer than a page: both tear differently.
std::size_t words_of(rkv::Random& random) {
  return random.below(4) == 0 ? 1 + random.below(700) : 1 + random.below(60);
}

int storm(rkv::Client& client, std::uint64_t first, std::uint64_t keys, std::uint64_t seed) {
  rkv::Random random(seed);
  std::vector<std::string> names;
  std::vector<std::size_t> words(keys, 1);
  for (std::uint64_t i = 0; i < keys; ++i)
    names.push_back(fmt::format("gate-{}", first + i));
  std::vector<std::string> values(keys);
  std::vector<rkv::KeyValue> batch;
  for (std::uint64_t counter = 1;; ++counter) {
    batch.clear();
    for (std::uint64_t i = 0; i < keys; ++i) {
      if (counter > 1 && random.below(2) == 0) continue;
      if (random.below(3) == 0) words[i] = words_of(random);
      values[i] = whole_value(counter, words[i]);
      batch.push_back({.key = names[i], .value = values[i]});
    }
    for (const auto& put : client.multi_put(batch)) {
      if (put) continue;
      std::fprintf(stderr, "gate_writer: %s\n", rkv::to_string(put.error()).c_str());
      return 4;
    }
    if (random.below(4) == 0) {
      const auto removed = client.remove(names[random.below(keys)]);
      if (!removed && removed.error().code != rkv::Code::kNotFound) return 4;
    }
    if (counter == 1) {
      std::puts("storming");
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  rkv::ClientOptions options{.server = argv[1], .name = "gate_writer"};
  options.transport = rkv::Transport::kShm;
  auto client = rkv::Client::connect(options);
  if (!client) {
    std::fprintf(stderr, "gate_writer: %s\n", rkv::to_string(client.error()).c_str());
    return 3;
  }
  return storm(*client, std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10),
               std::strtoull(argv[4], nullptr, 10));
}
