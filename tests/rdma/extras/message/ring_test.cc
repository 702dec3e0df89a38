// The arithmetic of rings against a model that tracks every byte, tokens from dishonest peers, and
// the byte queue of a stream. No device.
//
// Mutations tried: each of these changes to rdma/extras/message/ring.h makes a test here fail, or
// never end.
// RING-1  a place is free when the peer has freed it, reaped or not    ...KnowsEveryByte
//         a place is free when it is reaped, freed or not              ...KnowsEveryByte
//         padding is not counted as taken; a record may wrap around    ...KnowsEveryByte
// RING-2  no limit of records that are not freed, or not reaped        ...KnowsEveryByte
// RING-3  release() frees up to the record that is released            ...KnowsEveryByte
// RING-4  a doorbell's place, length, or space is not checked          ...AreRefused
//         a credit beyond what was sent is accepted                    ...AreRefused
//         an old credit counts as impossible, or as new                ...KnowsEveryByte
// RING-5  reported at three quarters of the ring, or all of the slots  ...IsNeverStuck, AQuarter...
//         reported at every record                                     ...EightCredits...
#include "rdma/extras/message/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>

#include "common/random.h"
#include "rdma/extras/message/token.h"
#include "rkv/rdma/message/byte_queue.h"

namespace rkv::rdma::detail {
namespace {

constexpr std::uint32_t kNearTheEnd = std::numeric_limits<std::uint32_t>::max() - 1000;

RingShape shape_of(std::uint32_t capacity, std::uint32_t slots, bool sequenced) {
  return {.capacity = capacity, .slots = slots, .max_record = capacity / 4, .sequenced = sequenced};
}

// Both ends, the wire between them, and the owner of each byte of the ring.
class Model {
 public:
  Model(const RingShape& shape, std::uint64_t seed)
      : shape_(shape),
        // So that positions and indexes wrap around soon after the start.
        sender_(shape, kNearTheEnd & ~7U),
        receiver_(shape, kNearTheEnd & ~7U, kNearTheEnd + 990),
        owners_(shape.capacity, 0),
        random_(seed) {}

  void step() {
    switch (random_.below(6)) {
      case 0:
      case 1:
        return send(static_cast<std::uint32_t>(kRecordHeader + 1 +
                                               random_.below(shape_.max_record - kRecordHeader)));
      case 2:
        return deliver();
      case 3:
        return reap();
      case 4:
        return release(random_.below(8));
      default:
        return credit();
    }
  }

  void send(std::uint32_t length) {
    const auto placing = sender_.place(length);
    if (!placing) return;
    ++records_;
    ASSERT_EQ(placing->offset % kRecordAlign, 0U);
    ASSERT_LE(placing->offset + length, shape_.capacity) << "a record wraps around";
    for (std::uint32_t i = 0; i < length; ++i) {
      ASSERT_EQ(owners_[placing->offset + i], 0U) << "byte " << placing->offset + i << " is in use";
      owners_[placing->offset + i] = records_;
    }
    wire_.push_back({.number = records_,
                     .immediate = sender_.doorbell_of(*placing, length),
                     .offset = placing->offset,
                     .length = length});
    sender_.sent(*placing);
    unreaped_.push_back(wire_.back());
    ASSERT_LE(unreaped_.size(), shape_.slots) << "the send queue overflows";
  }
  void deliver() {
    if (wire_.empty()) return;
    const Flight flight = wire_.front();
    wire_.pop_front();
    const auto index = receiver_.arrived(flight.immediate);
    ASSERT_TRUE(index.has_value()) << "a true doorbell is refused";
    ASSERT_EQ(receiver_.record(*index).offset, flight.offset);
    ASSERT_EQ(receiver_.record(*index).length, flight.length);
    ASSERT_FALSE(receiver_.is_lent(*index));
    receiver_.lend(*index);
    ASSERT_TRUE(held_.emplace(*index, flight).second) << "an index is given out twice";
    ASSERT_LE(held_.size(), shape_.slots);
    delivered_ = flight.number;
  }
  // A WRITE completes some time after its delivery.
  void reap() {
    if (unreaped_.empty() || unreaped_.front().number > delivered_) return;
    sender_.reaped();
    const Flight done = unreaped_.front();
    unreaped_.pop_front();
    clear(done,
          std::ranges::none_of(held_, [&](auto& h) { return h.second.number == done.number; }));
  }
  void release(std::uint64_t which) {
    if (held_.empty()) return;
    auto one = held_.begin();
    std::advance(one, which % held_.size());
    ASSERT_TRUE(receiver_.is_lent(one->first));
    const Flight flight = one->second;
    receiver_.release(one->first);
    ASSERT_FALSE(receiver_.is_lent(one->first));
    held_.erase(one);
    clear(flight, unreaped_.empty() || unreaped_.front().number > flight.number);
    if (receiver_.must_tell()) {
      told_.push_back(receiver_.freed());
      receiver_.announced();
    }
    seen_.push_back(receiver_.freed());
    if (seen_.size() > 8) seen_.pop_front();
  }
  // Delivers the oldest credit in flight, or a report of one of the last releases: messages of the
  // other way carry the newest, and a faulty peer repeats an old one.
  void credit() {
    if (random_.below(4) == 0 && !seen_.empty()) {
      ASSERT_TRUE(sender_.freed(seen_[random_.below(seen_.size())]));
    } else if (!told_.empty()) {
      ASSERT_TRUE(sender_.freed(told_.front())) << "a true credit is refused";
      told_.pop_front();
    }
  }
  // Everything in flight arrives and is released; credits are sent only by must_tell().
  void settle() {
    while (!wire_.empty())
      deliver();
    while (!held_.empty())
      release(random_.below(8));
    while (!unreaped_.empty())
      reap();
    for (; !told_.empty(); told_.pop_front())
      ASSERT_TRUE(sender_.freed(told_.front()));
  }

  RingSender& sender() { return sender_; }
  RingReceiver& receiver() { return receiver_; }
  std::uint64_t records() const { return records_; }
  std::size_t credits_under_way() const { return told_.size(); }

 private:
  struct Flight {
    std::uint64_t number;
    std::uint32_t immediate;
    std::uint32_t offset;
    std::uint32_t length;
  };
  // A byte is free for a new record when both the reader and this side's device are done with it.
  void clear(const Flight& flight, bool both) {
    if (!both) return;
    std::fill_n(owners_.begin() + flight.offset, flight.length, 0U);
  }

  RingShape shape_;
  RingSender sender_;
  RingReceiver receiver_;
  std::vector<std::uint64_t> owners_;
  std::deque<Flight> wire_;
  std::deque<Flight> unreaped_;
  std::map<std::uint32_t, Flight> held_;
  std::deque<Freed> told_;
  std::deque<Freed> seen_;
  std::uint64_t records_ = 0;
  std::uint64_t delivered_ = 0;
  Random random_;
};

TEST(Rings, AModelThatKnowsEveryByte) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const std::uint32_t slots = 1U << (seed % 6);
    Model model(shape_of(1U << (9 + seed % 4), slots, seed % 2 == 0), seed);
    for (int i = 0; i < 5000; ++i) {
      model.step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(model.records(), 100U);
  }
}

TEST(Rings, ASenderIsNeverStuckWhenItsPeerHoldsNothing) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const RingShape shape = shape_of(4096, 1U << (seed % 6), false);
    Model model(shape, seed);
    for (int i = 0; i < 400; ++i) {
      for (int j = 0; j < 20; ++j)
        model.step();
      model.settle();
      if (::testing::Test::HasFatalFailure()) return;
      ASSERT_TRUE(model.sender().place(shape.max_record)) << "after " << i << " rounds";
    }
  }
}

// The number of receives beside the slots relies on this.
TEST(Rings, NoMoreThanEightCreditsAreUnderWay) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Model model(shape_of(4096, 1U << (seed % 8), false), seed);
    Random random(seed);
    for (int i = 0; i < 3000; ++i) {
      model.send(static_cast<std::uint32_t>(9 + random.below(1 + 900 * (seed % 2))));
      model.deliver();
      model.release(0);
      model.reap();
      if (random.below(40) == 0) model.settle();
      ASSERT_LE(model.credits_under_way(), 8U);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Rings, AQuarterThatIsFreeIsToldAndNothingLess) {
  const auto released = [](std::uint32_t slots, std::uint32_t length, std::uint32_t count) {
    const RingShape shape = shape_of(4096, slots, true);
    RingReceiver receiver(shape);
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto index = receiver.arrived(doorbell(shape, 0, i, length));
      receiver.lend(*index);
      receiver.release(*index);
    }
    return receiver.must_tell();
  };
  EXPECT_FALSE(released(64, 16, 15));
  EXPECT_TRUE(released(64, 16, 16));
  EXPECT_FALSE(released(64, 512, 1));
  EXPECT_TRUE(released(64, 512, 2));
  EXPECT_TRUE(released(1, 16, 1));
}

TEST(Rings, FilledToTheLastByteAndEmptiedManyTimes) {
  const RingShape shape = shape_of(4096, 64, false);
  Model model(shape, 1);
  for (int round = 0; round < 3000; ++round) {
    for (int i = 0; i < 4; ++i)
      model.send(shape.max_record);
    // The first round starts in the middle of the ring.
    EXPECT_TRUE(round == 0 || !model.sender().place(9));
    model.settle();
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
  }
  EXPECT_EQ(model.records(), 11999U);
}

TEST(Rings, LargeOnesUseTheFormWithANumber) {
  EXPECT_FALSE(RingShape::needs_sequence(1U << 19, 65535));
  EXPECT_TRUE(RingShape::needs_sequence(1U << 20, 65535));
  EXPECT_TRUE(RingShape::needs_sequence(1U << 19, 65536));
  const RingShape large{
      .capacity = 1U << 30, .slots = 8, .max_record = (1U << 24) - 1, .sequenced = true};
  RingSender sender(large);
  RingReceiver receiver(large);
  for (std::uint32_t i = 0; i < 600; ++i) {
    const std::uint32_t length = large.max_record - i;
    const auto placing = sender.place(length);
    ASSERT_TRUE(placing);
    const auto index = receiver.arrived(sender.doorbell_of(*placing, length));
    ASSERT_TRUE(index) << i;
    EXPECT_EQ(receiver.record(*index).length, length);
    EXPECT_EQ(receiver.record(*index).offset, placing->offset);
    sender.sent(*placing);
    sender.reaped();
    receiver.lend(*index);
    receiver.release(*index);
    ASSERT_TRUE(sender.freed(receiver.freed()));
  }
}

TEST(Rings, TheLongestMessageFitsItsDoorbellAndItsToken) {
  for (std::uint32_t bytes = 4096; bytes <= kMaxRingBytes; bytes *= 2) {
    const std::uint32_t longest = longest_message(bytes, 0);
    const RingShape shape{
        .capacity = bytes, .slots = 4, .max_record = longest + kRecordHeader, .sequenced = true};
    EXPECT_LE(shape.max_record, bytes / 4);
    RingSender sender(shape);
    RingReceiver receiver(shape);
    for (int i = 0; i < 3; ++i) {
      const auto placing = sender.place(shape.max_record);
      ASSERT_TRUE(placing);
      const auto index = receiver.arrived(sender.doorbell_of(*placing, shape.max_record));
      ASSERT_TRUE(index) << bytes << " bytes, record " << i;
      EXPECT_EQ(receiver.record(*index).length, shape.max_record);
      sender.sent(*placing);
    }
    const Token token{.kind = TransportKind::kCreditRing,
                      .max_message = longest,
                      .slots = 4,
                      .ring = {.address = 4096, .length = bytes, .rkey = 1}};
    EXPECT_TRUE(decode(encode(token), TransportKind::kCreditRing)) << bytes;
    EXPECT_EQ(longest_message(bytes, 100), 100U);
    EXPECT_EQ(longest_message(bytes, 0xFFFF'FFFF), longest);
  }
}

TEST(Rings, DoorbellsAndCreditsThatCannotBeAreRefused) {
  for (const bool sequenced : {false, true}) {
    const RingShape shape = shape_of(4096, 4, sequenced);
    RingReceiver receiver(shape);
    EXPECT_FALSE(receiver.arrived(doorbell(shape, 0, 0, 0)));
    EXPECT_FALSE(receiver.arrived(doorbell(shape, 0, 0, kRecordHeader)));
    EXPECT_FALSE(receiver.arrived(doorbell(shape, 0, 0, shape.max_record + 1)));
    EXPECT_FALSE(receiver.arrived(doorbell(shape, 8, 1, 100)));
    EXPECT_FALSE(receiver.arrived(0xFFFF'FFFF));
    for (std::uint32_t i = 0; i < 4; ++i)
      EXPECT_TRUE(receiver.arrived(doorbell(shape, i * 16, i, 16)));
    EXPECT_FALSE(receiver.arrived(doorbell(shape, 64, 4, 16)));  // no slot is free
    EXPECT_EQ(receiver.held(), 4U);

    const RingShape wide = shape_of(4096, 8, sequenced);
    RingReceiver full(wide);
    for (std::uint32_t i = 0; i < 4; ++i)
      EXPECT_TRUE(full.arrived(doorbell(wide, i * 1024, i, 1024)));
    EXPECT_FALSE(full.arrived(doorbell(wide, 0, 4, 16)));  // no byte is free
  }
  RingSender sender(shape_of(4096, 4, false));
  sender.sent(*sender.place(100));
  EXPECT_FALSE(sender.freed({.position = 112, .count = 1}));
  EXPECT_FALSE(sender.freed({.position = 104, .count = 2}));
  EXPECT_FALSE(sender.freed({.position = 0, .count = 0xFFFF'FFFF}));
  EXPECT_TRUE(sender.freed({.position = 104, .count = 1}));
  EXPECT_TRUE(sender.freed({.position = 0, .count = 0}));  // old: neither impossible nor new
  EXPECT_EQ(sender.known(), (Freed{.position = 104, .count = 1}));
}

TEST(Rings, NoImmediateLeadsOutsideTheRing) {
  Random random(3);
  for (int round = 0; round < 2000; ++round) {
    const RingShape shape = shape_of(1U << (9 + round % 8), 8, round % 2 == 0);
    RingReceiver receiver(shape, static_cast<std::uint32_t>(random()) & ~7U);
    for (int i = 0; i < 100; ++i) {
      // Close enough to valid values to be accepted sometimes.
      auto immediate = static_cast<std::uint32_t>(random());
      if (random.below(2) == 0) immediate &= 0xFF00'03FF;
      const auto index = receiver.arrived(immediate);
      if (!index) continue;
      const auto& record = receiver.record(*index);
      ASSERT_LE(record.offset, shape.capacity);
      ASSERT_LE(record.length, shape.capacity - record.offset);
      receiver.lend(*index);
      if (random.below(2) == 0) receiver.release(*index);
    }
  }
}

constexpr auto kRingKind = TransportKind::kCreditRing;

Token sample() {
  return {.kind = kRingKind,
          .sequenced = true,
          .max_message = 1000,
          .slots = 64,
          .ring = {.address = 0x7000'0000'1000, .length = 65536, .rkey = 0x1234}};
}

TEST(Tokens, ComeBackAsTheyWere) {
  const auto ring = decode(encode(sample()), kRingKind);
  ASSERT_TRUE(ring) << to_string(ring.error());
  EXPECT_EQ(*ring, sample());
  Token later = sample();
  later.sequenced = false;
  later.key_follows = true;
  EXPECT_EQ(decode(encode(later), kRingKind), later);
  const Token plain{.kind = TransportKind::kSendReceive, .max_message = 1500, .slots = 100};
  const auto back = decode(encode(plain), TransportKind::kSendReceive);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, plain);
}

TEST(Tokens, EveryBitCounts) {
  const auto good = encode(sample());
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const auto answer = decode(bad, kRingKind);
    ASSERT_FALSE(answer) << "bit " << bit;
    EXPECT_TRUE(answer.error().code == Code::kCorrupt ||
                answer.error().code == Code::kVersionMismatch);
  }
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(decode(Bytes(good).first(length), kRingKind));
  Random random(5);
  for (int i = 0; i < 20000; ++i) {
    auto noise = good;
    for (std::size_t from = i % 2 == 0 ? 0 : 8; from < noise.size(); ++from)
      noise[from] = static_cast<std::byte>(random());
    EXPECT_FALSE(decode(noise, kRingKind));
  }
}

TEST(Tokens, TheErrorSaysWhatIsWrong) {
  const auto code = [](const Token& token, TransportKind expected) {
    const auto answer = decode(encode(token), expected);
    return answer ? std::optional<Code>() : answer.error().code;
  };
  const Token good = sample();
  EXPECT_EQ(code(good, TransportKind::kSendReceive), Code::kVersionMismatch);
  const auto changed = [&](auto change) {
    Token token = good;
    change(token);
    return code(token, kRingKind);
  };
  const auto text = [&](const Token& token) {
    return to_string(decode(encode(token), token.kind).error());
  };
  Token empty = good;
  empty.slots = 0;
  EXPECT_NE(text(empty).find("number of messages"), std::string::npos) << text(empty);
  empty = good;
  empty.max_message = 0;
  EXPECT_NE(text(empty).find("longest message"), std::string::npos) << text(empty);
  EXPECT_EQ(changed([](Token& t) { t.max_message = 0; }), Code::kCorrupt);
  EXPECT_EQ(changed([](Token& t) { t.max_message = 0xFFFF'FFFF; }), Code::kCorrupt);
  EXPECT_EQ(changed([](Token& t) { t.slots = 0; }), Code::kCorrupt);
  EXPECT_EQ(changed([](Token& t) { t.slots = 63; }), Code::kCorrupt);
  EXPECT_EQ(changed([](Token& t) { t.slots = 1U << 30; }), Code::kCorrupt);
  EXPECT_EQ(changed([](Token& t) { t.ring.length = 65537; }), Code::kCorrupt);
  EXPECT_EQ(changed([](Token& t) { t.ring.length = 8; }), Code::kCorrupt);
  EXPECT_EQ(changed([](Token& t) { t.ring.length = std::uint64_t{1} << 40; }), Code::kCorrupt);
  EXPECT_EQ(changed([](Token& t) { t.ring.address = ~std::uint64_t{0} - 63; }), Code::kCorrupt);
  EXPECT_EQ(changed([](Token& t) { t.ring.address += 8; }), Code::kCorrupt);
}

TEST(Tokens, ARefusalTellsItsReason) {
  const Error rejected{.code = Code::kRejected, .call = "rdma_connect"};
  for (const Code code : {Code::kVersionMismatch, Code::kCorrupt}) {
    EXPECT_EQ(understand_refusal(rejected, refusal({.code = code})).code, code);
  }
  EXPECT_EQ(understand_refusal(rejected, {}).code, Code::kRejected);
  EXPECT_EQ(understand_refusal(rejected, refusal({.code = Code::kOutOfMemory})).code,
            Code::kRejected);
  const Error other{.code = Code::kTimeout};
  EXPECT_EQ(understand_refusal(other, refusal({.code = Code::kCorrupt})).code, Code::kTimeout);
}

TEST(ByteQueues, AModelThatIsADeque) {
  Random random(9);
  ByteQueue queue(10000);
  std::deque<std::byte> model;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes(random.below(700));
    if (random.below(2) == 0) {
      for (std::byte& byte : bytes)
        byte = static_cast<std::byte>(random());
      if (bytes.size() > queue.room()) continue;
      queue.push(bytes);
      model.insert(model.end(), bytes.begin(), bytes.end());
    } else {
      const std::size_t count = queue.pop(bytes);
      ASSERT_EQ(count, std::min(bytes.size(), model.size()));
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count),
                             model.begin()));
      model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(count));
    }
    ASSERT_EQ(queue.size(), model.size());
    ASSERT_EQ(queue.size() + queue.room(), 10000U);
  }
}

}  // namespace
}  // namespace rkv::rdma::detail
