#include "common/scan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace rkv {
namespace {

using Map = std::map<std::string, std::string>;
using std::string_literals::operator""s;

std::vector<std::byte> encoded(const ScanQuery& query) {
  std::vector<std::byte> bytes(kMaxScanQueryBytes);
  bytes.resize(encode(query, bytes));
  return bytes;
}

// Makes one page, like a server whose database is this map.
std::vector<std::byte> page_of(const Map& map, Bytes asked) {
  const auto query = decode_scan_query(asked);
  EXPECT_TRUE(query);
  const KeyRange range = range_of(*query);
  ScanPageWriter writer(*query);
  std::vector<Map::const_iterator> in_range;
  for (auto at = map.begin(); at != map.end(); ++at) {
    if (range.holds(at->first)) in_range.push_back(at);
  }
  if (range.reverse) std::ranges::reverse(in_range);
  for (const auto& at : in_range) {
    if (!writer.add({.version = Version::of(1, at->first.size()),
                     .key = as_bytes(at->first),
                     .value = as_bytes(at->second)})) {
      return std::move(writer).finish(true);
    }
  }
  return std::move(writer).finish(false);
}

struct Shown {
  std::vector<std::string> keys;
  std::size_t pages = 0;
};

// All pages. Every one but the last is full.
Shown scan(const Map& map, ScanQuery query) {
  Shown shown;
  std::vector<std::byte> token;
  do {
    query.token = token;
    const auto page = page_of(map, encoded(query));
    const auto view = decode_scan_page(page, query.reverse);
    EXPECT_TRUE(view);
    for (const ScanItem& item : view->items) {
      shown.keys.emplace_back(as_text(item.key));
      EXPECT_EQ(item.value_length, map.at(shown.keys.back()).size());
      EXPECT_EQ(as_text(item.value), item.left_out ? "" : map.at(shown.keys.back()));
    }
    ++shown.pages;
    if (!view->token.empty() && query.limit != 0) {
      EXPECT_EQ(view->items.size(), query.limit);
    }
    token.assign(view->token.begin(), view->token.end());
  } while (!token.empty());
  return shown;
}

std::vector<std::string> expected(const Map& map, const ScanQuery& query) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map) {
    if (key.starts_with(as_text(query.prefix)) && key >= as_text(query.start) &&
        (query.end.empty() || key < as_text(query.end)))
      keys.push_back(key);
  }
  if (query.reverse) std::ranges::reverse(keys);
  return keys;
}

// Few different bytes, the highest among them: so that keys are prefixes of each other and end
// where prefixes end.
rc::Gen<std::string> short_text(std::size_t most) {
  return rc::gen::mapcat(rc::gen::inRange<std::size_t>(0, most + 1), [](std::size_t length) {
    return rc::gen::container<std::string>(length,
                                           rc::gen::element('\0', 'a', 'b', '\xFE', '\xFF'));
  });
}

RC_GTEST_PROP(Scan, ShowsTheRangeAtEveryPageSize, ()) {
  Map map = *rc::gen::container<Map>(short_text(4), rc::gen::arbitrary<std::string>());
  map.erase("");
  const std::string prefix = *short_text(2);
  const std::string start = *short_text(3);
  const std::string end = *short_text(3);
  for (const bool reverse : {false, true}) {
    for (const std::uint32_t limit : {0U, 1U, 2U, 3U, 7U}) {
      const ScanQuery query{.reverse = reverse,
                            .limit = limit,
                            .prefix = as_bytes(prefix),
                            .start = as_bytes(start),
                            .end = as_bytes(end)};
      RC_ASSERT(scan(map, query).keys == expected(map, query));
    }
  }
}

TEST(Scan, PrefixesOfTheHighestBytesHaveAnEnd) {
  const Map map = {{"\xFE", "1"},
                   {"\xFE\xFF", "2"},
                   {"\xFE\xFF\xFF", "3"},
                   {"\xFF", "4"},
                   {"\xFF\xFE", "5"},
                   {"\xFF\xFF", "6"},
                   {"\xFF\xFF\xFF", "7"},
                   {"\xFF\xFF"
                    "a",
                    "8"}};
  for (const bool reverse : {false, true}) {
    for (const std::string_view prefix : {"", "\xFE", "\xFE\xFF", "\xFF", "\xFF\xFF", "a"}) {
      const ScanQuery query{.reverse = reverse, .limit = 1, .prefix = as_bytes(prefix)};
      EXPECT_EQ(scan(map, query).keys, expected(map, query)) << prefix;
    }
  }
}

TEST(Scan, EmptyRangesAreEmpty) {
  const Map map = {{"a", "1"}, {"b", "2"}};
  for (const auto& [start, end] :
       {std::pair{"b", "a"}, std::pair{"b", "b"}, std::pair{"c", ""}, std::pair{"", "a"}}) {
    const Shown shown = scan(map, {.start = as_bytes(start), .end = as_bytes(end)});
    EXPECT_TRUE(shown.keys.empty());
    EXPECT_EQ(shown.pages, 1U);
  }
  EXPECT_TRUE(range_of({.prefix = as_bytes("b"), .end = as_bytes("b")}).is_empty());
  EXPECT_TRUE(scan({}, {}).keys.empty());
}

TEST(Scan, PagesEndWhereTheyAreFull) {
  Map map;
  for (int i = 0; i < 100; ++i)
    map["key" + std::to_string(i)] = std::string(5000, 'v');
  map["long"] = std::string(kMaxScanValueBytes, 'v');
  map["longer"] = std::string(kMaxScanValueBytes + 1, 'v');  // left out
  const Shown shown = scan(map, {});
  EXPECT_EQ(shown.keys.size(), 102U);
  EXPECT_EQ(shown.pages, 5U);
  EXPECT_EQ(scan(map, {.keys_only = true}).pages, 1U);
  const std::string key(kMaxKeyBytes, 'k');
  EXPECT_EQ(scan({{key, map["long"]}, {key.substr(1), map["long"]}}, {}).pages, 2U)
      << "the longest of all entries";
}

// A page of records that are all passed over goes on behind them.
TEST(Scan, EmptyPagesGetOn) {
  ScanPageWriter writer(ScanQuery{.prefix = as_bytes("a")});
  writer.pass(as_bytes("ab"));
  const auto page = std::move(writer).finish(true);
  const auto view = decode_scan_page(page, false);
  ASSERT_TRUE(view);
  EXPECT_TRUE(view->items.empty());
  const auto bytes = encoded({.prefix = as_bytes("a"), .token = view->token});
  const auto next = decode_scan_query(bytes);
  ASSERT_TRUE(next);
  EXPECT_EQ(range_of(*next).lower, "ab\0"s);
  EXPECT_EQ(range_of(*next).upper, "b");
}

class ScanToken : public ::testing::Test {
 protected:
  static std::vector<std::byte> token_of(const ScanQuery& query, std::string_view key) {
    ScanPageWriter writer(query);
    writer.pass(as_bytes(key));
    const auto page = std::move(writer).finish(true);
    const auto view = decode_scan_page(page, query.reverse);
    EXPECT_TRUE(view);
    return {view->token.begin(), view->token.end()};
  }
  static Code code_of(ScanQuery query, Bytes token) {
    query.token = token;
    const auto decoded = decode_scan_query(encoded(query));
    return decoded ? Code{} : decoded.error().code;
  }
  const ScanQuery query_{
      .limit = 5, .prefix = as_bytes("k"), .start = as_bytes("ka"), .end = as_bytes("kz")};
  const std::vector<std::byte> token_ = token_of(query_, "kb");
};

TEST_F(ScanToken, ThatIsGarbledIsRefused) {
  ASSERT_EQ(code_of(query_, token_), Code{});
  for (std::size_t at = 0; at < token_.size(); ++at) {
    for (const unsigned bit : {1U, 0x80U}) {
      auto bad = token_;
      bad[at] ^= std::byte{static_cast<std::uint8_t>(bit)};
      EXPECT_EQ(code_of(query_, bad), Code::kInvalidArgument) << at;
    }
    EXPECT_EQ(code_of(query_, Bytes(token_).first(at)), at == 0 ? Code{} : Code::kInvalidArgument);
  }
  auto longer = token_;
  longer.push_back(std::byte{'b'});
  EXPECT_EQ(code_of(query_, longer), Code::kInvalidArgument);
}

TEST_F(ScanToken, BelongsToItsScan) {
  ScanQuery same = query_;
  same.limit = 1;
  same.keys_only = true;
  EXPECT_EQ(code_of(same, token_), Code{}) << "these may differ from page to page";
  for (auto change :
       {+[](ScanQuery& q) { q.reverse = true; }, +[](ScanQuery& q) { q.prefix = {}; },
        +[](ScanQuery& q) { q.start = as_bytes("kb"); }, +[](ScanQuery& q) { q.end = {}; },
        +[](ScanQuery& q) { std::swap(q.start, q.end); },
        +[](ScanQuery& q) {
          q.prefix = as_bytes("kk");
          q.start = as_bytes("a");
        }}) {
    ScanQuery other = query_;
    change(other);
    EXPECT_EQ(code_of(other, token_), Code::kInvalidArgument);
  }
}

RC_GTEST_PROP(ScanQueryBytes, AreTakenOrRefused, (std::vector<std::uint8_t> bytes)) {
  (void)decode_scan_query(std::as_bytes(std::span(bytes)));  // the sanitizers look at it
}

RC_GTEST_PROP(ScanPageBytes, AreTakenOrRefused,
              (std::vector<std::uint8_t> noise, std::uint32_t count, bool reverse)) {
  (void)decode_scan_page(std::as_bytes(std::span(noise)), reverse);
  ScanPageWriter writer(ScanQuery{});
  RC_ASSERT(writer.add({.key = as_bytes("a"), .value = as_bytes("value")}));
  RC_ASSERT(writer.add({.key = as_bytes("b"), .value = as_bytes("value")}));
  auto page = std::move(writer).finish(true);
  RC_ASSERT(decode_scan_page(page, false).has_value());
  RC_ASSERT(!decode_scan_page(page, true));  // (SCAN-1)
  for (std::size_t length = 0; length < page.size(); ++length)
    RC_ASSERT(!decode_scan_page(Bytes(page).first(length), false));
  for (std::size_t i = 0; i < noise.size(); ++i)
    page[(count + i * 7) % page.size()] = std::byte{noise[i]};
  const auto view = decode_scan_page(page, false);
  if (view) RC_ASSERT(view->items.size() <= 2);
}

TEST(ScanQueryBytes, HaveTheirLimits) {
  const std::string longest(kMaxKeyBytes, 'k');
  const auto most =
      encoded({.prefix = as_bytes(longest), .start = as_bytes(longest), .end = as_bytes(longest)});
  EXPECT_TRUE(decode_scan_query(most));
  for (std::size_t field : {2U, 4U, 6U}) {
    auto longer = most;
    longer.push_back(std::byte{'k'});
    store_le(longer.data() + field, static_cast<std::uint16_t>(kMaxKeyBytes + 1));
    const auto decoded = decode_scan_query(longer);
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().code, Code::kTooLarge);
  }
  for (std::size_t reserved : {1U, 10U, 11U}) {
    auto bad = most;
    bad[reserved] = std::byte{1};
    EXPECT_FALSE(decode_scan_query(bad));
  }
  auto bad = most;
  bad[0] = std::byte{4};
  EXPECT_FALSE(decode_scan_query(bad));
}

}  // namespace
}  // namespace rkv
