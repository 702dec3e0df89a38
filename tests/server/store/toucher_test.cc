// Touches: another time to live, the same value, for records of every kind.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/server/store/cells_fixture.h"
#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

using testing::Answer;

StoreResult<PutResult> touch(StoreUnderTest& t, std::string_view key,
                             const PutOptions& options = {}) {
  t.clock.advance(10 * kNanosPerMs);
  auto touched = t.store.touch(as_bytes(key), options, t.buffer);
  while (!touched && touched.error().code == Code::kBusy && t.grow())
    touched = t.store.touch(as_bytes(key), options, t.buffer);
  return touched;
}

std::uint64_t expiry_of(StoreUnderTest& t, std::string_view key) {
  const auto got = t.store.get(as_bytes(key), t.buffer);
  EXPECT_TRUE(got) << key;
  return got ? got->expiry_ms : 0;
}

std::unique_ptr<CommitLog> some_log() {
  return std::move(*CommitLog::create(CommitLog::kMinServerCapacityBytes));
}

// The lengths on both sides of what decides how a record is written.
constexpr std::size_t kLengths[] = {0,
                                    8,
                                    100,
                                    kMaxInlineBytes - 8,
                                    kMaxInlineBytes,
                                    kMaxInlineBytes + 1,
                                    kMaxInlineBytes + 8,
                                    std::size_t{2} << 20};

void expect_only_the_expiry_changes(StoreUnderTest& t) {
  for (const std::size_t length : kLengths) {
    const std::string value = random_text(length, length);
    for (const std::string& key : {std::string("k"), std::string(kMaxKeyBytes, 'K')}) {
      ASSERT_TRUE(t.put(key, value));
      Version last = t.store.get(as_bytes(key), t.buffer)->version;
      // Without an expiry, with the first, with another one, and without again.
      for (const std::uint64_t ttl_ms : {0U, 5'000U, 900'000U, 0U}) {
        const auto touched = touch(t, key, {.ttl_ms = ttl_ms});
        ASSERT_TRUE(touched) << length << ": " << to_string(touched.error());
        EXPECT_GT(touched->version, last);
        last = touched->version;
        const auto got = t.store.get(as_bytes(key), t.buffer);
        ASSERT_TRUE(got);
        EXPECT_EQ(got->version, touched->version);
        EXPECT_EQ(got->slot, touched->slot);
        EXPECT_EQ(got->expiry_ms, ttl_ms == 0 ? 0 : t.store.expiry_clock().end_of(ttl_ms));
        const Answer answer = t.read(key);
        ASSERT_EQ(answer.kind, Answer::Kind::kValue) << length;
        EXPECT_TRUE(answer.value == value) << length;
        EXPECT_EQ(answer.version, touched->version);
        CommitLog::Entry entry;
        while (t.log->consume(&entry)) {
        }
        t.log->advance();
      }
    }
  }
}

TEST(Touch, OnlyTheExpiryChanges) {
  StoreUnderTest t(roomy_memory());
  expect_only_the_expiry_changes(t);
}

TEST(Touch, OnlyTheExpiryChangesOfWhatGoesToDisk) {
  StoreUnderTest t(roomy_memory(), some_log());
  expect_only_the_expiry_changes(t);
}

TEST(Touch, OnlyTheExpiryChangesInScrubbedMemory) {
  MemoryOptions options = roomy_memory();
  options.scrub = true;
  StoreUnderTest t(options);
  expect_only_the_expiry_changes(t);
}

// The head alone is written again: no memory is needed, however long the value is.
TEST(Touch, ALargeValueThatExpiresStaysWhereItIs) {
  StoreUnderTest t(roomy_memory());
  const std::string value = random_text(1, 3'000'000);
  ASSERT_TRUE(t.store.put(as_bytes("k"), as_bytes(value), {.ttl_ms = 5'000}));
  const Slot before = t.store.get(as_bytes("k"), t.buffer)->slot;
  const std::uint64_t used = t.store.stats().data_bytes_used;
  const auto touched = touch(t, "k", {.ttl_ms = 900'000});
  ASSERT_TRUE(touched);
  EXPECT_EQ(touched->slot, before);
  EXPECT_EQ(t.store.stats().data_bytes_used, used);
  EXPECT_EQ(t.store.stats().puts_in_place, 1U);
  EXPECT_TRUE(t.read("k").value == value);
}

// A reader that keeps finding the head half written gets one that is not.
TEST(Touch, ALargeValueThatIsPinnedMoves) {
  StoreUnderTest t(roomy_memory());
  std::vector<std::uint64_t> words(kHintWords);
  t.store.records().add_hint_words(words.data());
  const std::string value = random_text(1, 3'000'000);
  ASSERT_TRUE(t.store.put(as_bytes("k"), as_bytes(value), {.ttl_ms = 5'000}));
  const Slot before = t.store.get(as_bytes("k"), t.buffer)->slot;
  words[t.memory->hash(as_bytes("k")).stripe()] =
      HintWord{.client = 1, .tick_ms = t.memory->tick()}.encode();
  const auto touched = touch(t, "k", {.ttl_ms = 900'000});
  ASSERT_TRUE(touched);
  EXPECT_NE(touched->slot, before);
  EXPECT_TRUE(t.read("k").value == value);
}

TEST(Touch, AnEntryOfTheLogHasTheWholeValue) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{100}, std::size_t{300'000}}) {
    StoreUnderTest t(roomy_memory(), some_log());
    const std::string value = random_text(length, length);
    ASSERT_TRUE(t.put("k", value));
    ASSERT_TRUE(touch(t, "k", {.ttl_ms = 5'000}));
    CommitLog::Entry entry;
    ASSERT_TRUE(t.log->consume(&entry));
    ASSERT_TRUE(t.log->consume(&entry));
    EXPECT_EQ(entry.kind, CommitLog::Kind::kPut);
    EXPECT_EQ(as_text(entry.record.key), "k");
    EXPECT_TRUE(as_text(entry.record.value) == value) << length;
    EXPECT_EQ(entry.record.expiry_ms, expiry_of(t, "k"));
    EXPECT_FALSE(t.log->consume(&entry));
    t.log->advance();
  }
}

TEST(Touch, AKeyThatIsNotThereStaysAway) {
  StoreUnderTest t(roomy_memory());
  EXPECT_EQ(touch(t, "k").error().code, Code::kNotFound);
  ASSERT_TRUE(t.put("k", "v"));
  ASSERT_TRUE(t.remove("k"));
  EXPECT_EQ(touch(t, "k", {.ttl_ms = 1}).error().code, Code::kNotFound);
  EXPECT_FALSE(t.get("k"));
  EXPECT_EQ(t.store.stats().expiring, 0U);
}

TEST(Touch, ANamedVersionMustBeThePresentOne) {
  StoreUnderTest t(roomy_memory());
  for (const std::size_t length : {std::size_t{10}, std::size_t{300'000}}) {
    const Version old = t.put("k", random_text(1, length))->version;
    const Version present = t.put("k", random_text(2, length))->version;
    const auto with = [](Version version) {
      return PutOptions{.condition = Condition::kIfVersion, .expected = version, .ttl_ms = 5'000};
    };
    EXPECT_EQ(touch(t, "k", with(old)).error().code, Code::kConflict);
    EXPECT_EQ(expiry_of(t, "k"), 0U);
    const auto touched = touch(t, "k", with(present));
    ASSERT_TRUE(touched);
    EXPECT_NE(expiry_of(t, "k"), 0U);
    EXPECT_EQ(touch(t, "k", with(present)).error().code, Code::kConflict);
    EXPECT_TRUE(touch(t, "k", with(touched->version)));
    EXPECT_EQ(touch(t, "other", with(present)).error().code, Code::kNotFound);
  }
}

TEST(Touch, AKeyLivesAsLongAsItsLastTouchSays) {
  StoreUnderTest t(roomy_memory());
  for (const std::size_t length : {std::size_t{10}, std::size_t{300'000}}) {
    ASSERT_TRUE(t.store.put(as_bytes("k"), as_bytes(random_text(1, length)), {.ttl_ms = 1'000}));
    ASSERT_TRUE(touch(t, "k", {.ttl_ms = 60'000}));
    t.clock.advance(30'000 * kNanosPerMs);
    (void)t.store.expirer().expire();
    EXPECT_TRUE(t.store.get(as_bytes("k"), t.buffer));
    ASSERT_TRUE(touch(t, "k", {.ttl_ms = 1'000}));
    t.clock.advance(1'100 * kNanosPerMs);
    (void)t.store.expirer().expire();
    EXPECT_FALSE(t.store.get(as_bytes("k"), t.buffer));
    EXPECT_EQ(t.store.stats().expiring, 0U);
  }
}

TEST(Touch, AWriteThatComesTooLateIsNotBegun) {
  StoreUnderTest t(roomy_memory());
  for (const std::size_t length : {std::size_t{10}, std::size_t{300'000}}) {
    ASSERT_TRUE(t.put("k", random_text(1, length)));
    const auto late = touch(t, "k", {.ttl_ms = 5'000, .begin_by = t.clock.now() - 1});
    EXPECT_EQ(late.error().code, Code::kTimeout);
    EXPECT_EQ(expiry_of(t, "k"), 0U);
  }
}

TEST(Touch, ACounterStaysACounter) {
  StoreUnderTest t(roomy_memory());
  ASSERT_TRUE(t.store.counters().add(as_bytes("n"), 41));
  ASSERT_TRUE(touch(t, "n", {.ttl_ms = 5'000}));
  EXPECT_NE(expiry_of(t, "n"), 0U);
  EXPECT_EQ(t.store.counters().add(as_bytes("n"), 1)->number, 42);
}

// The number is taken out of its cell by the device, so that no change of a client is lost.
TEST(Touch, ACounterInACellLeavesIt) {
  CountersUnderTest t(64, some_log());
  const std::uint32_t cell = t.open("n");
  EXPECT_EQ(t.add(cell, 41), 41);
  ASSERT_TRUE(touch(t.under, "n", {.ttl_ms = 5'000}));
  EXPECT_EQ(t.add(cell, 1), std::nullopt) << "the client learns that the counter has left";
  EXPECT_EQ(t.number("n"), 41);
  EXPECT_NE(expiry_of(t.under, "n"), 0U);
  EXPECT_EQ(drain(*t.under.log, nullptr).at("n"), 41);
  EXPECT_EQ(t.add(t.open("n"), 1), 42);
}

// With the device broken nothing has changed, and nothing is kept.
TEST(Touch, ACounterWhoseCellDoesNotAnswerStays) {
  CountersUnderTest t(64, some_log());
  (void)t.open("n");
  t.trouble.broken = true;
  const std::uint64_t used = t.store().stats().data_bytes_used;
  EXPECT_FALSE(touch(t.under, "n", {.ttl_ms = 5'000}));
  EXPECT_EQ(t.store().stats().data_bytes_used, used);
  t.trouble.broken = false;
  EXPECT_TRUE(touch(t.under, "n", {.ttl_ms = 5'000}));
}

// While a touch looks again, a plain value may have become a counter in a cell.
TEST(Touch, ACounterThatTakesTheKeyMeanwhileStaysEightBytesLong) {
  constexpr std::uint32_t kRounds = 3000;
  CountersUnderTest t(kRounds);
  std::atomic<bool> stop = false;
  std::thread toucher([&] {
    std::vector<std::byte> buffer(kMaxInlineBytes);
    while (!stop)
      (void)t.store().touch(as_bytes("n"), {.ttl_ms = 900'000}, buffer);
  });
  for (std::uint32_t round = 0; round < kRounds && !HasFailure(); ++round) {
    const std::string value(20 + round % 100, 'v');
    EXPECT_TRUE(t.store().put(as_bytes("n"), as_bytes(value)));
    EXPECT_TRUE(t.store().remove(as_bytes("n")));
    EXPECT_TRUE(t.store().counters().open(as_bytes("n"), true, t.network));
    EXPECT_EQ(t.number("n"), 0);
    EXPECT_TRUE(t.store().remove(as_bytes("n")));
    t.under.clock.advance(10 * kNanosPerMs);
  }
  stop = true;
  toucher.join();
}

// Readers of a large value meet its head while it is written. They find the value, or nothing that
// they could take for it, and versions rise.
TEST(Touch, ReadersMeetTheHeadOfALargeValueThatIsTouched) {
  StoreUnderTest t(roomy_memory());
  const std::string value = random_text(1, kMaxInlineBytes + 100);
  ASSERT_TRUE(t.store.put(as_bytes("k"), as_bytes(value), {.ttl_ms = 5'000}));
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> touches = 0;
  std::thread toucher([&] {
    std::vector<std::byte> buffer(kMaxInlineBytes);
    for (std::uint64_t ttl_ms = 5'000; !stop; ++ttl_ms) {
      EXPECT_TRUE(t.store.touch(as_bytes("k"), {.ttl_ms = ttl_ms}, buffer));
      ++touches;
    }
  });
  Version newest{};
  std::uint64_t versions = 0;
  constexpr std::uint64_t kEnough = kSanitized ? 20 : 500;
  for (std::uint64_t reads = 0; versions < kEnough && !HasFailure(); ++reads) {
    const Answer answer = t.read("k");
    if (answer.kind == Answer::Kind::kAskServer) continue;  // it met heads half written only
    ASSERT_EQ(answer.kind, Answer::Kind::kValue);
    ASSERT_TRUE(answer.value == value);
    ASSERT_GE(answer.version, newest);
    versions += answer.version > newest ? 1 : 0;
    newest = answer.version;
  }
  stop = true;
  toucher.join();
  EXPECT_GT(touches, kEnough);
  EXPECT_EQ(t.store.stats().puts_in_place, touches);
}

}  // namespace
}  // namespace rkv::server
