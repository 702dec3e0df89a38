// Values up to 16 MiB: every way in and out, and what can happen to them on their way.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <thread>

#include "common/bytes.h"
#include "common/random.h"
#include "rkv/limits.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Bytes that say which value they are of, and where in it: a torn one cannot pass.
std::string patterned(std::uint64_t seed, std::size_t length) {
  std::string value(length, '\0');
  Random random(seed);
  std::size_t at = 0;
  for (; at + 8 <= length; at += 8) {
    const std::uint64_t word = random();
    std::memcpy(value.data() + at, &word, 8);
  }
  for (; at < length; ++at)
    value[at] = static_cast<char>(seed + at);
  return value;
}

constexpr std::size_t kSizes[] = {
    0,       1,    3000,         kMaxInlineBytes - 30, kMaxInlineBytes,    kMaxInlineBytes + 1,
    300'001, kMiB, 3 * kMiB + 7, 8 * kMiB + 1,         kMaxValueBytes - 1, kMaxValueBytes};

TEST(Large, EverySizeGoesInAndComesOutByEveryWay) {
  Server server({"--memory", "512MiB"});
  Client writer = server.client();
  Client reader = server.client();
  auto in = writer.allocate_buffer(kMaxValueBytes);
  auto out = reader.allocate_buffer(kMaxValueBytes);
  ASSERT_TRUE(in) << to_string(in.error());
  ASSERT_TRUE(out) << to_string(out.error());
  std::uint64_t seed = 0;
  for (const std::size_t size : kSizes) {
    SCOPED_TRACE(size);
    const std::string key = fmt::format("key-{}", size);
    const std::string first = patterned(++seed, size);
    const auto put = writer.put(key, first);
    ASSERT_TRUE(put) << to_string(put.error());
    const auto got = reader.get(key);
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_EQ(got->version, *put);
    EXPECT_TRUE(got->value == first);
    // Over itself, from registered memory into registered memory.
    const std::string second = patterned(++seed, size);
    std::memcpy(in->bytes().data(), second.data(), size);
    const auto again = writer.put_from(key, *in, size);
    ASSERT_TRUE(again) << to_string(again.error());
    const auto into = reader.get_into(key, *out);
    ASSERT_TRUE(into) << to_string(into.error());
    EXPECT_EQ(into->version, *again);
    ASSERT_EQ(into->bytes, size);
    EXPECT_EQ(std::memcmp(out->bytes().data(), second.data(), size), 0);
    // And ordinary memory.
    std::vector<std::byte> plain(size);
    const auto copied = reader.get_into(key, plain);
    ASSERT_TRUE(copied) << to_string(copied.error());
    EXPECT_TRUE(as_text(plain) == second);
  }
  EXPECT_EQ(reader.stats().two_sided_gets, 0U) << "the server took part in a GET";
}

TEST(Large, ABufferThatIsTooShortIsToldTheLength) {
  Server server({"--memory", "256MiB"});
  Client client = server.client();
  auto buffer = client.allocate_buffer(kMiB);
  ASSERT_TRUE(buffer);
  for (const std::size_t size : {2 * kMiB, kMiB + 1}) {
    ASSERT_TRUE(client.put("key", std::string(size, 'v')));
    const auto got = client.get_into("key", *buffer);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, Code::kTooLarge);
    EXPECT_EQ(client.needed_bytes(), size);
    std::vector<std::byte> plain(size - 1);
    EXPECT_EQ(client.get_into("key", plain).error().code, Code::kTooLarge);
    EXPECT_EQ(client.needed_bytes(), size);
  }
  ASSERT_TRUE(client.put("key", std::string(kMiB, 'w')));
  ASSERT_TRUE(client.get_into("key", *buffer));
  std::vector<std::byte> tiny(3);
  ASSERT_TRUE(client.put("small", "four"));
  EXPECT_EQ(client.get_into("small", tiny).error().code, Code::kTooLarge);
  EXPECT_EQ(client.needed_bytes(), 4U);
  EXPECT_EQ(client.put_from("key", *buffer, kMiB + 1).error().code, Code::kInvalidArgument);
  Client other = server.client();
  EXPECT_EQ(other.get_into("key", *buffer).error().code, Code::kInvalidArgument);
  EXPECT_EQ(other.put_from("key", *buffer, 10).error().code, Code::kInvalidArgument);
  EXPECT_EQ(client.allocate_buffer(0).error().code, Code::kInvalidArgument);
}

TEST(Large, ConditionsAndTimesToLiveHoldForThemToo) {
  Server server({"--memory", "256MiB"});
  Client client = server.client();
  const std::string value = patterned(1, kMiB);
  const auto first = client.put_if_absent("key", value);
  ASSERT_TRUE(first) << to_string(first.error());
  EXPECT_EQ(client.put_if_absent("key", patterned(2, kMiB)).error().code, Code::kConflict);
  EXPECT_EQ(client.put_if_version("key", value, *first + 1).error().code, Code::kConflict);
  EXPECT_EQ(client.put_if_version("none", value, *first).error().code, Code::kNotFound);
  ASSERT_TRUE(client.incr("counter"));
  EXPECT_EQ(client.put("counter", value).error().code, Code::kWrongType);
  EXPECT_TRUE(client.get("key")->value == value);
  const std::string next = patterned(3, 2 * kMiB);
  ASSERT_TRUE(client.put_with("key", next, {.ttl = std::chrono::hours(1), .if_version = *first}));
  const auto got = client.get("key");
  ASSERT_TRUE(got);
  EXPECT_NE(got->expires_at_ms, 0U);
  EXPECT_TRUE(got->value == next);
  // Refused values hold no memory: only one value and one counter are left.
  EXPECT_LT(server_stat(client, "data_bytes_used"), 2 * kMiB + 8192);
}

TEST(Large, ManyKeysOfMixedSizesAtOnce) {
  Server server({"--memory", "512MiB"});
  Client client = server.client();
  Random random(7);
  std::vector<std::string> keys;
  std::vector<std::string> values;
  for (int i = 0; i < 300; ++i) {
    const std::size_t most = i % 30 == 0 ? 4 * kMiB : i % 5 == 0 ? 400'000 : 3000;
    keys.push_back(fmt::format("mixed-{}", i));
    values.push_back(patterned(static_cast<std::uint64_t>(i), random.below(most)));
  }
  std::vector<KeyValue> items;
  for (std::size_t i = 0; i < keys.size(); ++i)
    items.push_back({keys[i], values[i]});
  for (const auto& put : client.multi_put(items))
    ASSERT_TRUE(put) << to_string(put.error());
  const std::vector<std::string_view> names(keys.begin(), keys.end());
  const auto got = client.multi_get(names);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    ASSERT_TRUE(got[i]) << to_string(got[i].error());
    EXPECT_TRUE(got[i]->value == values[i]) << i;
  }
}

TEST(Large, NoKeysAndVeryManyKeysAtOnce) {
  Server server({"--memory", "256MiB"});
  Client client = server.client();
  EXPECT_TRUE(client.multi_get({}).empty());
  EXPECT_TRUE(client.multi_put({}).empty());
  std::vector<std::string> keys;
  std::vector<KeyValue> items;
  for (int i = 0; i < 100'000; ++i)
    keys.push_back(fmt::format("many-{}", i));
  for (std::size_t i = 0; i < keys.size(); i += 100)
    items.push_back({keys[i], keys[i]});
  const std::string large = patterned(1, 2 * kMiB);
  items.push_back({"large", large});
  keys.push_back("large");
  for (const auto& put : client.multi_put(items))
    ASSERT_TRUE(put) << to_string(put.error());
  const std::vector<std::string_view> names(keys.begin(), keys.end());
  const auto got = client.multi_get(names, std::chrono::minutes(5));
  ASSERT_EQ(got.size(), 100'001U);
  for (std::size_t i = 0; i < 100'000; ++i) {
    if (i % 100 == 0) {
      ASSERT_TRUE(got[i]) << to_string(got[i].error());
      EXPECT_EQ(got[i]->value, keys[i]);
    } else {
      ASSERT_EQ(got[i].error().code, Code::kNotFound);
    }
  }
  EXPECT_TRUE(got.back()->value == large);
}

TEST(Large, WritersThatNeverPauseAndNothingTorn) {
  Server server({"--memory", "256MiB"});
  constexpr std::size_t kLength = 2 * kMiB;
  const std::string values[] = {patterned(1, kLength), patterned(2, kLength + 8)};
  Client reader = server.client();
  ASSERT_TRUE(reader.put("hot", values[0]));
  std::atomic<bool> stop = false;
  std::atomic<int> puts = 0;
  std::thread writer([&] {
    Client client = server.client();
    for (; !stop; ++puts) {
      const auto put = client.put("hot", values[puts % 2]);
      EXPECT_TRUE(put) << to_string(put.error());
    }
  });
  auto buffer = reader.allocate_buffer(kMaxValueBytes);
  std::uint64_t last = 0;
  int found = 0;
  for (int i = 0; found < 60 || puts < 60; ++i) {
    const auto got = reader.get_into("hot", *buffer);
    if (!got) {  // an honest answer, if it is rewritten faster than it can be read
      ASSERT_EQ(got.error().code, Code::kBusy) << to_string(got.error());
      continue;
    }
    ++found;
    const std::string& of = values[got->bytes == kLength ? 0 : 1];
    ASSERT_EQ(got->bytes, of.size());
    ASSERT_EQ(std::memcmp(buffer->bytes().data(), of.data(), of.size()), 0);
    ASSERT_GE(got->version, last);
    last = got->version;
  }
  stop = true;
  writer.join();
  std::printf("%d puts, %d gets, %lu READs that did not verify\n", puts.load(), found,
              reader.stats().tears_detected);
}

TEST(Large, TheyAreThereAfterAStopAndAfterAKill) {
  ScratchDirectory scratch;
  Server server({"--memory", "512MiB", "--queue", "32MiB", "--data-dir", scratch.path("data")});
  Client client = server.client();
  std::uint64_t seed = 0;
  for (const std::size_t size : kSizes)
    ASSERT_TRUE(client.put(fmt::format("key-{}", size), patterned(++seed, size)));
  ASSERT_TRUE(client.flush());
  for (const bool killed : {false, true}) {
    if (killed) {
      server.kill();
    } else {
      EXPECT_EQ(server.stop(), 0) << server.process().output();
    }
    server.start();
    seed = 0;
    for (const std::size_t size : kSizes) {
      const auto got = client.get(fmt::format("key-{}", size));
      ASSERT_TRUE(got) << size << ": " << to_string(got.error());
      EXPECT_TRUE(got->value == patterned(++seed, size)) << size;
    }
  }
}

TEST(Large, AStoreThatIsTooSmallSaysSo) {
  Server server({"--memory", "16MiB"});
  Client client = server.client();
  ASSERT_TRUE(client.put("key", "small"));
  const auto put = client.put("key", std::string(kMaxValueBytes, 'v'));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kTooLarge) << to_string(put.error());
  EXPECT_EQ(put.error().write, WriteOutcome::kNotApplied);
  EXPECT_NE(client.last_refusal().find("--memory"), std::string::npos) << client.last_refusal();
  // Values are accepted until there is no room, and again when there is some.
  std::size_t taken = 0;
  Error last;
  for (; taken < 100; ++taken) {
    const auto one = client.put(fmt::format("v{}", taken), std::string(kMiB, 'v'),
                                std::chrono::milliseconds(500));
    if (one) continue;
    last = one.error();
    break;
  }
  EXPECT_GE(taken, 3U);
  EXPECT_TRUE(last.code == Code::kOutOfMemory || last.code == Code::kBusy) << to_string(last);
  ASSERT_TRUE(client.remove("v0"));
  EXPECT_TRUE(client.put("again", std::string(kMiB, 'w')));
  EXPECT_EQ(client.get("key")->value, "small");
}

TEST(Large, FilesOf16MiBThroughTheProgram) {
  ScratchDirectory scratch;
  Server server({"--memory", "256MiB"});
  const std::string in = scratch.path("in");
  const std::string out = scratch.path("out");
  std::ofstream(in, std::ios::binary) << patterned(5, kMaxValueBytes);
  const auto shell = [&](const std::string& command) {
    return run_program({"/bin/sh", "-c", command}, 300);
  };
  const std::string program = fmt::format("'{}' --server {}", RKV_KVCLIENT, server.address());
  const Ended put = shell(fmt::format("{} put -x file < '{}'", program, in));
  ASSERT_EQ(put.status, 0) << put.output;
  const Ended get = shell(fmt::format("{} get file > '{}'", program, out));
  ASSERT_EQ(get.status, 0) << get.output;
  const Ended same = shell(fmt::format("cmp '{}' '{}'", in, out));
  EXPECT_EQ(same.status, 0) << same.output;
  std::ofstream(in, std::ios::binary | std::ios::app) << "x";
  const Ended more = shell(fmt::format("{} put -x file < '{}'", program, in));
  EXPECT_EQ(more.status, 2) << more.output;
  EXPECT_NE(more.output.find("16 MiB"), std::string::npos) << more.output;
}

}  // namespace
}  // namespace rkv::testing_support
