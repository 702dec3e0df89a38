// A ring in shared memory (rdma/transport/shm/ring.h) between one of our ends and a peer that
// writes what it likes at any time: nothing outside of buffer and ring is touched, nothing longer
// than agreed is taken, and every call returns (SHMRING-2, SHMRING-3). As long as the peer keeps to
// the rules, messages come out as they were put in.
//
// The first byte chooses our end and the ring's size; then steps: a byte and its arguments each.
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "rdma/transport/shm/ring.h"
#include "tests/fuzz/fuzz.h"

namespace rkv::fuzz {
namespace {

using namespace rdma::shm;

constexpr std::byte kCanary{0xA5};
constexpr std::size_t kCanaryBytes = 64;

// Words that are followed by a canary, which AddressSanitizer would not miss and other builds do.
class Words {
 public:
  explicit Words(std::size_t bytes)
      : bytes_(bytes), words_(std::make_unique<std::uint64_t[]>((bytes + kCanaryBytes) / 8)) {
    std::fill_n(data() + bytes_, kCanaryBytes, kCanary);
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(words_.get()); }
  std::uint64_t* word(std::size_t at) { return words_.get() + at % (bytes_ / 8); }
  void expect_untouched_behind() {
    for (std::size_t i = 0; i < kCanaryBytes; ++i)
      RKV_CHECK(data()[bytes_ + i] == kCanary, "bytes behind the end were written");
  }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::uint64_t[]> words_;
};

struct World {
  explicit World(std::uint8_t choice)
      : ring_bytes(std::size_t{64} << (choice >> 1) % 4),
        longest(ring_bytes / 2 - 8),
        ring(ring_bytes),
        buffer(round_up(longest, 8)),
        writer(indices, ring.data(), ring_bytes),
        reader(indices, ring.data(), ring_bytes, longest) {}

  std::size_t ring_bytes;
  std::size_t longest;
  RingIndices indices{};
  Words ring;
  Words buffer;
  RingWriter writer;
  RingReader reader;
  std::uint64_t taken_bytes = 0;  // of the ring, by the reader
  std::optional<std::uint64_t> frozen_tail;
  std::deque<std::string> sent;  // while nobody has scribbled
  bool honest = true;
  bool over = false;
};

void scribble(World& world, Input& input) {
  world.honest = false;
  const auto value = input.number<std::uint64_t>();
  switch (input.number<std::uint8_t>() % 8) {
    case 0:
      store_word(&world.indices.producer.tail, value);
      break;
    case 1:
      store_word(&world.indices.consumer.head, value);
      break;
    case 2:
      store_word(&world.indices.producer.wants_room, value);
      break;
    case 3:
      store_word(&world.indices.producer.closed, value);
      break;
    case 4:  // a small step, as a real producer makes it
      store_word(&world.indices.producer.tail,
                 load_word(&world.indices.consumer.head) + 8 * (value % 64));
      break;
    case 5:  // a length that may be right
      store_word(world.ring.word(value >> 16), value % (world.longest + 32));
      break;
    default:
      store_word(world.ring.word(value >> 32), value);
      break;
  }
}

void place(World& world, Input& input) {
  const Exact message(input.take(input.number<std::uint16_t>() % (world.longest + 1)));
  const auto outcome = world.writer.place(message.bytes());
  if (outcome == RingWriter::Outcome::kGarbage) {
    RKV_CHECK(!world.honest, "garbage in an honest ring");
    world.over = true;
  }
  if (outcome == RingWriter::Outcome::kFull) {
    RKV_CHECK(!world.honest || !world.sent.empty(), "an empty ring that is full");
  }
  if (outcome == RingWriter::Outcome::kPlaced) {
    world.sent.emplace_back(as_text(message.bytes()));
  }
  world.ring.expect_untouched_behind();
}

void take(World& world) {
  world.writer.publish();
  const std::uint64_t tail = world.frozen_tail.value_or(load_word(&world.indices.producer.tail));
  std::size_t length = 0;
  const auto outcome = world.reader.take(world.buffer.data(), &length);
  if (outcome == RingReader::Outcome::kGarbage) {
    RKV_CHECK(!world.honest, "garbage in an honest ring");
    world.over = true;
  }
  if (outcome == RingReader::Outcome::kEmpty) {
    RKV_CHECK(!world.honest || world.sent.empty(), "a message is lost");
  }
  if (outcome == RingReader::Outcome::kTaken) {
    RKV_CHECK(tail - world.taken_bytes <= world.ring_bytes, "a tail beyond the ring is believed");
    world.taken_bytes += 8 + round_up(length, 8);
    RKV_CHECK(length <= world.longest, "a message longer than agreed");
    if (world.honest) {
      RKV_CHECK(
          !world.sent.empty() && as_text(Bytes(world.buffer.data(), length)) == world.sent.front(),
          "another message than was sent");
      world.sent.pop_front();
    }
  }
  world.buffer.expect_untouched_behind();
}

}  // namespace
}  // namespace rkv::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rkv::fuzz;
  Input input(data, size);
  const auto choice = input.number<std::uint8_t>();
  World world(choice);
  while (!input.empty() && !world.over) {
    switch (const auto step = input.number<std::uint8_t>(); step % 8) {
      case 0:
      case 1:
        place(world, input);
        break;
      case 2:
      case 3:
      case 4:
        take(world);
        break;
      case 5:
        if (choice % 2 == 1) scribble(world, input);
        break;
      case 6:
        (void)world.writer.has_room(step);
        (void)world.reader.has_message();
        (void)world.reader.producer_waits();
        break;
      default:
        if (step != 255) break;
        world.writer.publish();
        world.reader.freeze();  // from here on, what was published before
        if (!world.frozen_tail) world.frozen_tail = rkv::load_word(&world.indices.producer.tail);
        world.honest = false;
        break;
    }
  }
  // An honest ring gives out all that it has.
  while (world.honest && !world.sent.empty())
    take(world);
  return 0;
}
