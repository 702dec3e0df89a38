// Malformed and truncated messages without pause on real connections to a real server, beside a
// client that behaves: what that one reads is what it wrote, during and afterwards, and the server
// has no more memory and descriptors at the end than at the beginning.
//
// RKV_LIVE_FUZZ_MESSAGES says how many, RKV_LIVE_FUZZ_SEED repeats a run.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "common/pack.h"
#include "common/random.h"
#include "common/scan.h"
#include "common/wire.h"
#include "rdma/choose.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

constexpr std::uint16_t kCredits = 4;  // what the server grants: who sends more is disconnected
constexpr std::size_t kSlotBytes = 4096;
constexpr std::uint64_t kGrowthMostKib = 96 << 10;
constexpr std::uint64_t kToldEach = 100'000;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::uint64_t kib_of(const Process& process, const std::string& name) {
  std::ifstream status(fmt::format("/proc/{}/status", process.pid()));
  std::string rest;
  for (std::string word; status >> word; std::getline(status, rest)) {
    std::uint64_t number = 0;
    if (word == name + ":" && status >> number) return number;
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

// What the descriptors stand for. Without those of the store's memory: over shared memory each
// extent has one, and what is stored may add an extent.
std::multiset<std::string> descriptors_of(const Process& process) {
  std::multiset<std::string> all;
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process.pid()))) {
    std::error_code gone;
    std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!gone && !target.starts_with("/memfd:")) all.insert(std::move(target));
  }
  return all;
}

// ---- what is sent

std::vector<std::vector<std::byte>> well_formed() {
  std::vector<std::vector<std::byte>> all;
  const auto add = [&](const Request& request) {
    std::vector<std::byte> bytes(kMaxMessageBytes);
    bytes.resize(encode(request, bytes));
    all.push_back(std::move(bytes));
  };
  const std::vector<std::byte> zeros(16);
  const Bytes key = as_bytes("fuzz-1");
  const Bytes counter = as_bytes("fuzz-counter");
  const Bytes value = as_bytes("a value of a client that means harm");
  add({.opcode = Opcode::kGet, .key = key});
  add({.opcode = Opcode::kGet, .key = key, .value = zeros});
  add({.opcode = Opcode::kPut, .key = key, .value = value});
  add({.opcode = Opcode::kPut, .ttl_ms = 50, .key = as_bytes("fuzz-2"), .value = value});
  add({.opcode = Opcode::kPut, .condition = Condition::kIfAbsent, .key = key, .value = value});
  add({.opcode = Opcode::kPut,
       .condition = Condition::kIfVersion,
       .expected = {7},
       .key = key,
       .value = value});
  add({.opcode = Opcode::kRemove, .key = key});
  add({.opcode = Opcode::kPing});
  add({.opcode = Opcode::kAdd, .key = counter, .value = Bytes(zeros).first(8)});
  add({.opcode = Opcode::kSwap, .key = counter, .value = zeros});
  std::vector<std::byte> query(kMaxScanQueryBytes);
  query.resize(encode(ScanQuery{.limit = 3, .prefix = as_bytes("fuzz")}, query));
  add({.opcode = Opcode::kScan, .value = query});
  add({.opcode = Opcode::kFlush});
  add({.opcode = Opcode::kRevoke, .value = as_bytes("fuzz")});
  const std::byte create{1};
  add({.opcode = Opcode::kOpenCounter, .key = counter, .value = {&create, 1}});
  std::array<std::byte, kWriteIdBytes> write{};
  encode(WriteId{.session = 7, .sequence = 16}, write);
  add({.opcode = Opcode::kOutcome, .value = write});
  std::vector<std::byte> packed(1024);
  for (const bool all_writes : {true, false}) {
    PackWriter pack(packed);
    for (int i = 0; i < 4; ++i)
      pack.add({.opcode = Opcode::kPut, .key = key, .value = value});
    pack.add({.opcode = Opcode::kAdd, .key = counter, .value = Bytes(zeros).first(8)});
    pack.add({.opcode = Opcode::kRemove, .key = as_bytes("fuzz-2")});
    if (!all_writes) pack.add({.opcode = Opcode::kGet, .key = key});
    add({.opcode = Opcode::kPack, .value = pack.finish()});
  }
  return all;
}

// Requests whose value names memory of the client, which the server READs: each ends the
// connection, because no such memory is there. So they are sent seldom.
std::vector<std::vector<std::byte>> sources() {
  std::vector<std::vector<std::byte>> all;
  std::vector<std::byte> bytes(kValueSourceBytes);
  encode(ValueSource{.address = 4096, .remote_key = 7, .length = kMaxInlineBytes + 1}, bytes);
  std::vector<std::byte> message(kMaxMessageBytes);
  message.resize(
      encode(Request{.opcode = Opcode::kPutLarge, .key = as_bytes("fuzz-large"), .value = bytes},
             message));
  all.push_back(message);
  bytes.assign(kMessageSourceBytes, {});
  encode(MessageSource{.address = 4096, .remote_key = 7, .length = 1000}, bytes);
  message.assign(kMaxMessageBytes, {});
  message.resize(encode(Request{.opcode = Opcode::kLong, .value = bytes}, message));
  all.push_back(message);
  return all;
}

// As many of its edits go to the header as matter there.
std::size_t make_message(Random& random, const std::vector<std::vector<std::byte>>& samples,
                         MutableBytes out) {
  const auto& sample = samples[random.below(samples.size())];
  std::ranges::copy(sample, out.begin());
  std::size_t length = sample.size();
  // Sequences rise, or a server might take one for the answer to another.
  store_le(out.data() + 8, random());
  for (std::uint64_t edits = random.below(4); edits > 0; --edits) {
    const std::size_t reach = random.below(8) == 0 ? length : std::min(length, kRequestHeaderBytes);
    if (reach == 0) break;
    const std::size_t at = random.below(reach);
    switch (random.below(6)) {
      case 0:
        // Truncated; now and then within the header, which ends the connection.
        if (length < kRequestHeaderBytes || random.below(50) == 0) {
          length = random.below(length + 1);
        } else {
          length = kRequestHeaderBytes + random.below(length - kRequestHeaderBytes + 1);
        }
        break;
      case 1:  // longer than it says
        length = std::min(out.size(), length + 1 + random.below(40));
        break;
      case 2:
        out[at] ^= static_cast<std::byte>(1U << random.below(8));
        break;
      case 3:
        out[at] = std::byte{0xFF};
        break;
      default:
        out[at] = static_cast<std::byte>(random());
        break;
    }
  }
  return length;
}

// ---- who sends it

class Attacker {
 public:
  explicit Attacker(const std::string& address) : address_(address) {
    auto chosen =
        rdma::choose_for_client({.kind = test_transport_kind(), .verbs = {.address = address}});
    EXPECT_TRUE(chosen) << to_string(chosen.error());
    transport_ = std::move(chosen->transport);
    queue_ = std::move(
        *transport_->create_queue({.receive_buffers = 2 * kCredits, .receive_bytes = 16 << 10}));
    memory_ = std::move(*transport_->allocate(kCredits * kSlotBytes, rdma::Access::kLocal));
    for (std::size_t i = 0; i < kCredits; ++i)
      free_.push_back(i);
  }

  // Sends messages until `count` are sent; reconnects where the server ends the connection.
  void send_all(std::uint64_t count, Random& random) {
    const auto samples = well_formed();
    const auto seldom = sources();
    while (sent_ < count && !::testing::Test::HasFailure()) {
      if (!connection_) connect();
      if (!connection_) return;
      while (sent_ < count && unanswered_ < granted_ && !free_.empty()) {
        if (!send_one(random, random.below(1000) == 0 ? seldom : samples)) break;
      }
      if (sent_ >= told_ + kToldEach) tell();
      take();
    }
    const Deadline deadline = Deadline::after_ms(clock_, 20'000);
    while (connection_ && unanswered_ != 0 && !deadline.passed())
      take();
    EXPECT_TRUE(!connection_ || unanswered_ == 0) << "neither answered nor ended";
    connection_.reset();
  }
  std::uint64_t sent() const { return sent_; }
  std::uint64_t answered() const { return answered_; }
  std::uint64_t done() const { return done_; }
  std::uint64_t connects() const { return connects_; }

 private:
  void connect() {
    std::byte data[kConnectRequestBytes];
    encode(ConnectRequest{.credits_wanted = kCredits, .name = "fuzz"}, data);
    auto made = transport_->connect(*queue_, {.grant = rdma::Access::kRemoteRead}, address_, data,
                                    Deadline::after_ms(clock_, 20'000), nullptr);
    ASSERT_TRUE(made) << to_string(made.error());
    connection_ = std::move(*made);
    const auto accept = decode_connect_accept(connection_->private_data());
    ASSERT_TRUE(accept) << to_string(accept.error());
    granted_ = accept->credits;
    unanswered_ = 0;
    ++connects_;
  }
  // False: the connection is dead, and its end is on its way.
  bool send_one(Random& random, const std::vector<std::vector<std::byte>>& samples) {
    const std::size_t slot = free_.back();
    const MutableBytes room = memory_->bytes().subspan(slot * kSlotBytes, kSlotBytes);
    const std::size_t length = make_message(random, samples, room);
    const auto operation = rdma::Operation::send(room.first(length), memory_->local_key(), slot);
    const auto posted = connection_->post({&operation, 1});
    if (!posted || *posted == 0) return false;
    free_.pop_back();
    ++unanswered_;
    ++sent_;
    return true;
  }
  // A run of millions takes minutes: it shows that it goes on.
  void tell() {
    told_ = sent_;
    std::printf("%llu messages\n", static_cast<unsigned long long>(told_));
    std::fflush(stdout);
  }
  void take() {
    rdma::Completion some[2 * kCredits];
    const std::size_t count = queue_->poll(some);
    bool ended = false;
    for (const rdma::Completion& one : std::span(some, count)) {
      if (one.kind == rdma::Completion::Kind::kSend) free_.push_back(one.context);
      if (one.kind == rdma::Completion::Kind::kDisconnected) ended = true;
      if (one.kind != rdma::Completion::Kind::kReceive) continue;
      const auto response = decode_response(one.message);
      EXPECT_TRUE(response) << "an invalid answer";
      if (response && response->code == 0) ++done_;
      ++answered_;
      --unanswered_;
      queue_->release({&one.receive_buffer, 1});
    }
    if (ended) connection_.reset();
    if (count == 0) queue_->wait(Deadline::after_ms(clock_, 1000));
  }

  SteadyClock clock_;
  std::string address_;
  std::unique_ptr<rdma::Transport> transport_;
  std::unique_ptr<rdma::Queue> queue_;
  std::unique_ptr<rdma::Region> memory_;
  std::unique_ptr<rdma::Connection> connection_;
  std::vector<std::uint64_t> free_;
  std::int64_t unanswered_ = 0;
  std::int64_t granted_ = 0;  // requests that may be unanswered
  std::uint64_t sent_ = 0;
  std::uint64_t answered_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t connects_ = 0;
  std::uint64_t told_ = 0;  // of sent_
};

// ---- who is beside it

class Neighbour {
 public:
  explicit Neighbour(Server& server) : client_(server.client()) {
    for (std::size_t i = 0; i < kKeys; ++i)
      write(i);
  }
  // Reads and writes until stop() is called.
  void live() {
    Random random(1);
    for (; !stop_; ++turns_) {
      const std::size_t key = random.below(kKeys);
      check(key);
      if (turns_ % 8 == 0) write(key);
    }
  }
  void stop() { stop_ = true; }
  void check_all() {
    for (std::size_t i = 0; i < kKeys; ++i)
      check(i);
  }
  Client& client() { return client_; }
  std::uint64_t turns() const { return turns_; }

 private:
  static constexpr std::size_t kKeys = 500;
  static std::string key_of(std::size_t key) { return fmt::format("neighbour's own key {}", key); }
  static std::string value_of(std::size_t key, std::uint64_t version) {
    return fmt::format("{} of {} {}", version, key, std::string(key % 300, 'v'));
  }
  void write(std::size_t key) {
    const auto put = client_.put(key_of(key), value_of(key, ++versions_[key]));
    ASSERT_TRUE(put) << to_string(put.error());
  }
  void check(std::size_t key) {
    const auto got = client_.get(key_of(key));
    ASSERT_TRUE(got) << to_string(got.error());
    ASSERT_EQ(got->value, value_of(key, versions_[key]));
  }

  Client client_;
  std::vector<std::uint64_t> versions_ = std::vector<std::uint64_t>(kKeys);
  std::atomic<bool> stop_ = false;
  std::uint64_t turns_ = 0;
};

TEST(LiveFuzz, AServerAndItsOtherClientsDoNotNotice) {
  const std::uint64_t count = number_from("RKV_LIVE_FUZZ_MESSAGES", 1'000'000);
  const std::uint64_t seed = number_from("RKV_LIVE_FUZZ_SEED", random_from_kernel());
  SCOPED_TRACE(fmt::format("RKV_LIVE_FUZZ_SEED={}", seed));
  Server server({"--memory", "256MiB", "--max-offences", "0"});  // it is thrown out all the time
  Neighbour neighbour(server);
  Random random(seed);
  {
    Attacker first(server.address());  // the server has what it needs for one
    first.send_all(std::min<std::uint64_t>(count / 10, 20'000), random);
  }
  const auto descriptors = descriptors_of(server.process());
  const std::uint64_t kib = kib_of(server.process(), "RssAnon");
  std::thread beside([&] { neighbour.live(); });
  {
    Attacker attacker(server.address());
    attacker.send_all(count, random);
    EXPECT_EQ(attacker.sent(), count);
    // A run in which nothing is answered, or nothing is refused, proves nothing.
    EXPECT_GT(attacker.answered(), count / 2);
    EXPECT_GT(attacker.done(), count / 20);
    EXPECT_LT(attacker.done(), attacker.answered());
    std::printf("%llu messages, %llu answered, %llu of them done, %llu connections\n",
                static_cast<unsigned long long>(attacker.sent()),
                static_cast<unsigned long long>(attacker.answered()),
                static_cast<unsigned long long>(attacker.done()),
                static_cast<unsigned long long>(attacker.connects()));
  }
  neighbour.stop();
  beside.join();
  EXPECT_GT(neighbour.turns(), 0U);
  neighbour.check_all();
  EXPECT_EQ(neighbour.client().stats().reconnects, 0U);
  EXPECT_TRUE(server.process().running()) << server.process().output();
  const SteadyClock clock;
  const Deadline deadline = Deadline::after_ms(clock, 20'000);
  auto left = descriptors_of(server.process());
  while (left.size() > descriptors.size() && !deadline.passed())
    left = descriptors_of(server.process());
  EXPECT_LE(left.size(), descriptors.size())
      << fmt::format("now: {}\nbefore: {}", fmt::join(left, " "), fmt::join(descriptors, " "));
  EXPECT_LE(kib_of(server.process(), "RssAnon"), kib + kGrowthMostKib);
  EXPECT_EQ(server.stop(), 0) << server.process().output();
}

}  // namespace
}  // namespace rkv::testing_support
