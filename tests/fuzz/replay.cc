// A fuzz target without libFuzzer: the committed corpus, then mutations of it from a seed.
//
//   fuzz_NAME_test                       a new seed, which is printed
//   RKV_FUZZ_SEED=S RKV_FUZZ_FIRST=I RKV_FUZZ_INPUTS=1 fuzz_NAME_test    one input again
//   fuzz_NAME_test --gtest_filter=...    as any GoogleTest program
//
// A target that aborts ends the program, as under libFuzzer. The number of the input is printed
// then, with the command that repeats it.
#include "tests/fuzz/replay.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/fuzz/fuzz.h"

// From the sanitizers' runtime; missing in a build without them.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace rkv::fuzz {
namespace {

using Sample = std::vector<std::uint8_t>;

// The text that the handler of a fatal signal prints.
std::array<char, 256> command_of_input;

void print_command() {
  const std::size_t length = strnlen(command_of_input.data(), command_of_input.size());
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, command_of_input.data(), length);
}

void on_fatal_signal(int number) {
  print_command();
  signal(number, SIG_DFL);
  raise(number);
}

void watch_for_the_end() {
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(print_command);
  }
  signal(SIGABRT, on_fatal_signal);
  if (__sanitizer_set_death_callback != nullptr) return;  // the others are the sanitizer's
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    signal(number, on_fatal_signal);
}

std::vector<Sample> read_corpus() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(replayed.corpus))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());  // a seed means the same inputs everywhere
  std::vector<Sample> out;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    out.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return out;
}

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Numbers at which lengths and bounds go wrong.
constexpr std::uint64_t kEdges[] = {0,
                                    1,
                                    7,
                                    8,
                                    9,
                                    63,
                                    64,
                                    65,
                                    127,
                                    128,
                                    255,
                                    256,
                                    1023,
                                    1024,
                                    1025,
                                    4095,
                                    4096,
                                    32767,
                                    32768,
                                    65535,
                                    65536,
                                    0x1FFFF,
                                    0x20000,
                                    0x20001,
                                    1 << 24,
                                    0x7FFFFFFF,
                                    0x80000000,
                                    0xFFFFFFFF,
                                    0x100000000,
                                    ~std::uint64_t{0} >> 1,
                                    ~std::uint64_t{0} - 7,
                                    ~std::uint64_t{0}};
constexpr std::size_t kMostBytes = 8192;

void overwrite(Sample& sample, Random& random) {
  const std::size_t width = std::size_t{1} << random.below(4);
  if (sample.size() < width) return;
  // Fields are aligned, most of them.
  std::size_t at = random.below(sample.size() - width + 1);
  if (random.below(4) != 0) at -= at % width;
  std::uint64_t value = random();
  if (random.below(3) != 0) value = kEdges[random.below(std::size(kEdges))];
  if (random.below(4) == 0) {
    std::memcpy(&value, sample.data() + at, width);
    value += random.below(17) - 8;
  }
  std::memcpy(sample.data() + at, &value, width);
}

void mutate_once(Sample& sample, const std::vector<Sample>& corpus, Random& random) {
  const std::size_t at = random.below(sample.size() + 1);
  const auto here = sample.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random.below(8)) {
    case 0:
      sample.resize(at);
      break;
    case 1:
      sample.insert(here, 1 + random.below(random.below(8) == 0 ? 600 : 16),
                    static_cast<std::uint8_t>(random()));
      break;
    case 2:
      sample.erase(here, here + static_cast<std::ptrdiff_t>(random.below(sample.size() - at + 1)));
      break;
    case 3: {  // the end of another one
      const Sample& other = corpus[random.below(corpus.size())];
      const std::size_t from = random.below(other.size() + 1);
      sample.resize(at);
      sample.insert(sample.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      break;
    }
    case 4:
      if (at < sample.size()) sample[at] ^= static_cast<std::uint8_t>(1U << random.below(8));
      break;
    default:
      overwrite(sample, random);
      break;
  }
  if (sample.size() > kMostBytes) sample.resize(kMostBytes);
}

void run(const Sample& sample) {
  EXPECT_EQ(LLVMFuzzerTestOneInput(sample.data(), sample.size()), 0);
}

TEST(Fuzz, TheCorpusIsTakenAsPromised) {
  watch_for_the_end();
  const auto corpus = read_corpus();
  ASSERT_FALSE(corpus.empty()) << "no corpus in " << replayed.corpus;
  std::snprintf(command_of_input.data(), command_of_input.size(),
                "\nwhile replaying the corpus in %s\n", replayed.corpus);
  run({});
  for (const Sample& sample : corpus)
    run(sample);
}

TEST(Fuzz, MutationsAreTakenAsPromised) {
  watch_for_the_end();
  const std::vector<Sample> corpus = read_corpus();
  ASSERT_FALSE(corpus.empty()) << "no corpus in " << replayed.corpus;
  const std::uint64_t seed = number_from("RKV_FUZZ_SEED", random_from_kernel());
  const std::uint64_t first = number_from("RKV_FUZZ_FIRST", 0);
  const std::uint64_t count = number_from("RKV_FUZZ_INPUTS", replayed.inputs);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  for (std::uint64_t i = first; i < first + count; ++i) {
    std::snprintf(command_of_input.data(), command_of_input.size(),
                  "\nagain: RKV_FUZZ_SEED=%llu RKV_FUZZ_FIRST=%llu RKV_FUZZ_INPUTS=1 "
                  "fuzz_%s_test --gtest_filter=*Mutations*\n",
                  static_cast<unsigned long long>(seed), static_cast<unsigned long long>(i),
                  replayed.name);
    Random random(mix64(seed) + i);
    Sample sample = corpus[random.below(corpus.size())];
    for (std::uint64_t edits = 1 + random.below(4); edits > 0; --edits)
      mutate_once(sample, corpus, random);
    run(sample);
  }
}

}  // namespace
}  // namespace rkv::fuzz
