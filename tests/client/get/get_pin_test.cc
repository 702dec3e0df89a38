// Pins as the GET machine makes them: when, with what, and that they prove nothing.
#include "tests/client/get/get_fixture.h"

namespace rkv::client {
namespace {

class PinTest : public GetTest {
 protected:
  PinTest() {
    server_.grants_hints = true;
    server_.set_tick(10'000);
    EXPECT_TRUE(server_.load_into(map_));
    slot_ = server_.store(kKey, "value");
    server_.add(kKey, slot_);
  }
  // The record is torn up to READ number `n`, then whole.
  void tear_until(int n) {
    server_.tear_record(slot_);
    before_read(n, [this] { server_.tear_record(slot_); });
  }
  Slot slot_;
};

// Two tries of two READs, two to look, one to swap, two to read.
constexpr int kReadsToPin = 4 + 2 + 1;

TEST_F(PinTest, AfterTwoTornTriesTheStripeIsPinned) {
  tear_until(kReadsToPin + 2);
  ASSERT_EQ(get(kKey), Next::kFound);
  EXPECT_EQ(reads_, kReadsToPin + 2);
  EXPECT_EQ(machine_.counts().pins, 1U);
  const HintWord word = HintWord::decode(server_.hint(kKey));
  EXPECT_EQ(word.client, ScriptedMemory::kClientNumber);
  EXPECT_EQ(word.tick_ms, 10'000U);
  EXPECT_TRUE(pin_counts(server_.hint(kKey), 10'000 + kPinWindowMs));
  EXPECT_FALSE(pin_counts(server_.hint(kKey), 10'000 + kPinWindowMs + 1));
}

TEST_F(PinTest, AnothersPinServesAsWell) {
  const std::uint64_t theirs = HintWord{.client = 1, .tick_ms = 9'800}.encode();
  server_.hint(kKey) = theirs;
  tear_until(kReadsToPin + 1);
  ASSERT_EQ(get(kKey), Next::kFound);
  EXPECT_EQ(server_.hint(kKey), theirs);
  EXPECT_EQ(machine_.counts().pins, 0U);
}

TEST_F(PinTest, APinOfThePastOrOfTheFutureIsReplaced) {
  for (const std::uint64_t tick : {1'000U, 11'000U}) {
    server_.hint(kKey) = HintWord{.client = 1, .tick_ms = tick}.encode();
    before_.clear();
    cache_.clear();
    tear_until(kReadsToPin + 2);
    ASSERT_EQ(get(kKey), Next::kFound);
    EXPECT_EQ(HintWord::decode(server_.hint(kKey)).tick_ms, 10'000U);
  }
}

TEST_F(PinTest, ALostSwapChangesNothing) {
  tear_until(kReadsToPin + 2);
  // Somebody else is faster, with anything at all.
  before_read(kReadsToPin, [this] { server_.hint(kKey) = 4711; });
  ASSERT_EQ(get(kKey), Next::kFound);
  EXPECT_EQ(server_.hint(kKey), 4711U);
  EXPECT_EQ(as_text(machine_.value()), "value");
}

TEST_F(PinTest, WithoutATickThereIsNoPin) {
  server_.root[kTickOffset / 8] ^= 1;
  tear_until(kReadsToPin + 1);
  ASSERT_EQ(get(kKey), Next::kFound);
  EXPECT_EQ(server_.hint(kKey), 0U);
}

TEST_F(PinTest, WithoutHintWordsThereIsNoPin) {
  server_.grants_hints = false;
  EXPECT_TRUE(server_.load_into(map_));
  tear_until(6);
  ASSERT_EQ(get(kKey), Next::kFound);
  EXPECT_EQ(reads_, 6);
}

// A record that never is whole: once pinned, then the server is asked after a stated number of
// READs.
TEST_F(PinTest, TheNumberOfReadsIsBounded) {
  server_.tear_record(slot_);
  expect_two_sided(kKey, GetMachine::Reason::kContention);
  EXPECT_EQ(machine_.counts().pins, 1U);
  EXPECT_EQ(reads_, static_cast<int>(2 * GetMachine::kMaxTries + 3));
}

}  // namespace
}  // namespace rkv::client
