// Which server a key is kept on: frozen placements, shares, movement, and lists that are wrong.
#include "rkv/shard_map.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "common/random.h"

namespace rkv {
namespace {

std::vector<ShardServer> servers(std::size_t count, std::uint64_t seed = 0) {
  std::vector<ShardServer> list;
  for (std::size_t i = 0; i < count; ++i)
    list.push_back({.address = fmt::format("10.{}.{}.{}:7471", seed / 250, seed % 250, i + 1)});
  return list;
}

ShardMap map_of(std::vector<ShardServer> list) {
  std::string problem;
  auto map = ShardMap::create(std::move(list), &problem);
  EXPECT_TRUE(map) << problem;
  return *map;
}

std::string problem_of(std::string_view list) {
  std::string problem;
  const auto map = ShardMap::parse(list, &problem);
  EXPECT_FALSE(map) << list;
  EXPECT_TRUE(map || map.error().code == Code::kInvalidArgument);
  return problem;
}

std::vector<std::uint64_t> counts(const ShardMap& map, std::size_t keys) {
  std::vector<std::uint64_t> of(map.servers().size());
  std::string key = "user0000000";
  for (std::size_t i = 0; i < keys; ++i) {
    for (std::size_t digit = key.size() - 1; ++key[digit] > '9'; --digit)
      key[digit] = '0';
    ++of[map.shard_of(key)];
  }
  return of;
}

double most_to_mean(const std::vector<std::uint64_t>& of) {
  std::uint64_t sum = 0;
  for (const std::uint64_t one : of)
    sum += one;
  return static_cast<double>(*std::ranges::max_element(of)) * static_cast<double>(of.size()) /
         static_cast<double>(sum);
}

// Data is where it was put: what is computed here may never change (SHARD-1).
TEST(ShardMap, PlacementsAreFrozen) {
  const ShardMap map = map_of({{.address = "10.0.0.1:7471"},
                               {.address = "10.0.0.2:7471"},
                               {.address = "x:1", .name = "third", .weight = 2}});
  const std::map<std::string, std::string> golden = {{"a", "third"},
                                                     {"greeting", "third"},
                                                     {"user1000", "10.0.0.1:7471"},
                                                     {"user1001", "third"},
                                                     {"user1002", "10.0.0.2:7471"},
                                                     {"user1003", "third"},
                                                     {"", "10.0.0.1:7471"},
                                                     {"visits", "third"}};
  for (const auto& [key, identity] : golden)
    EXPECT_EQ(map.servers()[map.shard_of(key)].identity(), identity) << key;
}

TEST(ShardMap, OrderAndAddressesOfNamedServersDoNotMatter) {
  std::vector<ShardServer> list = {{.address = "a:1", .name = "one"},
                                   {.address = "b:1", .name = "two"},
                                   {.address = "c:1", .name = "three", .weight = 3}};
  const ShardMap before = map_of(list);
  std::ranges::reverse(list);
  list[1].address = "elsewhere:9";
  const ShardMap after = map_of(list);
  EXPECT_NE(before, after);
  for (int i = 0; i < 10'000; ++i) {
    const std::string key = fmt::format("k{}", i);
    ASSERT_EQ(before.servers()[before.shard_of(key)].name,
              after.servers()[after.shard_of(key)].name);
  }
}

// SHARD-3, with what chance adds among so many keys.
TEST(ShardMap, SharesAreWithinTheStatedFactor) {
  for (const std::size_t count : {1U, 2U, 3U, 5U, 8U, 13U, 16U}) {
    const double ratio = most_to_mean(counts(map_of(servers(count)), 1'000'000));
    EXPECT_LE(ratio, 1.05) << count;
  }
  EXPECT_LE(most_to_mean(counts(map_of(servers(64)), 1'000'000)), 1.10);
}

TEST(ShardMap, SharesAreWithinTheStatedFactorForAnyNames) {
  double worst_of_few = 0;
  double worst_of_many = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    worst_of_few = std::max(worst_of_few, most_to_mean(counts(map_of(servers(16, seed)), 400'000)));
    worst_of_many =
        std::max(worst_of_many, most_to_mean(counts(map_of(servers(64, seed)), 400'000)));
  }
  EXPECT_LE(worst_of_few, 1.05);
  EXPECT_LE(worst_of_many, 1.10);
}

TEST(ShardMap, WeightsAreShares) {
  const ShardMap map = map_of({{.address = "a:1", .weight = 1},
                               {.address = "b:1", .weight = 3},
                               {.address = "c:1", .weight = 4}});
  const auto of = counts(map, 800'000);
  EXPECT_NEAR(static_cast<double>(of[0]), 100'000, 3000);
  EXPECT_NEAR(static_cast<double>(of[1]), 300'000, 6000);
  EXPECT_NEAR(static_cast<double>(of[2]), 400'000, 6000);
}

// SHARD-2.
TEST(ShardMap, ARemovedServersKeysMoveAndNoOthers) {
  for (const std::size_t count : {2U, 3U, 9U, 32U}) {
    const ShardMap before = map_of(servers(count));
    auto list = servers(count);
    const std::size_t gone = count / 2;
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(gone));
    const ShardMap after = map_of(list);
    std::uint64_t moved = 0;
    for (int i = 0; i < 100'000; ++i) {
      const std::string key = fmt::format("key-{}", i);
      const std::string& from = before.servers()[before.shard_of(key)].address;
      const std::string& to = after.servers()[after.shard_of(key)].address;
      if (before.shard_of(key) == gone) {
        ++moved;
        ASSERT_NE(from, to);
      } else {
        ASSERT_EQ(from, to) << key;  // seen from behind: a server that comes takes keys to itself
      }
    }
    EXPECT_NEAR(static_cast<double>(moved), 100'000.0 / static_cast<double>(count),
                10'000.0 / static_cast<double>(count) + 300);
  }
}

TEST(ShardMap, ListsAreReadWithNamesWeightsAndComments) {
  const auto map = ShardMap::parse(
      "# the store of the shop\n one=10.0.0.1:7471*2 , [::1]:07472\n\n  HOST.example.:7473 # "
      "spare\n");
  ASSERT_TRUE(map);
  const std::vector<ShardServer> expected = {
      {.address = "10.0.0.1:7471", .name = "one", .weight = 2},
      {.address = "[::1]:7472"},
      {.address = "host.example:7473"}};
  EXPECT_EQ(map->servers(), expected);
  EXPECT_EQ(ShardMap::parse("a:1")->servers().size(), 1U);
}

TEST(ShardMap, OneServerUnderTwoSpellingsIsNoticed) {
  for (const char* list : {"a:1,a:1", "a:1,A:1", "a:1,a.:1", "a:7471,a:07471",
                           "[::1]:1,[0:0:0:0:0:0:0:1]:1", "x=a:1,y=a:1", "a:1\nb:1\na:1"}) {
    EXPECT_NE(problem_of(list).find("two servers of the list have the address"), std::string::npos)
        << list << ": " << problem_of(list);
  }
  EXPECT_NE(problem_of("x=a:1,x=b:1").find("two servers of the list have the name x"),
            std::string::npos);
  EXPECT_NE(problem_of("a:1,a:1=b:1").find("a:1"), std::string::npos);
}

TEST(ShardMap, AWrongListIsToldInASentenceThatNamesWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "empty"},
      {" \n # nothing\n", "empty"},
      {"nowhere", "'nowhere'"},
      {"a:1,", "comma"},
      {"a:1,,b:1", "''"},
      {",a:1", "''"},
      {"a:0", "port"},
      {"a:65536", "port"},
      {"a:http", "port"},
      {":1", "HOST:PORT"},
      {"::1:7471", "HOST:PORT"},
      {"[zz]:1", "IPv6"},
      {"=a:1", "NAME"},
      {"a b:1", "HOST:PORT"},
      {"http://a:1", "HOST:PORT"},
      {"a:1*0", "weight 0"},
      {"a:1*17", "weight 17"},
      {"a:1*x", "WEIGHT"},
      {"a:1\nb:2\nc", "line 3"},
      {std::string(65, 'n') + "=a:1", "64 visible"}};
  for (const auto& [list, names] : table) {
    const std::string problem = problem_of(list);
    EXPECT_NE(problem.find(names), std::string::npos) << list << ": " << problem;
    EXPECT_EQ(problem.find('\n'), std::string::npos);
  }
  std::string many;
  for (int i = 1; i <= 65; ++i)
    many += fmt::format("h{}:1\n", i);
  EXPECT_NE(problem_of(many).find("65 servers, but at most 64"), std::string::npos);
  std::string heavy;
  for (int i = 1; i <= 17; ++i)
    heavy += fmt::format("h{}:1*16\n", i);
  EXPECT_NE(problem_of(heavy).find("272"), std::string::npos);
}

// Whatever bytes a file holds: a map or a sentence.
TEST(ShardMap, AnyBytesAreAMapOrASentence) {
  Random random(7);
  constexpr std::string_view kBytes = "a1:,=*#[]. \n\t\0\xFF:7";
  for (int i = 0; i < 20'000; ++i) {
    std::string text(random.below(24), ' ');
    for (char& c : text)
      c = kBytes[random.below(kBytes.size())];
    std::string problem;
    const auto map = ShardMap::parse(text, &problem);
    ASSERT_EQ(map.has_value(), problem.empty()) << text;
    if (!map) continue;
    ASSERT_GE(map->servers().size(), 1U);
    ASSERT_LT(map->shard_of(text), map->servers().size());
  }
}

}  // namespace
}  // namespace rkv
