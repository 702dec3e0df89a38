// GETs where a READ is over when the call returns, as over shared memory: the short way, and every
// way off it.
#include <array>
#include <chrono>

#include "tests/client/client_fixture.h"
#include "tests/client/count_allocations.h"

namespace rkv {
namespace {

class AtOnceTest : public ClientTest {
 protected:
  AtOnceTest() { server_.reads_at_once = true; }
  // Stores the key and reads it once, so that its slot is cached.
  Slot warm(std::string_view key, std::string_view value) {
    const Slot slot = server_.memory->store(key, value);
    server_.memory->add(key, slot);
    EXPECT_EQ(client().get(key)->value, value);
    reads_ = client().stats().rdma_reads;
    return slot;
  }
  std::uint64_t reads() { return client().stats().rdma_reads - reads_; }

  std::uint64_t reads_ = 0;
};

TEST_F(AtOnceTest, AWarmGetIsOneReadWithoutACompletionOrAnAllocation) {
  warm("key", "value");
  std::array<std::byte, 64> room{};
  const std::size_t before = testing::allocation_count();
  const auto got = client().get_into("key", room);
  EXPECT_EQ(testing::allocation_count(), before);
  ASSERT_TRUE(got);
  EXPECT_EQ(as_text(Bytes(room).first(got->bytes)), "value");
  EXPECT_EQ(got->version, Version::of(1, server_.memory->sequence).bits);
  EXPECT_EQ(reads(), 1U);
  EXPECT_EQ(client().stats().gets, 2U);
  EXPECT_EQ(client().stats().one_sided_gets, 2U);
  EXPECT_EQ(client().stats().cache_hits, 1U);
}

TEST_F(AtOnceTest, CountersAndKeysThatExpireAreToldAsSuch) {
  const std::string number("\7\0\0\0\0\0\0\0", kCounterBytes);
  const Slot slot = warm("key", number);
  encode_record(server_.memory->record_bytes_at(slot),
                {.version = Version::of(1, 99),
                 .expiry_ms = 77,
                 .counter = true,
                 .key = as_bytes("key"),
                 .value = as_bytes(number)},
                RecordState::kLive, server_.memory->epoch, slot.location());
  const auto got = client().get("key");
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->is_counter);
  EXPECT_EQ(got->expires_at_ms, 77U);
  EXPECT_EQ(got->value, number);
  EXPECT_EQ(got->version, Version::of(1, 99).bits);
  EXPECT_EQ(reads(), 1U);
}

// Another key of the same home group.
std::string neighbour_of(std::string_view key) {
  for (int i = 0;; ++i) {
    std::string other = "key " + std::to_string(i);
    if (other != key && ScriptedMemory::home(other) == ScriptedMemory::home(key)) return other;
  }
}

TEST_F(AtOnceTest, AKeyNeverAskedForIsOneReadWhereItsGroupIsCached) {
  const std::string other = neighbour_of("key");
  store(other, "other");
  warm("key", "value");
  EXPECT_EQ(client().get(other)->value, "other");
  EXPECT_EQ(reads(), 1U);
  EXPECT_EQ(client().get(other)->value, "other");
  EXPECT_EQ(reads(), 2U);
}

TEST_F(AtOnceTest, ASlotOfItsFingerprintInItsCachedGroupMayBeAnotherKeys) {
  const std::string other = neighbour_of("key");
  const Slot real = server_.memory->store("key", "value");
  const std::uint16_t fingerprint = ScriptedMemory::hash(other).fingerprint();
  server_.memory->add(other, Slot::of(fingerprint, real.units(), real.location()));
  warm("key", "value");
  EXPECT_EQ(client().get(other).error().code, Code::kNotFound);
  EXPECT_GT(reads(), 1U) << "the record, and then the group";
  EXPECT_EQ(client().get(other).error().code, Code::kNotFound);
}

TEST_F(AtOnceTest, OneThatMovedIsFoundWhereItIsNow) {
  const Slot old = warm("key", "old");
  server_.memory->set_state(old, RecordState::kLive, RecordState::kSuperseded);
  server_.memory->clear_slots(ScriptedMemory::home("key"));
  store("key", "new");
  EXPECT_EQ(client().get("key")->value, "new");
  EXPECT_EQ(client().get("key")->value, "new");
}

TEST_F(AtOnceTest, OneThatIsGoneIsMissingAlsoWhereAnotherKeyHasItsPlace) {
  const Slot old = warm("key", "value");
  server_.memory->write(old, "yek", "other", RecordState::kLive);
  server_.memory->clear_slots(ScriptedMemory::home("key"));
  EXPECT_EQ(client().get("key").error().code, Code::kNotFound);
}

TEST_F(AtOnceTest, ATornOneIsReadAgain) {
  const Slot slot = warm("key", "value");
  server_.memory->tear_record(slot);
  int looks = 0;
  server_.before_read = [&] {
    if (++looks == 2) server_.memory->tear_record(slot);  // whole again
  };
  EXPECT_EQ(client().get("key")->value, "value");
  EXPECT_GE(reads(), 2U);
}

TEST_F(AtOnceTest, ABufferTooShortIsToldWhatItNeeds) {
  warm("key", "a longer value");
  std::array<std::byte, 4> room{};
  EXPECT_EQ(client().get_into("key", room).error().code, Code::kTooLarge);
  EXPECT_EQ(client().needed_bytes(), 14U);
}

TEST_F(AtOnceTest, TheEndOfTheServerIsNoticedAndAnotherConnectionMade) {
  warm("key", "value");
  server_.die_at_read = 1;
  EXPECT_EQ(client().get("key")->value, "value");
  EXPECT_EQ(client().stats().reconnects, 1U);
}

TEST_F(AtOnceTest, AVersionThatNoMarkCoversIsNotGivenToWhoInsists) {
  warm("key", "value");
  const GetOptions insisting{.at_least = Durability::kWal, .timeout = std::chrono::milliseconds(5)};
  EXPECT_EQ(client().get("key", insisting).error().code, Code::kUnsupported)
      << "the server keeps its data in memory only";
}

TEST_F(AtOnceTest, KeysThatAreNoneAreRefused) {
  warm("key", "value");
  EXPECT_EQ(client().get("").error().code, Code::kInvalidArgument);
  EXPECT_EQ(client().get(std::string(kMaxKeyBytes + 1, 'k')).error().code, Code::kTooLarge);
}

}  // namespace
}  // namespace rkv
