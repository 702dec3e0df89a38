// bench_storm: GETs racing writers, and the tears that a client did not notice; see README.md.
//
//   storm  one client does --gets GETs while two others overwrite the same few keys as fast as they
//          can, with values of 16 KB and of 96 bytes
//
// Needs a running kvserver. Prints one JSON object. Exit status: see program.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/program.h"
#include "common/bytes.h"

namespace rkv::bench {
namespace {

constexpr std::array<std::size_t, 2> kWords = {2000, 12};  // packets of SoftRoCE: five; one
constexpr std::uint64_t kKeys = 2;                         // per writer

std::string storm_key(std::uint64_t number) {
  return fmt::format("storm-{}", number);
}

// Each word of a value is computed from the first, which counts the key's values. So a value shows
// whether it is a mixture.
std::uint64_t word_of(std::uint64_t counter, std::size_t index) {
  return counter * 0x9E3779B97F4A7C15U + index * 0xD1B54A32D192ED03U;
}

// The last counter that an earlier storm on this server wrote.
std::uint64_t last_counter(Client& client, std::uint64_t writer) {
  std::uint64_t last = 0;
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const auto got = client.get(storm_key(writer * kKeys + key));
    if (!got && got.error().code != Code::kNotFound) give_up("get", got.error());
    if (got) last = std::max(last, load_le<std::uint64_t>(as_bytes(got->value).data()));
  }
  return last;
}

void write(Client& client, std::uint64_t writer, const std::atomic<bool>& over,
           std::atomic<std::uint64_t>& puts) {
  std::vector<std::uint64_t> words(kWords[writer]);
  for (std::uint64_t counter = last_counter(client, writer) + 1;
       !over.load(std::memory_order_relaxed); ++counter) {
    words[0] = counter;
    for (std::size_t i = 1; i < words.size(); ++i)
      words[i] = word_of(counter, i);
    const std::string_view value(reinterpret_cast<const char*>(words.data()), words.size() * 8);
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      const auto put = client.put(storm_key(writer * kKeys + key), value);
      if (!put && put.error().code != Code::kBusy) give_up("put", put.error());
    }
    puts.fetch_add(kKeys, std::memory_order_relaxed);
  }
}

// Stops the writers in all cases.
struct Ended {
  std::atomic<bool>& over;
  ~Ended() { over = true; }
};

bool is_whole(const std::vector<std::uint64_t>& words, std::size_t count) {
  for (std::size_t i = 1; i < count; ++i) {
    if (words[i] != word_of(words[0], i)) return false;
  }
  return true;
}

json storm(const Arguments& given) {
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> puts{0};
  std::vector<Client> clients;
  for (std::size_t i = 0; i < kWords.size() + 1; ++i)
    clients.push_back(given.connect());
  Client& reader = clients.back();
  std::vector<std::future<void>> writers;
  const Ended ended{over};
  for (std::uint64_t i = 0; i < kWords.size(); ++i)
    writers.push_back(std::async(std::launch::async, [&, i] { write(clients[i], i, over, puts); }));
  std::vector<std::string> keys;
  for (std::uint64_t key = 0; key < kKeys * kWords.size(); ++key)
    keys.push_back(storm_key(key));
  for (const std::string& key : keys) {
    while (!reader.get(key)) {
    }
  }
  std::vector<std::uint64_t> words(kWords[0]);
  std::vector<std::uint64_t> last(keys.size());
  std::uint64_t torn = 0;
  std::uint64_t older = 0;
  const std::uint64_t puts_before = puts.load();
  const ClientStats before = reader.stats();
  for (std::uint64_t i = 0; i < given["gets"]; ++i) {
    const std::size_t key = i % keys.size();
    const auto got =
        reader.get_into(keys[key], std::as_writable_bytes(std::span<std::uint64_t>(words)));
    if (!got) give_up("get", got.error());
    torn += got->bytes == kWords[key / kKeys] * 8 && is_whole(words, got->bytes / 8) ? 0 : 1;
    older += words[0] < last[key] ? 1 : 0;
    last[key] = words[0];
  }
  const ClientStats after = reader.stats();
  over = true;
  for (auto& writer : writers)
    writer.get();
  return {{"gets", given["gets"]},
          {"puts", puts.load() - puts_before},
          {"one_sided", after.one_sided_gets - before.one_sided_gets},
          {"tears_detected", after.tears_detected - before.tears_detected},
          {"tears_undetected", torn},
          {"older_after_newer", older}};
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(argc, argv,
                                 {.name = "bench_storm",
                                  .purpose = "GETs racing writers.",
                                  .flags = {{"gets", "GETs to measure", 100'000}},
                                  .phases = {{"storm", rkv::bench::storm}}});
}
