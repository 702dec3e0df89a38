// A server that means harm: whatever its memory and its answers say, with checksums that fit, a
// client ends every operation with a value or an error, by its deadline, and never by aborting.
#include <gtest/gtest.h>

#include "common/random.h"
#include "tests/client/client_fixture.h"

namespace rkv {
namespace {

using std::chrono::milliseconds;

class HostileServerTest : public ClientTest {
 protected:
  ~HostileServerTest() override { expected_bad_reads_ = server_.memory->bad_reads; }

  template <class Line>
  void put_line(Line line, std::size_t offset) {
    seal_line(line, server_.memory->epoch, offset);
    std::memcpy(reinterpret_cast<std::byte*>(server_.memory->root.data()) + offset, &line,
                sizeof line);
  }
  ExtentEntry entry_of(std::uint32_t id) const {
    ExtentEntry entry;
    const auto* const root = reinterpret_cast<const std::byte*>(server_.memory->root.data());
    std::memcpy(&entry, root + kExtentTableOffset + id * kExtentEntryBytes, sizeof entry);
    return entry;
  }
};

// The index shrinks in the middle of a GET, between the look at a group and the second look.
TEST_F(HostileServerTest, ATableThatShrinksDuringAGet) {
  ScriptedMemory& memory = *server_.memory;
  const KeyHash hash = ScriptedMemory::hash("key");
  const GroupPlace home = ScriptedMemory::home("key");
  client();
  // A record of another key under the key's fingerprint, in an extent that is not known yet.
  const Slot slot = Slot::of(hash.fingerprint(), 3, Location::of(2, 100));
  memory.write(slot, "other", "value", RecordState::kLive);
  memory.add("key", slot);
  server_.before_read = [&] {
    ExtentEntry data = entry_of(ScriptedMemory::kDataExtent);
    data.id = 2;
    put_line(data, kExtentTableOffset + std::size_t{2} * kExtentEntryBytes);
    ExtentEntry index = entry_of(ScriptedMemory::kIndexExtent);
    index.units = static_cast<std::uint32_t>(home.number * kGroupBytes / kUnitBytes);
    put_line(index, kExtentTableOffset);
    put_line(IdentityLine{.extent_count = 3, .epoch = memory.epoch}, kIdentityOffset);
  };
  const auto got = client().get("key");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kCorrupt);
}

// Everything at random; a run names its seed.
class Attacker {
 public:
  Attacker(FakeServer& server, std::uint64_t seed) : server_(server), random_(seed) {}

  void change_memory() {
    ScriptedMemory& memory = *server_.memory;
    switch (random_.below(8)) {
      case 0:
        return line(IdentityLine{.extent_count = small(20), .epoch = memory.epoch},
                    kIdentityOffset);
      case 1: {
        DirectoryLine said = memory.directory_line();
        said.generation = random_();
        said.global_depth = static_cast<std::uint8_t>(small(12));
        said.groups_per_segment = static_cast<std::uint16_t>(1U << small(13));
        if (random_.below(4) == 0) said.address = random_();
        return line(said, kDirectoryLineOffset);
      }
      case 2:
        return extent();
      case 3:
        return line(MarkLine{.value = random_()},
                    random_.below(2) == 0 ? kWalMarkOffset : kSyncMarkOffset);
      case 4:
        memory.directory[random_.below(memory.directory.size())] =
            DirectoryEntry{.extent = small(3), .segment = small(8), .depth = small(4)}.encode(
                memory.epoch);
        return;
      case 5:
        return group();
      case 6:
        return record();
      default:
        memory.data[random_.below(512)] = random_();
        return;
    }
  }
  // The data extent is said to begin near the end of its region: READs beyond the end go astray.
  void move_data() {
    ScriptedMemory& memory = *server_.memory;
    const Bytes where = std::as_bytes(std::span(memory.data));
    line(ExtentEntry{.address = ScriptedMemory::address(where) + where.size() - 16 * kUnitBytes,
                     .remote_key = ScriptedMemory::kDataKey,
                     .units = static_cast<std::uint32_t>(where.size() / kUnitBytes),
                     .id = ScriptedMemory::kDataExtent,
                     .kind = ExtentEntry::kData},
         kExtentTableOffset + ScriptedMemory::kDataExtent * kExtentEntryBytes);
  }
  std::optional<Response> answer(const Request& request) {
    if (random_.below(20) == 0) return std::nullopt;
    Response response{.flags = 0,
                      .version = {random_() >> random_.below(64)},
                      .slot = Slot{random_()},
                      .expiry_ms = random_() >> random_.below(64)};
    if (random_.below(3) == 0) response.code = static_cast<std::uint8_t>(random_.below(256));
    if (response.code != 0) response.slot = {};
    if (response.code != 0) response.retry_after_ms = small(1000);
    if (random_.below(2) == 0) response.flags = static_cast<std::uint8_t>(1U << small(8));
    response.sync_mark = {random_() >> random_.below(64)};
    response.wal_mark = {std::max(response.sync_mark.bits, random_() >> random_.below(64))};
    const bool counts = request.opcode == Opcode::kAdd || request.opcode == Opcode::kOpenCounter ||
                        request.opcode == Opcode::kSwap;
    value_.assign(counts ? 8 : random_.below(300), std::byte(random_.below(256)));
    response.value = value_;
    return response;
  }
  void change_answer(std::vector<std::byte>& message) {
    if (random_.below(10) == 0) message[random_.below(message.size())] ^= std::byte{1};
    if (random_.below(50) == 0) message.resize(random_.below(message.size() + 1));
  }
  std::vector<std::byte> accept() {
    std::vector<std::byte> bytes(196);
    const RemoteWindow root = server_.memory->window();
    encode(ConnectAccept{.epoch = server_.memory->epoch,
                         .session = random_(),
                         .credits = static_cast<std::uint16_t>(1 + small(70)),
                         .max_message_bytes = kMaxMessageBytes,
                         .max_sent_bytes = kMaxMessageBytes,
                         .root = {.address = root.address,
                                  .remote_key = root.remote_key,
                                  .length = root.length - small(root.length)},
                         .hints = window(ScriptedMemory::kHintKey),
                         .counters = window(99)},
           bytes);
    if (random_.below(4) == 0) bytes[random_.below(96)] ^= std::byte(1U << small(8));
    return bytes;
  }
  bool one_in(std::uint64_t many) { return random_.below(many) == 0; }
  std::uint64_t next() { return random_(); }
  std::string key() { return std::to_string(random_.below(6)); }

 private:
  std::uint32_t small(std::uint64_t below) {
    return static_cast<std::uint32_t>(random_.below(below));
  }
  RemoteWindow window(std::uint32_t key) {
    return {
        .address = random_() >> random_.below(64), .remote_key = key, .length = small(1U << 20)};
  }
  template <class Line>
  void line(Line said, std::size_t offset) {
    if (random_.below(8) != 0) seal_line(said, server_.memory->epoch, offset);
    std::memcpy(reinterpret_cast<std::byte*>(server_.memory->root.data()) + offset, &said,
                sizeof said);
  }
  void extent() {
    ScriptedMemory& memory = *server_.memory;
    const std::uint32_t id = small(4);
    const bool index = random_.below(2) == 0;
    const Bytes where =
        index ? std::as_bytes(std::span(memory.groups)) : std::as_bytes(std::span(memory.data));
    line(ExtentEntry{.address = ScriptedMemory::address(where) + 8 * small(64),
                     .remote_key = index ? ScriptedMemory::kIndexKey : ScriptedMemory::kDataKey,
                     .units = small(where.size() / kUnitBytes + 100),
                     .id = random_.below(8) == 0 ? small(20) : id,
                     .kind = small(3)},
         kExtentTableOffset + id * kExtentEntryBytes);
  }
  void group() {
    ScriptedMemory& memory = *server_.memory;
    const std::string name = key();
    const GroupPlace home = ScriptedMemory::home(name);
    memory.change(home, [&](Group& group, GroupHeader& header) {
      header.overflow = random_.below(2) == 0;
      header.spilled = random_.below(8) == 0;
      header.forward = random_.below(16) == 0;
      const auto fingerprint = ScriptedMemory::hash(name).fingerprint();
      group.slots[random_.below(group.slots.size())] =
          Slot::of(fingerprint, small(64), Location::of(small(3), small(64))).bits;
    });
  }
  // Makes a record of any length; counters and large heads are among them.
  void record() {
    ScriptedMemory& memory = *server_.memory;
    const std::string name = key();
    static constexpr std::size_t kLengths[] = {0, 8, 20, 3000, 9000, 131073, 300000};
    const std::string value(kLengths[random_.below(std::size(kLengths))], 'v');
    const std::size_t units = record_units(record_bytes(name.size(), value.size()));
    const Slot slot =
        Slot::of(ScriptedMemory::hash(name).fingerprint(), units, Location::of(1, small(64)));
    const auto states = {RecordState::kLive, RecordState::kSuperseded, RecordState::kPrepared};
    memory.write(slot, name, value, *(states.begin() + random_.below(3)));
    memory.add(name, slot);
  }

  FakeServer& server_;
  Random random_;
  std::vector<std::byte> value_;
};

void operate(Client& client, Attacker& attacker) {
  const std::string key = attacker.key();
  const std::string other = attacker.key();
  const std::string_view keys[] = {key, other, key};
  const KeyValue items[] = {{key, "value"}, {other, "other"}};
  const auto at_least = static_cast<Durability>(1 + attacker.next() % 3);
  switch (attacker.next() % 14) {
    case 0:
    case 1:
    case 2:
      return (void)client.get(key, GetOptions{.at_least = at_least});
    case 3:
    case 4:
      return (void)client.multi_get(keys, GetOptions{.at_least = at_least});
    case 5:
      return (void)client.put(key, "value");
    case 6:
      return (void)client.multi_put(items);
    case 7:
      return (void)client.remove(key);
    case 8:
      return (void)client.incr(key);
    case 9:
      return (void)client.get_counter(key);
    case 10: {
      auto counter = client.open_counter(key);
      if (!counter) return;
      (void)client.incr(*counter);
      (void)client.counter_cas(*counter, 1, 2);
      const CounterAddition additions[] = {{.counter = &*counter}, {.counter = &*counter}};
      return (void)client.multi_incr(additions);
    }
    case 11:
      return (void)client.scan();
    case 12:
      return (void)client.flush();
    default:
      return (void)client.ping_one_sided();
  }
}

TEST_F(HostileServerTest, WhateverItSaysTheClientLives) {
  constexpr int kSeeds = 400;
  int connected = 0;
  int odd = 0;
  int reads = 0;
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    FakeServer server;
    Attacker attacker(server, seed);
    for (const char* key : {"0", "1", "2"})
      server.memory->add(key, server.memory->store(key, "value"));
    if (attacker.one_in(4)) attacker.move_data();
    server.reads_at_once = attacker.one_in(2);
    if (attacker.one_in(2)) server.accept = attacker.accept();
    ClientOptions options{.timeout = milliseconds(50), .large_bytes = std::size_t{16} << 20};
    options.repeat_connect = false;
    auto client =
        Client::connect(options, std::make_shared<AnsweringTransport>(server), &server.clock);
    if (!client) continue;
    ++connected;
    server.before_read = [&] {
      if (attacker.one_in(3)) attacker.change_memory();
    };
    server.answer = [&](const Request& request) { return attacker.answer(request); };
    server.change_answer = [&](std::vector<std::byte>& message) {
      attacker.change_answer(message);
    };
    server.atomic_result = [&] { return attacker.next(); };
    for (int i = 0; i < 40; ++i) {
      const Nanos start = server.clock.now();
      operate(*client, attacker);
      // A few operations of 50 ms each, and what closing a connection takes.
      EXPECT_LE(server.clock.now() - start, 5 * 50 * kNanosPerMs) << "operation " << i;
    }
    odd += server.memory->bad_reads;
    reads += server.reads;
    found += client->stats().one_sided_gets - client->stats().missing;
  }
  EXPECT_GT(connected, kSeeds / 2);
  EXPECT_GT(reads, 10'000);
  EXPECT_GT(found, 0U) << "the attacks leave nothing of the protocol";
  EXPECT_GT(odd, 20) << "too few READs went astray: the attacks are too tame";
}

}  // namespace
}  // namespace rkv
