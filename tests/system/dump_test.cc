// kvclient scan, dump and load: what goes out comes in again, and is what the database holds.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include <fstream>
#include <map>
#include <sstream>

#include "common/bytes.h"
#include "common/random.h"
#include "tests/support/files.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::read_file;
using testing::write_file;

class Dump : public ::testing::Test {
 protected:
  std::vector<std::string> arguments(const std::string& data) const {
    return {"--memory", "64MiB", "--data-dir", scratch_.path(data)};
  }
  // Runs kvclient, which says nothing.
  static void quietly(const Server& server, const std::vector<std::string>& arguments) {
    const Ended ended = kvclient(server.address(), arguments);
    EXPECT_EQ(ended.status, 0) << ended.output;
    EXPECT_EQ(ended.output, "");
  }
  static void loads(const Server& server, const std::vector<std::string>& arguments) {
    const Ended ended = kvclient(server.address(), arguments);
    EXPECT_EQ(ended.status, 0) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("stored"));
  }
  // Keys and values of all bytes and lengths, counters of both kinds, times to live.
  static void fill(Client& client) {
    Random random(5);
    for (int i = 0; i < 200; ++i) {
      std::string key(1 + random.below(12), '\0');
      for (char& c : key)
        c = static_cast<char>(random.below(3) == 0 ? random.below(256) : 'a' + random.below(4));
      std::string value(random.below(200), '\0');
      for (char& c : value)
        c = static_cast<char>(random.below(256));
      PutOptions options;
      if (i % 5 == 0) options.expires_at_ms = 4'000'000'000'000 + random.below(1000);
      ASSERT_TRUE(client.put_with(key, value, options));
    }
    for (const std::size_t length : {65'536U, 65'537U, 131'073U, 1'000'000U})
      ASSERT_TRUE(client.put(fmt::format("long{}", length), std::string(length, '\xC3')));
    for (const char* key : {" ", "{", "{\"key\":1}", "\t", "\\"})
      ASSERT_TRUE(client.put(key, ""));
    ASSERT_TRUE(client.put("tab", "\t\\@counter"));
    for (const std::int64_t number : {INT64_MIN, std::int64_t{-1}, std::int64_t{0}, INT64_MAX})
      ASSERT_TRUE(client.incr(fmt::format("count{}", number), number));
    auto counter = client.open_counter("one-sided");
    ASSERT_TRUE(counter);
    ASSERT_TRUE(client.incr(*counter, 77));
    ASSERT_TRUE(client.incr("count that expires", 5));
    ASSERT_TRUE(client.put_with("count that expires", "",
                                {.expires_at_ms = 4'000'000'000'123, .keep_value = true}));
  }
  ScratchDirectory scratch_;
};

TEST_F(Dump, LoadsToTheSameDump) {
  Server first(arguments("first"));
  Client client = first.client();
  fill(client);
  Server second(arguments("second"));
  for (const std::string format : {"tsv", "jsonl"}) {
    for (const bool hex : {false, true}) {
      const std::string out = scratch_.path("out");
      const std::string again = scratch_.path("again");
      const std::vector<std::string> flags = {"--format", format,
                                              hex ? "--hex=true" : "--hex=false"};
      const auto with = [&](std::vector<std::string> words) {
        words.insert(words.end(), flags.begin(), flags.end());
        return words;
      };
      quietly(first, with({"dump", out}));
      loads(second, with({"load", out}));
      quietly(second, with({"dump", again}));
      EXPECT_EQ(read_file(out).size(), read_file(again).size());
      EXPECT_TRUE(read_file(out) == read_file(again)) << format;
      EXPECT_TRUE(kvclient(first.address(), with({"dump"})).output == read_file(out));
      quietly(second, with({"dump", "/dev/null"}));
      // Emptied, so that the next round begins with nothing.
      Client wiper = second.client();
      Scanner scanner(wiper, {.keys_only = true});
      for (const ScanEntry& entry : scanner)
        ASSERT_TRUE(wiper.remove(entry.key));
      ASSERT_TRUE(wiper.scan()->entries().empty());
    }
  }
}

// By RocksDB alone: what it says of its keys when the server has stopped.
TEST_F(Dump, IsWhatTheDatabaseHolds) {
  Server server(arguments("data"));
  Client client = server.client();
  fill(client);
  ASSERT_TRUE(client.put("gone", "x"));
  ASSERT_TRUE(client.remove("gone"));
  std::map<std::string, std::pair<std::string, std::uint64_t>> dumped;
  std::vector<std::string> order;
  Scanner scanner(client);
  for (const ScanEntry& entry : scanner) {
    dumped[std::string(entry.key)] = {std::string(entry.value), entry.expires_at_ms};
    order.emplace_back(entry.key);
  }
  ASSERT_TRUE(scanner.status());
  const Ended keys = kvclient(server.address(), {"--hex", "scan", "--keys-only"});
  ASSERT_EQ(server.stop(), 0);

  rocksdb::DB* opened = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  ASSERT_TRUE(rocksdb::DB::OpenForReadOnly({}, scratch_.path("data/db"),
                                           {{"default", {}}, {"rkv", {}}}, &families, &opened)
                  .ok());
  const std::unique_ptr<rocksdb::DB> db(opened);
  std::size_t found = 0;
  std::string hex_keys;
  {
    const std::unique_ptr<rocksdb::Iterator> at(db->NewIterator({}, families[0]));
    for (at->SeekToFirst(); at->Valid(); at->Next(), ++found) {
      const std::string key = at->key().ToString();
      const std::string value = at->value().ToString();
      ASSERT_GE(value.size(), 16U);
      ASSERT_TRUE(dumped.contains(key));
      EXPECT_EQ(order[found], key);
      EXPECT_TRUE(dumped[key].first == value.substr(16)) << key;
      const auto traits = load_le<std::uint64_t>(as_bytes(value).data() + 8);
      EXPECT_EQ(dumped[key].second, traits & ~(std::uint64_t{1} << 63));
      for (const char c : key)
        hex_keys += fmt::format("{:02x}", static_cast<unsigned char>(c));
      hex_keys += '\n';
    }
  }
  for (rocksdb::ColumnFamilyHandle* const family : families)
    ASSERT_TRUE(db->DestroyColumnFamilyHandle(family).ok());
  EXPECT_EQ(found, dumped.size());
  EXPECT_EQ(keys.output, hex_keys);
}

// A file that is longer than a part: what comes before a bad line is stored, and said.
TEST_F(Dump, StopsAtABadLine) {
  Server server;
  std::string text;
  for (int i = 0; i < 3000; ++i)
    text += fmt::format("key{}\t{}\n", i, std::string(2000, 'v'));
  write_file(scratch_.path("file"), text + "bad\t\\q\n");
  const Ended ended = kvclient(server.address(), {"load", scratch_.path("file")});
  EXPECT_EQ(ended.status, 4);
  EXPECT_THAT(ended.output, HasSubstr("file:3001:5: unknown escape"));
  EXPECT_THAT(ended.output, HasSubstr("kvclient: stopped after "));
  EXPECT_EQ(std::count(ended.output.begin(), ended.output.end(), '\n'), 1) << ended.output;
  Client client = server.client();
  EXPECT_TRUE(client.get("key0"));
  EXPECT_THAT(ended.output,
              HasSubstr(fmt::format("stopped after {} records", server_stat(client, "records"))));
  loads(server, {"load", "--skip-bad", scratch_.path("file")});
  EXPECT_EQ(server_stat(client, "records"), 3000U);
  // From a short file nothing is stored.
  write_file(scratch_.path("short"), "other\tv\nbad\n");
  EXPECT_EQ(kvclient(server.address(), {"load", scratch_.path("short")}).status, 4);
  EXPECT_EQ(client.get("other").error().code, Code::kNotFound);
}

TEST_F(Dump, SetsCountersToTheirNumbers) {
  Server server;
  Client client = server.client();
  ASSERT_TRUE(client.incr("there", 5));
  write_file(scratch_.path("file"), "there\t9\t\\@counter\nnew\t-3\t\\@counter\n");
  loads(server, {"load", "--verify", scratch_.path("file")});
  EXPECT_EQ(client.get_counter("there")->number, 9);
  EXPECT_EQ(client.get_counter("new")->number, -3);
  ASSERT_TRUE(client.put("plain", "x"));
  write_file(scratch_.path("file"), "plain\t9\t\\@counter\n");
  const Ended ended = kvclient(server.address(), {"load", scratch_.path("file")});
  EXPECT_EQ(ended.status, 4);
  EXPECT_THAT(ended.output, HasSubstr("stopped after 0 records were stored: key plain: "));
}

// Files beside the target are others' business, and none is left.
TEST_F(Dump, TouchesNoFileButItsOwn) {
  Server server(arguments("data"));
  Client client = server.client();
  ASSERT_TRUE(client.put("k", "v"));
  std::filesystem::create_directory(scratch_.path("dir"));
  const std::string out = scratch_.path("dir/out");
  write_file(out + ".partial", "another's");
  quietly(server, {"dump", out});
  EXPECT_EQ(read_file(out), "k\tv\n");
  EXPECT_EQ(read_file(out + ".partial"), "another's");
  const std::filesystem::directory_iterator files(scratch_.path("dir"));
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

// For a process a limit of the file size is like a full disk.
TEST_F(Dump, AtAFileSizeLimitSaysSoAndLeavesNothing) {
  Server server(arguments("data"));
  Client client = server.client();
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(client.put(fmt::format("k{}", i), std::string(1'000'000, 'v')));
  std::filesystem::create_directory(scratch_.path("dir"));
  const auto limited = [&](const std::string& command) {
    return run_program({"/bin/sh", "-c", "ulimit -f 8192 && exec " + command, RKV_KVCLIENT,
                        server.address(), scratch_.path("dir/out")});
  };
  const Ended ended = limited("\"$0\" --server \"$1\" dump \"$2\"");
  EXPECT_EQ(ended.status, 4);
  EXPECT_EQ(ended.output,
            fmt::format("kvclient: cannot write {}: File too large\n", scratch_.path("dir/out")));
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path("dir")));
  const Ended to_stdout = limited("\"$0\" --server \"$1\" dump >\"$2\"");
  EXPECT_EQ(to_stdout.status, 4);
  EXPECT_EQ(to_stdout.output, "kvclient: cannot write to standard output\n");
}

TEST_F(Dump, OfMemoryIsRefused) {
  Server server;
  write_file(scratch_.path("out"), "as it was");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"dump", scratch_.path("out")}, {"scan"}}) {
    const Ended ended = kvclient(server.address(), words);
    EXPECT_EQ(ended.status, 4);
    EXPECT_THAT(ended.output, HasSubstr("--data-dir"));
    EXPECT_EQ(std::count(ended.output.begin(), ended.output.end(), '\n'), 1) << ended.output;
  }
  EXPECT_EQ(read_file(scratch_.path("out")), "as it was");
}

TEST_F(Dump, ScanShowsEveryForm) {
  Server server(arguments("data"));
  Client client = server.client();
  ASSERT_TRUE(client.put("a\tb", "1"));
  ASSERT_TRUE(client.put_with("b", "2", {.expires_at_ms = 4'000'000'000'000}));
  ASSERT_TRUE(client.incr("c", 3));
  const auto said = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "scan");
    const Ended ended = kvclient(server.address(), words);
    EXPECT_EQ(ended.status, 0);
    return ended.output;
  };
  EXPECT_EQ(said({}), "a\\tb\t1\nb\t2\nc\t3\n");
  EXPECT_EQ(said({"--output", "tsv"}),
            "a\\tb\t1\nb\t2\t\\@expires=4000000000000\nc\t3\t\\@counter\n");
  EXPECT_EQ(said({"--keys-only", "--reverse"}), "c\nb\na\\tb\n");
  EXPECT_THAT(
      said({"--start", "b", "--limit", "1"}),
      MatchesRegex("b\t2\nkvclient: more entries follow: continue with --token [0-9a-f]+\n"));
  EXPECT_EQ(said({"--end", "b"}), "a\\tb\t1\n");
  EXPECT_EQ(said({"--prefix", "c"}), "c\t3\n");
  EXPECT_EQ(said({"--hex", "--prefix", "6109"}), "610962\t31\n");
  EXPECT_THAT(said({"--output", "json"}), HasSubstr("{\"key\":\"c\",\"counter\":3,\"version\":"));
  EXPECT_EQ(said({"--prefix", "nothing"}), "");
  EXPECT_EQ(kvclient(server.address(), {"--output", "tsv", "get", "c"}).output,
            "c\t3\t\\@counter\n");
  EXPECT_EQ(kvclient(server.address(), {"--output", "tsv", "mget", "b", "a\tb"}).output,
            "b\t2\t\\@expires=4000000000000\na\\tb\t1\n");
}

}  // namespace
}  // namespace rkv::testing_support
