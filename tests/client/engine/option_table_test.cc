// The table of a client's options, beside ClientOptions, the header of C and the README.
#include "client/engine/option_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "client/c/options.h"

namespace rkv::client {
namespace {

std::string text_of(const char* path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << ": run from the repository's root";
  return {std::istreambuf_iterator<char>(file), {}};
}

// The member of ClientOptions: its name says the unit of a size.
std::string field_of(const ClientOption& option) {
  std::string field(option.name);
  std::ranges::replace(field, '-', '_');
  return option.holds<std::size_t>() ? field + "_bytes" : field;
}

bool is_word(const ClientOption& option) {
  return option.holds<Polling>() || option.holds<Transport>() || option.holds<bool>();
}
bool is_number(const ClientOption& option) {
  return option.holds<std::uint32_t>() || option.holds<std::uint16_t>() ||
         option.holds<std::uint8_t>() || option.holds<int>();
}

std::string range_in_words(const ClientOption& option) {
  return std::to_string(option.least) + " to " + std::to_string(option.most);
}

// Returns true if the option has the same value in both.
bool is_equal(const ClientOption& option, const ClientOptions& a, const ClientOptions& b) {
  return std::visit([&](auto place) { return a.*place == b.*place; }, option.place);
}

TEST(OptionTable, HasEachFieldOnce) {
  ClientOptions all;
  // As many names as there are fields, or this is not compiled.
  const auto& [server, name, user, secret, timeout, cache, reads, requests, large, polling,
               transport, device, port, gid, first, longest, connect, repeat] = all;
  std::set<const void*> fields = {&server, &name,     &user,  &secret,  &timeout,   &cache,
                                  &reads,  &requests, &large, &polling, &transport, &device,
                                  &port,   &gid,      &first, &longest, &connect,   &repeat};
  std::set<std::string_view> names;
  std::set<std::string_view> flags;
  for (const ClientOption& option : kClientOptions) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_TRUE(option.flag.empty() || flags.insert(option.flag).second) << option.name;
    EXPECT_EQ(option.help.empty(), option.flag.empty()) << option.name;
    const auto place = [&](auto at) { return static_cast<const void*>(&(all.*at)); };
    EXPECT_EQ(fields.erase(std::visit(place, option.place)), 1U) << option.name;
    EXPECT_EQ(is_number(option), option.least < option.most) << option.name;
    EXPECT_EQ(is_word(option), !words_of(option).empty()) << option.name;
  }
  EXPECT_TRUE(fields.empty());
}

// A line of the table in the README: | `field`, `field` | default | text |
struct Row {
  std::string fallback;
  std::string text;
};
std::map<std::string, Row> rows_of_readme() {
  const std::string readme = text_of("client/README.md");
  const std::size_t begin = readme.find("\n| `ClientOptions` | default |");
  const std::size_t end = readme.find("\n\n", begin);
  std::map<std::string, Row> rows;
  for (std::size_t at = readme.find("\n| `", begin + 1); at < end;
       at = readme.find("\n| `", at + 1)) {
    const std::size_t fallback = readme.find(" | ", at) + 3;
    const std::size_t text = readme.find(" | ", fallback) + 3;
    Row row{.fallback = readme.substr(fallback, text - 3 - fallback),
            .text = readme.substr(text, readme.find('\n', text) - text)};
    std::erase_if(row.fallback, [](char letter) { return letter == ' ' || letter == '`'; });
    if (row.fallback == "none") row.fallback = "";
    for (std::size_t name = at; (name = readme.find('`', name) + 1) < fallback;) {
      const std::size_t behind = readme.find('`', name);
      const std::string field = readme.substr(name, behind - name);
      EXPECT_TRUE(rows.emplace(field, row).second) << field << " is there twice";
      name = behind + 1;
    }
  }
  return rows;
}

TEST(OptionTable, IsTheTableOfTheReadme) {
  std::map<std::string, Row> rows = rows_of_readme();
  for (const ClientOption& option : kClientOptions) {
    SCOPED_TRACE(option.name);
    const auto row = rows.extract(field_of(option));
    ASSERT_FALSE(row.empty());
    ClientOptions given;
    EXPECT_TRUE(set_option(given, option, row.mapped().fallback)) << row.mapped().fallback;
    EXPECT_TRUE(is_equal(option, given, {})) << "not the default: " << row.mapped().fallback;
    const std::string text = row.mapped().fallback + " " + row.mapped().text;
    if (is_number(option)) {
      EXPECT_NE(text.find(range_in_words(option)), std::string::npos) << text;
    }
    for (const std::string_view word : words_of(option))
      EXPECT_NE(text.find(word), std::string::npos) << word << ": " << text;
  }
  for (const auto& [field, row] : rows)
    ADD_FAILURE() << field << " is not an option";
}

TEST(OptionTable, IsTheListOfTheHeaderOfC) {
  const std::string header = text_of("client/include/rkv/c.h");
  const std::size_t begin = header.find("/* Sets one by its name.");
  std::string list = header.substr(begin, header.find("servers is a list", begin) - begin);
  for (std::size_t at = 0; (at = list.find("\n * ")) != std::string::npos;)
    list.replace(at, 5, " ");
  for (const ClientOption& option : kClientOptions) {
    std::string entry = " " + std::string(option.name);
    std::string words;
    for (const std::string_view word : words_of(option))
      words += (words.empty() ? " (" : ", ") + std::string(word);
    if (!words.empty()) entry += words + ")";
    const bool is_there =
        list.find(entry + ",") != std::string::npos || list.find(entry + ";") != std::string::npos;
    EXPECT_TRUE(is_there) << entry << " is not in: " << list;
  }
}

TEST(OptionTable, HasTheRangesOfClientOptions) {
  const std::string header = text_of("client/include/rkv/options.h");
  for (const char* name : {"reads-in-flight", "requests-in-flight"}) {
    const std::string range = range_in_words(*find_option(name));
    EXPECT_NE(header.find(range), std::string::npos) << name << ": " << range;
  }
}

TEST(OptionTable, ValuesOfEachKind) {
  rkv_options options;
  const std::vector<std::pair<const char*, const char*>> given = {
      {"server", "h:1"},        {"timeout", "250ms"}, {"cache", "64K"},
      {"reads-in-flight", "7"}, {"port", "255"},      {"gid-index", "-1"},
      {"polling", "busy"},      {"transport", "tcp"}, {"repeat-connect", "false"},
      {"connections", "64"},    {"servers", "a:1"}};
  for (const auto& [name, value] : given)
    EXPECT_EQ(c::set_option(options, name, value), "") << name;
  EXPECT_EQ(options.client.server, "h:1");
  EXPECT_EQ(options.client.timeout.count(), 250);
  EXPECT_EQ(options.client.cache_bytes, 65536U);
  EXPECT_EQ(options.client.reads_in_flight, 7U);
  EXPECT_EQ(options.client.port, 255U);
  EXPECT_EQ(options.client.gid_index, -1);
  EXPECT_EQ(options.client.polling, Polling::kBusy);
  EXPECT_EQ(options.client.transport, Transport::kTcp);
  EXPECT_FALSE(options.client.repeat_connect);
  EXPECT_EQ(options.connections, 64U);
  EXPECT_TRUE(options.servers);
}

TEST(OptionTable, EachWordIsItsEnumerator) {
  ClientOptions options;
  const auto given = [&](const char* name, const char* word) -> const ClientOptions& {
    EXPECT_TRUE(set_option(options, *find_option(name), word)) << name << " " << word;
    return options;
  };
  EXPECT_EQ(given("polling", "busy").polling, Polling::kBusy);
  EXPECT_EQ(given("polling", "event").polling, Polling::kEvent);
  EXPECT_EQ(given("polling", "adaptive").polling, Polling::kAdaptive);
  EXPECT_EQ(given("transport", "verbs").transport, Transport::kVerbs);
  EXPECT_EQ(given("transport", "shm").transport, Transport::kShm);
  EXPECT_EQ(given("transport", "tcp").transport, Transport::kTcp);
  EXPECT_EQ(given("transport", "auto").transport, Transport::kAuto);
  EXPECT_FALSE(given("repeat-connect", "false").repeat_connect);
  EXPECT_TRUE(given("repeat-connect", "true").repeat_connect);
}

TEST(OptionTable, WrongValuesAreRefusedInOneSentence) {
  struct Wrong {
    const char* name;
    const char* value;
    const char* sentence;
  };
  const std::vector<Wrong> mistakes = {
      {"sever", "h:1", "a client has no option 'sever'"},
      {"timeout", "5", "timeout needs a duration with a unit, such as 250ms or 5s, not '5'"},
      {"cache", "lots", "cache needs a size, such as 4096 or 64MiB, not 'lots'"},
      {"reads-in-flight", "0", "reads-in-flight needs a number from 1 to 1024, not '0'"},
      {"requests-in-flight", "257", "requests-in-flight needs a number from 1 to 256, not '257'"},
      {"port", "-1", "port needs a number from 0 to 255, not '-1'"},
      {"gid-index", "-2", "gid-index needs a number from -1 to 255, not '-2'"},
      {"connections", "65", "connections needs a number from 1 to 64, not '65'"},
      {"polling", "never", "polling needs one of adaptive, busy, event, not 'never'"},
      {"transport", "udp", "transport needs one of auto, verbs, shm, tcp, not 'udp'"},
      {"repeat-connect", "yes", "repeat-connect needs one of true, false, not 'yes'"},
  };
  rkv_options options;
  for (const Wrong& mistake : mistakes)
    EXPECT_EQ(c::set_option(options, mistake.name, mistake.value), mistake.sentence);
  for (const ClientOption& option : kClientOptions)
    EXPECT_TRUE(is_equal(option, options.client, {})) << option.name << " was set";
}

}  // namespace
}  // namespace rkv::client
