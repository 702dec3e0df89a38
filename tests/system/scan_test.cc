// Keys in order, as programs get them: pages, scanners, and what the database itself holds.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "common/bytes.h"
#include "common/random.h"
#include "tests/support/scan_judge.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using rkv::testing::ScanJudge;
using ::testing::HasSubstr;
using Map = std::map<std::string, std::string>;
using Pairs = std::vector<std::pair<std::string, std::string>>;

class Scan : public ::testing::Test {
 protected:
  Map filled(std::size_t keys) {
    Random random(keys);
    Map map;
    while (map.size() < keys) {
      std::string key(1 + random.below(5), '\0');
      for (char& c : key)
        c = "\0a\xFE\xFF"[random.below(4)];
      map[key] = std::string(random.below(300), static_cast<char>(random.below(256)));
    }
    std::vector<KeyValue> items;
    for (const auto& [key, value] : map)
      items.push_back({.key = key, .value = value});
    for (const auto& put : client_.multi_put(items))
      EXPECT_TRUE(put) << to_string(put.error());
    return map;
  }
  Pairs scanned(const ScanOptions& options) {
    Pairs pairs;
    Scanner scanner(client_, options);
    for (const ScanEntry& entry : scanner)
      pairs.emplace_back(entry.key, entry.value);
    EXPECT_TRUE(scanner.status()) << to_string(scanner.status().error());
    return pairs;
  }
  static Pairs expected(const Map& map, const ScanOptions& options) {
    Pairs pairs;
    for (const auto& [key, value] : map) {
      if (key.starts_with(options.prefix) && key >= options.start &&
          (options.end.empty() || key < options.end))
        pairs.emplace_back(key, value);
    }
    if (options.reverse) std::reverse(pairs.begin(), pairs.end());
    if (options.limit != 0 && pairs.size() > options.limit) pairs.resize(options.limit);
    return pairs;
  }

  ScratchDirectory scratch_;
  Server server_{{"--memory", "32MiB", "--data-dir", scratch_.path("data")}};
  Client client_ = server_.client();
};

TEST_F(Scan, ShowsWhatAMapShows) {
  const Map map = filled(400);
  for (const bool reverse : {false, true}) {
    for (const std::string_view prefix : {"", "a", "\xFF", "\xFF\xFF", "\xFE\xFF", "b"}) {
      for (const std::string_view start : {"", "a", "\xFE\xFF"}) {
        const ScanOptions options{.prefix = prefix, .start = start, .reverse = reverse};
        EXPECT_TRUE(scanned(options) == expected(map, options))
            << prefix.size() << start.size() << reverse;
      }
    }
    const ScanOptions limited{.reverse = reverse, .limit = 33};
    EXPECT_TRUE(scanned(limited) == expected(map, limited));
    const ScanOptions between{.start = "a", .end = "\xFE", .reverse = reverse};
    EXPECT_TRUE(scanned(between) == expected(map, between));
    EXPECT_TRUE(scanned({.start = "b", .end = "b", .reverse = reverse}).empty());
  }
}

TEST_F(Scan, GoesOnFromItsTokenAtEveryPageSize) {
  const Map map = filled(40);
  for (const bool reverse : {false, true}) {
    for (std::uint32_t size = 1; size <= 41; ++size) {
      Pairs pairs;
      std::string token;
      do {
        const auto page = client_.scan({.reverse = reverse, .limit = size, .token = token});
        ASSERT_TRUE(page) << to_string(page.error());
        for (const ScanEntry& entry : page->entries())
          pairs.emplace_back(entry.key, entry.value);
        token = page->token();
        ASSERT_TRUE(token.empty() || page->entries().size() == size);
      } while (!token.empty());
      ASSERT_TRUE(pairs == expected(map, {.reverse = reverse})) << size << reverse;
    }
  }
  const auto page = client_.scan({.limit = 1});
  ASSERT_TRUE(page);
  std::string garbled(page->token());
  garbled.back() ^= 1;
  EXPECT_EQ(client_.scan({.token = garbled}).error().code, Code::kInvalidArgument);
  EXPECT_THAT(client_.last_refusal(), HasSubstr("begin without a token"));
  EXPECT_EQ(client_.scan({.prefix = "a", .token = page->token()}).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(client_.scan({.token = "?"}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(client_.scan({.token = std::string(5000, '?')}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(client_.scan({.prefix = std::string(1025, 'k')}).error().code, Code::kTooLarge);
}

// Values of every kind and length, each as a GET finds it.
TEST_F(Scan, ShowsWhatAGetShows) {
  for (const std::size_t length : {0U, 1U, 65'536U, 65'537U, 131'072U, 131'073U, 3'000'000U})
    ASSERT_TRUE(client_.put(fmt::format("v{:07}", length), std::string(length, 'v')));
  ASSERT_TRUE(client_.incr("count", -7));
  ASSERT_TRUE(client_.put_with("soon", "x", {.ttl = std::chrono::hours(1)}));
  ASSERT_TRUE(client_.put_with("then", "x", {.expires_at_ms = 4'000'000'000'000}));
  std::size_t shown = 0;
  Scanner scanner(client_);
  for (const ScanEntry& entry : scanner) {
    const auto got = client_.get(entry.key);
    ASSERT_TRUE(got) << entry.key;
    EXPECT_EQ(entry.value, got->value) << entry.key;
    EXPECT_EQ(entry.value_bytes, got->value.size());
    EXPECT_EQ(entry.version, got->version);
    EXPECT_EQ(entry.expires_at_ms, got->expires_at_ms);
    EXPECT_EQ(entry.is_counter, got->is_counter);
    ++shown;
  }
  EXPECT_TRUE(scanner.status());
  EXPECT_EQ(shown, 10U);
  EXPECT_EQ(client_.get("then")->expires_at_ms, 4'000'000'000'000U);
  const auto keys = client_.scan({.prefix = "v", .keys_only = true});
  ASSERT_TRUE(keys);
  EXPECT_EQ(keys->entries().back().value_bytes, 3'000'000U);
  EXPECT_TRUE(keys->entries().back().value.empty());
}

TEST_F(Scan, ShowsNoKeyThatHasExpired) {
  ASSERT_TRUE(client_.put_with("brief", "x", {.ttl = std::chrono::milliseconds(1)}));
  ASSERT_TRUE(client_.put_with("past", "x", {.expires_at_ms = 1}));
  ASSERT_TRUE(client_.put("stays", "x"));
  Pairs pairs;
  do {
    pairs = scanned({});
  } while (pairs.size() != 1);
  EXPECT_EQ(pairs.front().first, "stays");
}

// The newest number, though it has not been logged.
TEST_F(Scan, ShowsNumbersOfOneSidedCounters) {
  auto counter = client_.open_counter("n");
  ASSERT_TRUE(counter);
  for (std::int64_t i = 1; i <= 200; ++i) {
    ASSERT_TRUE(client_.incr(*counter));
    const auto page = client_.scan();
    ASSERT_TRUE(page) << to_string(page.error());
    ASSERT_EQ(page->entries().size(), 1U);
    EXPECT_TRUE(page->entries()[0].is_counter);
    ASSERT_EQ(load_le<std::int64_t>(as_bytes(page->entries()[0].value).data()), i);
  }
}

// The lines of each page, by tokens as they are printed.
std::vector<std::string> pages_by_shell(const std::string& address, const std::string& output,
                                        const std::vector<std::string>& words) {
  const std::string before =
      output == "json" ? "{\"token\":\"" : "more entries follow: continue with --token ";
  std::vector<std::string> lines;
  for (std::string token, next; lines.size() < 1000; token = std::exchange(next, "")) {
    std::vector<std::string> argv{"--output", output, "scan", "--token", token};
    argv.insert(argv.end(), words.begin(), words.end());
    const Ended page = kvclient(address, argv);
    EXPECT_EQ(page.status, 0) << page.output;
    std::istringstream text(page.output);
    for (std::string line; std::getline(text, line);) {
      if (const std::size_t at = line.find(before); at != std::string::npos) {
        next = line.substr(at + before.size());
        next.resize(next.find_first_not_of("0123456789abcdef") != std::string::npos
                        ? next.find_first_not_of("0123456789abcdef")
                        : next.size());
      } else {
        EXPECT_EQ(next, "") << "something behind the token";
        lines.push_back(line);
      }
    }
    if (next.empty()) break;
  }
  return lines;
}

TEST_F(Scan, GoesOnInTheShell) {
  for (int i = 0; i < 23; ++i)
    ASSERT_TRUE(client_.put(fmt::format("key-{:02}", i), "value"));
  ASSERT_TRUE(client_.put("other", "value"));
  for (const bool reverse : {false, true}) {
    std::vector<std::string> expected;
    for (int i = 0; i < 23; ++i)
      expected.push_back(fmt::format("key-{:02}\tvalue", reverse ? 22 - i : i));
    for (const char* limit : {"7", "23", "24"}) {
      std::vector<std::string> words{"--prefix", "key-", "--limit", limit};
      if (reverse) words.emplace_back("--reverse");
      EXPECT_EQ(pages_by_shell(server_.address(), "text", words), expected);
      EXPECT_EQ(pages_by_shell(server_.address(), "tsv", words), expected);
      const auto objects = pages_by_shell(server_.address(), "json", words);
      ASSERT_EQ(objects.size(), expected.size());
      for (std::size_t i = 0; i < objects.size(); ++i)
        EXPECT_THAT(objects[i], HasSubstr(fmt::format("\"key\":\"{}\"", expected[i].substr(0, 6))));
    }
  }
  const Ended all = kvclient(server_.address(), {"scan", "--prefix", "other", "--limit", "1"});
  EXPECT_EQ(all.output, "other\tvalue\n") << "nothing follows, so there is no token";
}

TEST_F(Scan, ATokenOfAnotherScanIsWrongUsage) {
  ASSERT_TRUE(client_.put("a", ""));
  ASSERT_TRUE(client_.put("b", ""));
  const auto page = client_.scan({.limit = 1});
  ASSERT_TRUE(page);
  std::string token;
  for (const char c : page->token())
    token += fmt::format("{:02x}", static_cast<unsigned char>(c));
  const auto refused = [&](std::vector<std::string> words, const std::string& sentence) {
    words.insert(words.begin(), "scan");
    const Ended ended = kvclient(server_.address(), words);
    EXPECT_EQ(ended.status, 2);
    EXPECT_THAT(ended.output, HasSubstr(sentence));
    EXPECT_EQ(std::ranges::count(ended.output, '\n'), 1) << ended.output;
  };
  EXPECT_EQ(kvclient(server_.address(), {"scan", "--token", token}).output, "b\t\n");
  refused({"--token", token, "--reverse"}, "not one of this scan");
  refused({"--token", token, "--prefix", "b"}, "not one of this scan");
  refused({"--token", token.substr(2)}, "not one of this scan");
  refused({"--token", std::string(4096, '0')}, "the token is not a scan's continuation token");
  refused({"--token", "b"}, "--token needs the token that a scan printed, not 'b'");
}

TEST_F(Scan, GoesOnAfterARestart) {
  const Map map = filled(100);
  ASSERT_TRUE(client_.flush());
  Pairs pairs;
  Scanner first(client_, {.limit = 30});
  for (const ScanEntry& entry : first)
    pairs.emplace_back(entry.key, entry.value);
  const auto page = client_.scan({.limit = 30});
  ASSERT_TRUE(page);
  server_.kill();
  server_.start();
  for (auto& pair : scanned({.token = page->token()}))
    pairs.push_back(pair);
  EXPECT_TRUE(pairs == expected(map, {}));
}

TEST(ScanOfMemory, IsRefused) {
  Server server;
  Client client = server.client();
  const auto page = client.scan();
  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().code, Code::kUnsupported);
  EXPECT_THAT(client.last_refusal(), HasSubstr("--data-dir"));
}

// ------------------------------------------------------------------------------ while others write

struct Written {
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> done{0};
};
constexpr std::size_t kKeys = 400;
std::string key_of(std::size_t i) {
  return fmt::format("{:04}", i);
}
bool is_steady(std::size_t i) {
  return i % 2 == 0;
}

void write(Client& client, std::size_t i, Written& written) {
  const std::uint64_t number = written.begun + 1;
  written.begun = number;
  if (is_steady(i) || number % 2 == 1) {
    // Some of them too long for a page.
    std::string value = std::to_string(number) + " ";
    if (i % 50 == 0) value.append(70'000, 'v');
    ASSERT_TRUE(client.put(key_of(i), value));
  } else {
    ASSERT_TRUE(client.remove(key_of(i)));
  }
  written.done = number;
}

TEST_F(Scan, IsRightWhileOthersWrite) {
  std::vector<Written> written(kKeys);
  for (std::size_t i = 0; i < kKeys; ++i)
    write(client_, i, written[i]);
  std::atomic<bool> stop{false};
  std::thread writer([&, client = server_.client()]() mutable {
    Random random(1);
    while (!stop) {
      const std::size_t i = random.below(kKeys);
      write(client, i, written[i]);
    }
  });
  for (int scan = 0; scan < 20; ++scan) {
    ScanJudge judge;
    std::string token;
    do {
      std::map<std::string, ScanJudge::Known> known;
      for (std::size_t i = 0; i < kKeys; ++i)
        known[key_of(i)] = {.steady = is_steady(i), .progress = {.done = written[i].done}};
      const auto page = client_.scan({.limit = scan % 2 == 0 ? 0U : 37U, .token = token});
      ASSERT_TRUE(page) << to_string(page.error());
      for (std::size_t i = 0; i < kKeys; ++i)
        known[key_of(i)].progress.begun = written[i].begun;
      std::vector<ScanJudge::Entry> entries;
      for (const ScanEntry& entry : page->entries()) {
        entries.push_back(
            {std::string(entry.key), std::strtoull(std::string(entry.value).c_str(), nullptr, 10)});
      }
      token = page->token();
      const auto problem = judge.page(entries, token.empty(), known);
      EXPECT_FALSE(problem) << *problem;
    } while (!token.empty() && !HasFailure());
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace rkv::testing_support
