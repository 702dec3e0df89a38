// One ring: what goes in comes out, and what a hostile other end can write into it.
#include "rdma/transport/shm/ring.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/random.h"

namespace rkv::rdma::shm {
namespace {

constexpr std::uint64_t kLongest = 5000;

struct Ring {
  alignas(64) RingIndices indices{};
  std::uint64_t bytes = ring_bytes(kLongest);
  std::vector<std::uint64_t> words;
  RingWriter writer;
  RingReader reader;
  std::vector<std::byte> buffer;

  Ring()
      : words(bytes / 8),
        writer(indices, data(), bytes),
        reader(indices, data(), bytes, kLongest),
        buffer(kLongest + 8) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(words.data()); }
  RingReader::Outcome take(std::size_t* length) { return reader.take(buffer.data(), length); }
};

std::string message_of(Random& random, std::size_t length) {
  std::string text(length, '\0');
  for (char& one : text)
    one = static_cast<char>(random());
  return text;
}

TEST(ShmRing, EveryMessageComesOutOnceAndInOrder) {
  const std::uint64_t seed = random_from_kernel();
  SCOPED_TRACE(seed);
  Random random(seed);
  Ring ring;
  std::vector<std::string> inside;
  std::size_t first = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (random.below(2) == 0) {
      const std::string message = message_of(random, random.below(kLongest + 1));
      const auto outcome = ring.writer.place(as_bytes(message));
      ASSERT_NE(outcome, RingWriter::Outcome::kGarbage);
      if (outcome == RingWriter::Outcome::kPlaced) inside.push_back(message);
      // Full means that the longest two do not fit beside what is inside.
      if (outcome == RingWriter::Outcome::kFull) {
        EXPECT_GT(inside.size() - first, 1U);
      }
      ring.writer.publish();
    } else {
      std::size_t length = 0;
      const auto outcome = ring.take(&length);
      ASSERT_EQ(outcome,
                first < inside.size() ? RingReader::Outcome::kTaken : RingReader::Outcome::kEmpty);
      if (outcome == RingReader::Outcome::kEmpty) continue;
      ASSERT_EQ(as_text({ring.buffer.data(), length}), inside[first]);
      inside[first++].clear();
    }
  }
  EXPECT_GT(first, 1000U);
}

TEST(ShmRing, WhoIsHeldUpSaysSoUntilThereIsRoom) {
  Ring ring;
  const std::string message(kLongest, 'x');
  while (ring.writer.place(as_bytes(message)) == RingWriter::Outcome::kPlaced) {
  }
  ring.writer.publish();
  EXPECT_TRUE(ring.reader.producer_waits());
  EXPECT_FALSE(ring.writer.has_room(kLongest));
  std::size_t length = 0;
  ASSERT_EQ(ring.take(&length), RingReader::Outcome::kTaken);
  EXPECT_TRUE(ring.writer.has_room(kLongest));
  EXPECT_EQ(ring.writer.place(as_bytes(message)), RingWriter::Outcome::kPlaced);
  EXPECT_FALSE(ring.reader.producer_waits());
}

TEST(ShmRing, APeersIndicesAndLengthsAreJudged) {
  const auto outcome_of = [](std::uint64_t tail, std::uint64_t length) {
    Ring ring;
    ring.words[0] = length;
    ring.indices.producer.tail = tail;
    std::size_t got = 0;
    return ring.take(&got);
  };
  const std::uint64_t all = ring_bytes(kLongest);
  EXPECT_EQ(outcome_of(16, 8), RingReader::Outcome::kTaken);
  EXPECT_EQ(outcome_of(16, 9), RingReader::Outcome::kGarbage) << "longer than what is there";
  EXPECT_EQ(outcome_of(4, 0), RingReader::Outcome::kGarbage) << "less than a length";
  EXPECT_EQ(outcome_of(all + 8, 8), RingReader::Outcome::kGarbage) << "more than the ring";
  EXPECT_EQ(outcome_of(~std::uint64_t{0}, 8), RingReader::Outcome::kGarbage) << "going back";
  EXPECT_EQ(outcome_of(all, kLongest), RingReader::Outcome::kTaken);
  EXPECT_EQ(outcome_of(all, kLongest + 1), RingReader::Outcome::kGarbage) << "longer than agreed";
  EXPECT_EQ(outcome_of(all, ~std::uint64_t{0}), RingReader::Outcome::kGarbage);
  EXPECT_EQ(outcome_of(all, ~std::uint64_t{0} - 7), RingReader::Outcome::kGarbage);
}

TEST(ShmRing, AConsumersIndexIsJudged) {
  for (const std::uint64_t head : {std::uint64_t{8}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    Ring ring;
    const std::string message(kLongest, 'x');
    while (ring.writer.place(as_bytes(message)) == RingWriter::Outcome::kPlaced) {
    }
    store_word(&ring.indices.consumer.head, head);
    // 8 is a believable head that makes too little room; the others are not heads.
    EXPECT_EQ(ring.writer.place(as_bytes(message)),
              head == 8 ? RingWriter::Outcome::kFull : RingWriter::Outcome::kGarbage);
  }
}

TEST(ShmRing, AFrozenRingEndsWhateverIsAdded) {
  Ring ring;
  EXPECT_EQ(ring.writer.place(as_bytes("one")), RingWriter::Outcome::kPlaced);
  ring.writer.publish();
  ring.reader.freeze();
  EXPECT_EQ(ring.writer.place(as_bytes("two")), RingWriter::Outcome::kPlaced);
  ring.writer.publish();
  std::size_t length = 0;
  EXPECT_EQ(ring.take(&length), RingReader::Outcome::kTaken);
  EXPECT_EQ(ring.take(&length), RingReader::Outcome::kEmpty);
  EXPECT_FALSE(ring.reader.has_message());
}

}  // namespace
}  // namespace rkv::rdma::shm
