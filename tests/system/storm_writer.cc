// storm_writer SERVER FIRST_KEY KEYS WORDS: overwrites keys "storm-N" without pause, each value
// whole_value() of a counter that rises, until it is killed. Most values have WORDS words and are
// rewritten in place; every eighth is longer and moves. Prints "storming" after the first round.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "rkv/client.h"
#include "tests/system/whole_value.h"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const auto first = std::strtoull(argv[2], nullptr, 10);
  const auto keys = std::strtoull(argv[3], nullptr, 10);
  const auto words = std::strtoull(argv[4], nullptr, 10);
  rkv::ClientOptions options{.server = argv[1], .name = "storm_writer"};
  const char* const transport = std::getenv("RKV_TEST_TRANSPORT");
  const std::string_view chosen = transport == nullptr ? "" : transport;
  options.transport = chosen == "shm"   ? rkv::Transport::kShm
                      : chosen == "tcp" ? rkv::Transport::kTcp
                                        : rkv::Transport::kVerbs;
  auto client = rkv::Client::connect(options);
  if (!client) {
    std::fprintf(stderr, "storm_writer: %s\n", rkv::to_string(client.error()).c_str());
    return 3;
  }
  for (std::uint64_t counter = 1;; ++counter) {
    for (std::uint64_t key = first; key < first + keys; ++key) {
      const std::string name = fmt::format("storm-{}", key);
      const std::size_t length = counter % 8 == 0 ? words + 16 : words;
      const auto put = client->put(name, rkv::testing_support::whole_value(counter, length));
      if (!put) {
        std::fprintf(stderr, "storm_writer: %s\n", rkv::to_string(put.error()).c_str());
        return 4;
      }
    }
    if (counter == 1) {
      std::puts("storming");
      std::fflush(stdout);
    }
  }
}
