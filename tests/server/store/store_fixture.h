// A store on plain memory, and the reference reader of that memory.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/random.h"
#include "server/log/commit_log.h"
#include "server/memory/memory.h"
#include "server/store/store.h"
#include "tests/support/manual_clock.h"
#include "tests/support/plain_memory.h"
#include "tests/support/reference_reader.h"

namespace rkv::server {

inline constexpr std::uint64_t kTestEpoch = 0x1D0C'0FFE'E000'0001U;
inline constexpr std::uint32_t kTestBoot = 7;

// Random tests run a tenth as long under sanitizers, which are some ten times slower; the figures
// and the canaries are a matter of the plain build.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline MemoryOptions small_memory() {
  return {.memory_bytes = kMinMemoryBytes, .epoch = kTestEpoch, .hash_seed = 42};
}
// Has room for the longest values.
inline MemoryOptions roomy_memory() {
  MemoryOptions options = small_memory();
  options.memory_bytes = std::size_t{256} << 20;
  return options;
}
inline std::string random_text(std::uint64_t seed, std::size_t length) {
  std::string value(length, '\0');
  Random random(seed);
  for (char& c : value)
    c = static_cast<char>(random());
  return value;
}
// So many segments from the start and no more, ever.
inline void fix_index(MemoryOptions& options, std::uint32_t segments) {
  options.initial_segments = options.max_segments = segments;
}
// One pair of groups for all keys: neighbours, stash and refills are everyday events.
inline MemoryOptions one_pair() {
  MemoryOptions options = small_memory();
  options.groups_per_segment = 2;
  fix_index(options, 1);
  return options;
}

// Starts with that pair and splits again and again; extents come one by one.
inline MemoryOptions growing_pairs() {
  MemoryOptions options = small_memory();
  options.groups_per_segment = 2;
  options.initial_segments = 1;
  options.max_segments = 64;
  options.index_extent_bytes = std::size_t{4} * 2 * kGroupBytes;
  options.data_extent_bytes = std::size_t{1} << 20;
  return options;
}

inline const StoreMemory::Extent& first_data_extent(const StoreMemory& memory) {
  std::uint32_t id = 0;
  while (memory.extent(id).kind != ExtentEntry::kData)
    ++id;
  return memory.extent(id);
}

inline void add_all_data_extents(StoreMemory& memory) {
  while (memory.next_extent_bytes(ExtentEntry::kData) != 0)
    ASSERT_TRUE(memory.add_extent(ExtentEntry::kData));
}

struct StoreUnderTest {
  explicit StoreUnderTest(const MemoryOptions& options,
                          std::unique_ptr<CommitLog> commits = nullptr)
      : StoreUnderTest(testing::make_plain_memory(options), std::move(commits)) {}
  explicit StoreUnderTest(std::unique_ptr<StoreMemory> given,
                          std::unique_ptr<CommitLog> commits = nullptr)
      : memory(std::move(given)),
        log(commits ? std::move(commits) : CommitLog::create_volatile()),
        store(*memory, *log, clock, kTestBoot),
        reader(memory->root().bytes(), kTestEpoch) {}
  ~StoreUnderTest() { EXPECT_EQ(store.check_at_rest(), ""); }
  StoreUnderTest(const StoreUnderTest&) = delete;
  StoreUnderTest& operator=(const StoreUnderTest&) = delete;

  Result<PutResult> put(std::string_view key, std::string_view value) {
    clock.advance(10 * kNanosPerMs);  // freed blocks are old enough to be used again
    auto put = store.put(as_bytes(key), as_bytes(value));
    while (!put && put.error().code == Code::kBusy && grow())
      put = store.put(as_bytes(key), as_bytes(value));
    grow();
    return put;
  }
  // Does the work of a server's background thread.
  bool grow() {
    if (!store.growth().wants_memory()) return false;
    const auto grown = store.growth().grow();
    return grown && *grown;
  }
  Result<Version> remove(std::string_view key) {
    clock.advance(10 * kNanosPerMs);
    return store.remove(as_bytes(key));
  }
  // Return the server's answer, and the record that a one-sided reader finds.
  std::optional<std::string> get(std::string_view key) {
    const auto result = store.get(as_bytes(key), buffer);
    if (!result) return std::nullopt;
    return std::string(as_text(Bytes(buffer).first(result->value_length)));
  }
  testing::Answer read(std::string_view key) { return reader.get_now(port, std::string(key)); }
  // The one-sided answer, from the server where the reader asks for it.
  std::optional<std::string> read_or_ask(std::string_view key) {
    const testing::Answer answer = read(key);
    if (answer.kind == testing::Answer::Kind::kAskServer) return get(key);
    if (answer.kind == testing::Answer::Kind::kMiss) return std::nullopt;
    return answer.value;
  }

  ManualClock clock;
  std::unique_ptr<StoreMemory> memory;
  std::unique_ptr<CommitLog> log;
  Store store;
  testing::ReferenceReader reader;
  testing::ReadPort port;
  std::vector<std::byte> buffer = std::vector<std::byte>(kMaxInlineBytes);
};

}  // namespace rkv::server
