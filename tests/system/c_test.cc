// The interface of C against a server: every function, wrong arguments, and handles that are closed
// while they are used.
#include "rkv/c.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/log.h"
#include "tests/system/device_atomics.h"
#include "tests/system/whole_value.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

class Options {
 public:
  explicit Options(const Server& server) {
    set("server", server.address());
    set("transport", std::array{"", "verbs", "shm", "tcp"}[static_cast<int>(test_transport())]);
  }
  ~Options() { rkv_options_free(options_); }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  void set(const char* name, const std::string& value) {
    rkv_error error;
    EXPECT_EQ(rkv_options_set(options_, name, value.c_str(), &error), RKV_OK) << error.text;
  }
  rkv_options* get() { return options_; }

 private:
  rkv_options* options_ = rkv_options_new();
};

// A number of a one-sided counter; the code of a failure fails the test.
std::int64_t read(rkv_client* client, rkv_one_sided* counter) {
  std::int64_t number = 0;
  rkv_error error;
  EXPECT_EQ(rkv_one_sided_get(client, counter, 0, &number, &error), RKV_OK) << error.text;
  return number;
}

class C : public ::testing::Test {
 protected:
  C() : options_(server_) {
    EXPECT_EQ(rkv_connect(options_.get(), &client_, &error_), RKV_OK) << error_.text;
  }
  ~C() override { rkv_free(client_); }
  rkv_status put(const std::string& key, const std::string& value,
                 const rkv_write_options* options = nullptr, std::uint64_t* version = nullptr) {
    return rkv_put(client_, key.data(), key.size(), value.data(), value.size(), options, version,
                   &error_);
  }
  // The value, or the code in words.
  std::string get(const std::string& key) {
    rkv_value* value = nullptr;
    const rkv_status status = rkv_get(client_, key.data(), key.size(), nullptr, &value, &error_);
    if (status != RKV_OK) return rkv_status_text(status);
    std::string text(static_cast<const char*>(rkv_value_data(value)), rkv_value_size(value));
    rkv_value_free(value);
    return text;
  }
  rkv_async* connect_async() {
    rkv_async* client = nullptr;
    EXPECT_EQ(rkv_async_connect(options_.get(), &client, &error_), RKV_OK) << error_.text;
    return client;
  }

  Server server_{{"--memory", "64MiB"}};
  Options options_;
  rkv_error error_{};
  rkv_client* client_ = nullptr;
};

TEST_F(C, ValuesAndCountersAreReadAndWritten) {
  std::uint64_t version = 0;
  ASSERT_EQ(put("key", std::string("a\0b", 3), nullptr, &version), RKV_OK) << error_.text;
  EXPECT_EQ(get("key"), std::string("a\0b", 3));
  rkv_value* value = nullptr;
  ASSERT_EQ(rkv_get(client_, "key", 3, nullptr, &value, nullptr), RKV_OK);
  EXPECT_EQ(rkv_value_version(value), version);
  EXPECT_EQ(rkv_value_expires_at_ms(value), 0U);
  EXPECT_EQ(rkv_value_is_counter(value), 0);
  EXPECT_EQ(static_cast<const char*>(rkv_value_data(value))[3], '\0');
  rkv_value_free(value);

  ASSERT_EQ(put("empty", ""), RKV_OK);
  EXPECT_EQ(get("empty"), "");
  EXPECT_EQ(get("absent"), "not found");

  std::array<char, 4> room{};
  std::size_t size = 0;
  ASSERT_EQ(
      rkv_get_into(client_, "key", 3, room.data(), room.size(), nullptr, &size, &version, &error_),
      RKV_OK);
  EXPECT_EQ(std::string(room.data(), size), std::string("a\0b", 3));
  EXPECT_EQ(rkv_get_into(client_, "key", 3, room.data(), 2, nullptr, &size, nullptr, &error_),
            RKV_TOO_LARGE);
  EXPECT_EQ(size, 3U);

  rkv_write_options options = RKV_WRITE_OPTIONS_INIT;
  options.if_absent = 1;
  EXPECT_EQ(put("key", "x", &options), RKV_CONFLICT);
  EXPECT_EQ(error_.code, RKV_CONFLICT);
  EXPECT_EQ(error_.may_have_happened, 0);
  options = RKV_WRITE_OPTIONS_INIT;
  options.has_if_version = 1;
  options.if_version = version;
  EXPECT_EQ(put("key", "next", &options), RKV_OK);
  EXPECT_EQ(rkv_delete(client_, "key", 3, &options, nullptr, &error_), RKV_CONFLICT);
  EXPECT_EQ(rkv_delete(client_, "key", 3, nullptr, nullptr, &error_), RKV_OK);
  EXPECT_EQ(get("key"), "not found");

  std::int64_t number = 0;
  EXPECT_EQ(rkv_incr(client_, "n", 1, 5, nullptr, &number, &error_), RKV_OK);
  EXPECT_EQ(rkv_incr(client_, "n", 1, -7, nullptr, &number, &error_), RKV_OK);
  EXPECT_EQ(number, -2);
  int done = 0;
  EXPECT_EQ(rkv_counter_cas(client_, "n", 1, -2, 40, nullptr, &done, &number, &error_), RKV_OK);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(rkv_get_counter(client_, "n", 1, nullptr, &number, &error_), RKV_OK);
  EXPECT_EQ(number, 40);
  EXPECT_EQ(rkv_incr(client_, "empty", 5, 1, nullptr, nullptr, &error_), RKV_WRONG_TYPE);
}

TEST_F(C, LongValuesLandInRegisteredMemory) {
  const std::string value = whole_value(7, 1 << 17);
  ASSERT_EQ(put("long", value), RKV_OK) << error_.text;
  rkv_buffer* buffer = nullptr;
  EXPECT_EQ(rkv_buffer_new(client_, 0, &buffer, &error_), RKV_INVALID_ARGUMENT);
  EXPECT_EQ(rkv_buffer_new(client_, 4096, nullptr, &error_), RKV_INVALID_ARGUMENT);
  EXPECT_EQ(rkv_buffer_new(nullptr, 4096, &buffer, &error_), RKV_INVALID_ARGUMENT);
  EXPECT_EQ(buffer, nullptr);
  ASSERT_EQ(rkv_buffer_new(client_, 3 << 20, &buffer, &error_), RKV_OK) << error_.text;
  ASSERT_EQ(rkv_buffer_size(buffer), std::size_t{3} << 20);
  auto* const place = static_cast<char*>(rkv_buffer_data(buffer)) + (1 << 20);
  std::size_t size = 0;
  ASSERT_EQ(rkv_get_into(client_, "long", 4, place, 2 << 20, nullptr, &size, nullptr, &error_),
            RKV_OK)
      << error_.text;
  EXPECT_EQ(std::string_view(place, size), value);
  EXPECT_EQ(rkv_get_into(client_, "long", 4, place, 200'000, nullptr, &size, nullptr, &error_),
            RKV_TOO_LARGE);
  EXPECT_EQ(size, value.size());
  std::memcpy(place, "long", 4);  // the key in the memory for its value
  EXPECT_EQ(rkv_get_into(client_, place, 4, place, 2 << 20, nullptr, &size, nullptr, &error_),
            RKV_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.text, "the key lies in the memory that the value is written to");
  EXPECT_EQ(rkv_get_into(client_, place, 4, place + 4, 2 << 19, nullptr, &size, nullptr, &error_),
            RKV_OK)
      << error_.text;
  std::memcpy(place, value.data(), 4);
  ASSERT_EQ(rkv_close(client_, &error_), RKV_OK);
  rkv_buffer* late = nullptr;
  EXPECT_EQ(rkv_buffer_new(client_, 4096, &late, &error_), RKV_INVALID_ARGUMENT);
  EXPECT_EQ(place[0], value[0]) << "the memory is there after the client";
  rkv_buffer_free(buffer);
  rkv_buffer_free(nullptr);
  EXPECT_EQ(rkv_buffer_data(nullptr), nullptr);
  EXPECT_EQ(rkv_buffer_size(nullptr), 0U);
}

TEST_F(C, ManyKeysEachHaveTheirOwnStatus) {
  constexpr std::size_t kCount = 500;
  std::vector<std::string> names;
  std::vector<std::string> texts;
  std::vector<rkv_slice> keys;
  std::vector<rkv_slice> items;
  for (std::size_t i = 0; i < kCount; ++i) {
    names.push_back(fmt::format("key {:03}", i));
    texts.push_back(whole_value(i, 1 + i % 30));
  }
  names[7].clear();  // no key
  for (std::size_t i = 0; i < kCount; ++i) {
    keys.push_back({names[i].data(), names[i].size()});
    items.push_back({texts[i].data(), texts[i].size()});
  }
  std::vector<rkv_status> statuses(kCount, -1);
  std::vector<std::uint64_t> versions(kCount);
  ASSERT_EQ(rkv_multi_put(client_, keys.data(), items.data(), kCount, nullptr, versions.data(),
                          statuses.data(), &error_),
            RKV_OK);
  EXPECT_EQ(error_.code, RKV_INVALID_ARGUMENT);
  std::vector<rkv_value*> values(kCount);
  std::vector<rkv_status> got(kCount, -1);
  ASSERT_EQ(
      rkv_multi_get(client_, keys.data(), kCount, nullptr, values.data(), got.data(), &error_),
      RKV_OK);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(statuses[i], i == 7 ? RKV_INVALID_ARGUMENT : RKV_OK);
    EXPECT_EQ(got[i], statuses[i]);
    if (i == 7) {
      EXPECT_EQ(values[i], nullptr);
      continue;
    }
    EXPECT_EQ(
        std::string(static_cast<const char*>(rkv_value_data(values[i])), rkv_value_size(values[i])),
        texts[i]);
    EXPECT_EQ(rkv_value_version(values[i]), versions[i]);
    rkv_value_free(values[i]);
  }
  EXPECT_EQ(rkv_multi_get(client_, nullptr, 0, nullptr, nullptr, nullptr, &error_), RKV_OK);

  rkv_write_options options = RKV_WRITE_OPTIONS_INIT;
  options.ttl_ms = 1'000'000;
  ASSERT_EQ(rkv_multi_put(client_, keys.data(), items.data(), 2, &options, nullptr, statuses.data(),
                          &error_),
            RKV_OK);
  const auto expires_at_ms = [&] {
    rkv_value* value = nullptr;
    EXPECT_EQ(rkv_get(client_, names[1].data(), names[1].size(), nullptr, &value, &error_), RKV_OK);
    const std::uint64_t moment = rkv_value_expires_at_ms(value);
    rkv_value_free(value);
    return moment;
  };
  const std::uint64_t first = expires_at_ms();
  EXPECT_NE(first, 0U);
  options.ttl_ms = 2'000'000;
  const auto touch = [&](const std::string& key, const rkv_write_options* given) {
    std::uint64_t version = 0;
    const rkv_status status = rkv_touch(client_, key.data(), key.size(), given, &version, &error_);
    EXPECT_EQ(status == RKV_OK, version != 0);
    return status;
  };
  EXPECT_EQ(touch(names[1], &options), RKV_OK);
  EXPECT_GT(expires_at_ms(), first);
  EXPECT_EQ(touch(names[1], nullptr), RKV_OK);
  EXPECT_EQ(expires_at_ms(), 0U);
  EXPECT_EQ(touch("absent", &options), RKV_NOT_FOUND);
}

// The first failure is not the one that may have happened.
TEST_F(C, ManyPutsTellWhichOfThoseThatFailedMayHaveHappened) {
  const std::string too_long(5000, 'k');
  const std::array<rkv_slice, 3> keys{rkv_slice{too_long.data(), too_long.size()},
                                      rkv_slice{"key", 3}, rkv_slice{"", 0}};
  const std::array<rkv_slice, 3> items{rkv_slice{"a", 1}, rkv_slice{"b", 1}, rkv_slice{"c", 1}};
  std::array<rkv_status, 3> statuses{};
  std::array<unsigned char, 3> open{7, 7, 7};
  rkv_write_options options = RKV_WRITE_OPTIONS_INIT;
  const auto put_all = [&] {
    return rkv_multi_put_each(client_, keys.data(), items.data(), keys.size(), &options, nullptr,
                              statuses.data(), open.data(), &error_);
  };
  ASSERT_EQ(put_all(), RKV_OK) << error_.text;
  EXPECT_EQ(error_.code, RKV_TOO_LARGE);
  EXPECT_EQ(error_.may_have_happened, 0);
  EXPECT_EQ(statuses, (std::array<rkv_status, 3>{RKV_TOO_LARGE, RKV_OK, RKV_INVALID_ARGUMENT}));
  EXPECT_EQ(open, (std::array<unsigned char, 3>{0, 0, 0}));

  options.timeout_ms = 300;
  server_.process().signal(SIGSTOP);
  const rkv_status each = put_all();
  const rkv_error of_each = error_;
  const rkv_status plain = rkv_multi_put(client_, keys.data(), items.data(), keys.size(), &options,
                                         nullptr, statuses.data(), &error_);
  server_.process().signal(SIGCONT);
  EXPECT_EQ(each, RKV_OK);
  EXPECT_EQ(of_each.code, RKV_TOO_LARGE);
  EXPECT_EQ(of_each.may_have_happened, 1);
  EXPECT_EQ(statuses[0], RKV_TOO_LARGE);
  EXPECT_NE(statuses[1], RKV_OK);
  EXPECT_EQ(open, (std::array<unsigned char, 3>{0, 1, 0}));
  EXPECT_EQ(plain, RKV_OK);
  EXPECT_EQ(error_.code, RKV_TOO_LARGE);
}

TEST_F(C, ErrorsHaveTheSentenceOfTheServer) {
  rkv_write_options options = RKV_WRITE_OPTIONS_INIT;
  options.durability = RKV_SYNC;
  EXPECT_EQ(put("key", "value", &options), RKV_UNSUPPORTED);
  EXPECT_NE(std::string(error_.text).find("--data-dir"), std::string::npos) << error_.text;
  rkv_page* page = nullptr;
  EXPECT_EQ(rkv_scan(client_, nullptr, &page, &error_), RKV_UNSUPPORTED);
  EXPECT_NE(std::string(error_.text).find("--data-dir"), std::string::npos) << error_.text;
  EXPECT_EQ(put("", "value"), RKV_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(error_.text).find("--data-dir"), std::string::npos) << error_.text;
}

TEST_F(C, OneSidedCountersAreChangedByAtomics) {
  rkv_one_sided* counter = nullptr;
  EXPECT_EQ(rkv_one_sided_open(client_, "n", 1, 0, 0, &counter, &error_), RKV_NOT_FOUND);
  EXPECT_EQ(counter, nullptr);
  ASSERT_EQ(rkv_one_sided_open(client_, "n", 1, 1, 0, &counter, &error_), RKV_OK) << error_.text;
  std::int64_t number = 0;
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(rkv_one_sided_incr(client_, counter, 5, nullptr, &number, &error_), RKV_OK);
  EXPECT_EQ(number, 15);
  EXPECT_EQ(rkv_one_sided_has_cell(counter), device_has_atomics() ? 1 : 0);
  EXPECT_EQ(rkv_incr(client_, "n", 1, 1, nullptr, &number, &error_), RKV_OK);  // by a request
  EXPECT_EQ(read(client_, counter), 16);
  int done = 0;
  ASSERT_EQ(rkv_one_sided_cas(client_, counter, 16, -4, nullptr, &done, &number, &error_), RKV_OK);
  EXPECT_EQ(done, 1);
  ASSERT_EQ(rkv_one_sided_cas(client_, counter, 16, 0, nullptr, &done, &number, &error_), RKV_OK);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(number, -4);
  EXPECT_EQ(rkv_one_sided_incr(client_, counter, 1, nullptr, nullptr, nullptr), RKV_OK);
  EXPECT_EQ(read(client_, counter), -3);

  EXPECT_EQ(rkv_delete(client_, "n", 1, nullptr, nullptr, &error_), RKV_OK);
  EXPECT_EQ(rkv_one_sided_get(client_, counter, 0, &number, &error_), RKV_NOT_FOUND);
  rkv_one_sided_free(counter);
  ASSERT_EQ(put("key", "value"), RKV_OK);
  EXPECT_EQ(rkv_one_sided_open(client_, "key", 3, 1, 0, &counter, &error_), RKV_WRONG_TYPE);
}

TEST_F(C, WrongArgumentsOfOneSidedCountersAreRefused) {
  rkv_one_sided* counter = nullptr;
  EXPECT_EQ(rkv_one_sided_open(nullptr, "n", 1, 1, 0, &counter, &error_), RKV_INVALID_ARGUMENT);
  EXPECT_EQ(rkv_one_sided_open(client_, nullptr, 1, 1, 0, &counter, &error_), RKV_INVALID_ARGUMENT);
  EXPECT_EQ(rkv_one_sided_open(client_, "n", 1, 1, 0, nullptr, &error_), RKV_INVALID_ARGUMENT);
  EXPECT_EQ(counter, nullptr);
  EXPECT_EQ(rkv_one_sided_incr(client_, nullptr, 1, nullptr, nullptr, &error_),
            RKV_INVALID_ARGUMENT);
  EXPECT_EQ(rkv_one_sided_cas(client_, nullptr, 1, 2, nullptr, nullptr, nullptr, &error_),
            RKV_INVALID_ARGUMENT);
  EXPECT_EQ(rkv_one_sided_get(client_, nullptr, 0, nullptr, &error_), RKV_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.text, "the counter must not be NULL");
  EXPECT_EQ(rkv_one_sided_has_cell(nullptr), 0);
  rkv_one_sided_free(nullptr);
  ASSERT_EQ(rkv_one_sided_open(client_, "n", 1, 1, 0, &counter, &error_), RKV_OK);
  rkv_write_options options = RKV_WRITE_OPTIONS_INIT;
  options.ttl_ms = 1;
  EXPECT_EQ(rkv_one_sided_incr(client_, counter, 1, &options, nullptr, &error_),
            RKV_INVALID_ARGUMENT);
  EXPECT_EQ(rkv_close(client_, &error_), RKV_OK);
  EXPECT_EQ(rkv_one_sided_get(client_, counter, 0, nullptr, &error_), RKV_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.text, "the client is closed");
  rkv_one_sided_free(counter);
}

// Two servers as one store.
class CCluster : public C {
 protected:
  CCluster() {
    options_.set("servers", server_.address() + "," + other_.address());
    options_.set("timeout", "20s");
    rkv_free(std::exchange(client_, nullptr));
    EXPECT_EQ(rkv_connect(options_.get(), &client_, &error_), RKV_OK) << error_.text;
  }
  static std::string key(int i) { return "key-" + std::to_string(i); }
  static constexpr int kKeys = 64;
  Server other_{{"--memory", "64MiB"}};
};

TEST_F(CCluster, KeysLieOnEitherServerAndAreFound) {
  for (int i = 0; i < kKeys; ++i)
    ASSERT_EQ(put(key(i), "value of " + key(i)), RKV_OK) << error_.text;
  for (int i = 0; i < kKeys; ++i)
    EXPECT_EQ(get(key(i)), "value of " + key(i));
  Client first = server_.client();
  Client second = other_.client();
  int on_first = 0;
  for (int i = 0; i < kKeys; ++i) {
    const bool is_on_first = first.get(key(i)).has_value();
    EXPECT_NE(is_on_first, second.get(key(i)).has_value()) << "on one server";
    on_first += is_on_first ? 1 : 0;
  }
  EXPECT_GT(on_first, 0);
  EXPECT_LT(on_first, kKeys);

  std::vector<std::string> names;
  for (int i = 0; i < kKeys; ++i)
    names.push_back(key(i));
  std::vector<rkv_slice> keys;
  for (const std::string& name : names)
    keys.push_back({name.data(), name.size()});
  std::vector<rkv_slice> items(kKeys, {"new", 3});
  std::vector<rkv_status> statuses(kKeys, RKV_INTERNAL);
  std::vector<rkv_value*> values(kKeys);
  ASSERT_EQ(rkv_multi_put(client_, keys.data(), items.data(), kKeys, nullptr, nullptr,
                          statuses.data(), &error_),
            RKV_OK);
  EXPECT_EQ(statuses, std::vector<rkv_status>(kKeys, RKV_OK));
  ASSERT_EQ(
      rkv_multi_get(client_, keys.data(), kKeys, nullptr, values.data(), statuses.data(), &error_),
      RKV_OK);
  for (rkv_value* const value : values) {
    EXPECT_EQ(std::string(static_cast<const char*>(rkv_value_data(value))), "new");
    rkv_value_free(value);
  }
  std::array<char, 2> room{};
  std::size_t size = 0;
  EXPECT_EQ(rkv_get_into(client_, "key-1", 5, room.data(), 2, nullptr, &size, nullptr, &error_),
            RKV_TOO_LARGE);
  EXPECT_EQ(size, 3U);
  EXPECT_EQ(rkv_delete(client_, "key-1", 5, nullptr, nullptr, &error_), RKV_OK);
  EXPECT_EQ(get("key-1"), "not found");

  EXPECT_EQ(rkv_ping(client_, 0, &error_), RKV_OK);
  rkv_value* json = nullptr;
  ASSERT_EQ(rkv_server_stats(client_, 0, &json, &error_), RKV_OK);
  const auto stats = nlohmann::json::parse(static_cast<const char*>(rkv_value_data(json)));
  for (const Server* const server : {&server_, &other_})
    EXPECT_TRUE(stats.at(server->address()).contains("puts")) << stats;
  rkv_value_free(json);
  EXPECT_NE(std::string(rkv_describe(client_)), "");
  rkv_buffer* buffer = nullptr;
  EXPECT_EQ(rkv_buffer_new(client_, 4096, &buffer, &error_), RKV_UNSUPPORTED);
}

TEST_F(CCluster, CountersOfThreadsAddUp) {
  constexpr int kThreads = 4;
  constexpr int kEach = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      rkv_error error;
      rkv_one_sided* counter = nullptr;
      ASSERT_EQ(rkv_one_sided_open(client_, "hits", 4, 1, 0, &counter, &error), RKV_OK)
          << error.text;
      for (int i = 0; i < kEach; ++i) {
        EXPECT_EQ(rkv_incr(client_, "requests", 8, 1, nullptr, nullptr, &error), RKV_OK);
        EXPECT_EQ(rkv_one_sided_incr(client_, counter, 1, nullptr, nullptr, &error), RKV_OK);
      }
      rkv_one_sided_free(counter);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const std::string name : {"requests", "hits"}) {
    std::int64_t number = 0;
    EXPECT_EQ(rkv_get_counter(client_, name.data(), name.size(), nullptr, &number, &error_),
              RKV_OK);
    EXPECT_EQ(number, kThreads * kEach) << name;
  }
}

TEST_F(CCluster, AServerThatIsDownFailsItsOwnKeys) {
  for (int i = 0; i < kKeys; ++i)
    ASSERT_EQ(put(key(i), "value"), RKV_OK) << error_.text;
  Client first = server_.client();
  std::vector<bool> is_on_first;
  for (int i = 0; i < kKeys; ++i)
    is_on_first.push_back(first.get(key(i)).has_value());
  other_.kill();
  rkv_get_options soon = RKV_GET_OPTIONS_INIT;
  soon.timeout_ms = 50;
  for (int i = 0; i < kKeys; ++i) {
    if (is_on_first[static_cast<std::size_t>(i)]) {
      EXPECT_EQ(get(key(i)), "value");
    } else {
      rkv_value* value = nullptr;
      const rkv_status status =
          rkv_get(client_, key(i).data(), key(i).size(), &soon, &value, &error_);
      EXPECT_TRUE(status == RKV_TIMEOUT || status == RKV_UNREACHABLE || status == RKV_DISCONNECTED)
          << error_.text;
    }
  }
  EXPECT_NE(rkv_ping(client_, 500, &error_), RKV_OK);
  EXPECT_NE(std::string(error_.text).find(other_.address()), std::string::npos) << error_.text;
}

// A call that waits for that of another thread has a deadline.
TEST_F(CCluster, AThreadThatWaitsForItsTurnReturnsByItsDeadline) {
  ASSERT_EQ(put("key", "value"), RKV_OK);
  server_.process().signal(SIGSTOP);
  other_.process().signal(SIGSTOP);
  std::atomic<bool> is_over = false;
  std::thread first([&] {
    EXPECT_NE(rkv_ping(client_, 3000, nullptr), RKV_OK);
    is_over = true;
  });
  bool has_waited = false;
  while (!has_waited && !is_over) {
    rkv_error error{};
    EXPECT_NE(rkv_ping(client_, 20, &error), RKV_OK);
    has_waited = error.code == RKV_TIMEOUT &&
                 std::strcmp(error.text, "other threads' calls took the time") == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the other one gets its turn
  }
  EXPECT_TRUE(has_waited);
  first.join();
  server_.process().signal(SIGCONT);
  other_.process().signal(SIGCONT);
}

TEST_F(CCluster, WrongListsAreRefused) {
  rkv_options* const options = options_.get();
  EXPECT_EQ(rkv_options_set(options, "servers", "", &error_), RKV_INVALID_ARGUMENT);
  EXPECT_EQ(rkv_options_set(options, "servers", "a:1,a:1", &error_), RKV_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error_.text).find("servers: "), std::string::npos) << error_.text;
  rkv_async* async = nullptr;
  EXPECT_EQ(rkv_async_connect(options, &async, &error_), RKV_INVALID_ARGUMENT);
  rkv_client* client = nullptr;
  options_.set("connections", "2");
  EXPECT_EQ(rkv_connect(options, &client, &error_), RKV_INVALID_ARGUMENT);
  options_.set("connections", "1");
  options_.set("servers", other_.address());  // a list of one
  ASSERT_EQ(rkv_connect(options, &client, &error_), RKV_OK) << error_.text;
  rkv_free(client);
  EXPECT_EQ(async, nullptr);
}

// The results that callbacks have got.
struct Told {
  int ended = 0;
  std::int64_t most = 0;
  std::string value;
  rkv_status status = RKV_OK;
  static void note(void* context, const rkv_result* result) {
    Told& own = *static_cast<Told*>(context);
    ++own.ended;
    own.status = result->status;
    own.most = std::max(own.most, result->number);
    if (result->value.size != 0)
      own.value.assign(static_cast<const char*>(result->value.data), result->value.size);
    EXPECT_EQ(result->error == nullptr, result->status == RKV_OK);
  }
};

class CAsync : public C {
 protected:
  CAsync() : async_(connect_async()) {}
  ~CAsync() override { rkv_async_free(async_); }
  // As an event loop does.
  void run() {
    while (rkv_async_in_flight(async_) != 0) {
      rkv_async_poll(async_);
      if (rkv_async_in_flight(async_) == 0 || rkv_async_arm(async_) == 0) continue;
      pollfd event{.fd = rkv_async_descriptor(async_), .events = POLLIN, .revents = 0};
      ASSERT_EQ(poll(&event, 1, 20'000), 1);
    }
  }
  rkv_status begin_get(rkv_error* error = nullptr) {
    return rkv_async_get(async_, "key", 3, nullptr, nullptr, &Told::note, &told_, error);
  }

  Told told_;
  rkv_async* const async_;
};

TEST_F(CAsync, OperationsCallBackOnAnEventLoop) {
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(rkv_async_incr(async_, "n", 1, 1, nullptr, nullptr, &Told::note, &told_, &error_),
              RKV_OK);
  }
  run();
  EXPECT_EQ(told_.ended, 200);
  EXPECT_EQ(told_.most, 200);
  ASSERT_EQ(
      rkv_async_put(async_, "key", 3, "value", 5, nullptr, nullptr, &Told::note, &told_, nullptr),
      RKV_OK);
  run();
  ASSERT_EQ(begin_get(), RKV_OK);
  std::size_t ended = 0;
  EXPECT_EQ(rkv_async_wait(async_, 20'000, &ended, &error_), RKV_OK) << error_.text;
  EXPECT_EQ(ended, 1U);
  EXPECT_EQ(told_.value, "value");
  ASSERT_EQ(rkv_async_delete(async_, "key", 3, nullptr, nullptr, &Told::note, &told_, nullptr),
            RKV_OK);
  run();
  ASSERT_EQ(begin_get(), RKV_OK);
  run();
  EXPECT_EQ(told_.status, RKV_NOT_FOUND);
}

TEST_F(CAsync, AStopWithdrawsAnOperation) {
  rkv_stop* const stop = rkv_stop_new();
  ASSERT_EQ(rkv_async_put(async_, "key", 3, "x", 1, nullptr, stop, &Told::note, &told_, nullptr),
            RKV_OK);
  rkv_stop_request(stop);
  rkv_stop_free(stop);
  run();
  EXPECT_EQ(told_.status, RKV_CANCELLED);
  EXPECT_EQ(get("key"), "not found");
}

TEST_F(CAsync, ACallbackCanNeitherWaitNorClose) {
  struct Inside {
    rkv_async* client;
    rkv_status waited = RKV_OK;
    rkv_status closed = RKV_OK;
  } inside{async_};
  const auto callback = [](void* context, const rkv_result*) {
    auto& own = *static_cast<Inside*>(context);
    own.waited = rkv_async_wait(own.client, 0, nullptr, nullptr);
    own.closed = rkv_async_close(own.client, nullptr);
  };
  ASSERT_EQ(rkv_async_get(async_, "key", 3, nullptr, nullptr, callback, &inside, nullptr), RKV_OK);
  run();
  EXPECT_EQ(inside.waited, RKV_INVALID_ARGUMENT);
  EXPECT_EQ(inside.closed, RKV_INVALID_ARGUMENT);
}

TEST_F(CAsync, CloseEndsWhatIsInFlightAndLaterCallsAreRefused) {
  ASSERT_EQ(begin_get(), RKV_OK);
  EXPECT_EQ(rkv_async_close(async_, &error_), RKV_OK) << error_.text;
  EXPECT_EQ(told_.ended, 1);
  EXPECT_EQ(told_.status, RKV_DISCONNECTED);
  EXPECT_EQ(begin_get(&error_), RKV_INVALID_ARGUMENT);
  EXPECT_STREQ(error_.text, "the client is closed");
  EXPECT_EQ(rkv_async_descriptor(async_), -1);
  EXPECT_EQ(rkv_async_close(async_, &error_), RKV_INVALID_ARGUMENT);
}

TEST_F(CAsync, CloseLeavesNoOperationAlthoughEachCallbackTriesAgain) {
  struct Again {
    rkv_async* client;
    int begun = 0;
    int ended = 0;
    int refused = 0;
    static void go(void* context, const rkv_result* result) {
      auto& own = *static_cast<Again*>(context);
      if (result != nullptr) {
        ++own.ended;
        if (result->status == RKV_OK || result->status == RKV_NOT_FOUND) return;
      }
      const rkv_status status =
          rkv_async_get(own.client, "absent", 6, nullptr, nullptr, &Again::go, context, nullptr);
      ++(status == RKV_OK ? own.begun : own.refused);
    }
  } again{async_};
  Again::go(&again, nullptr);
  EXPECT_EQ(rkv_async_close(async_, &error_), RKV_OK) << error_.text;
  EXPECT_EQ(again.begun, 1);
  EXPECT_EQ(again.ended, 1);
  EXPECT_EQ(again.refused, 1);
}

TEST_F(C, AClientIsClosedUnderThreadsThatUseIt) {
  ASSERT_EQ(put("key", "value"), RKV_OK);
  std::atomic<int> at_work = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      rkv_status status = RKV_OK;
      for (std::uint64_t i = 0; status == RKV_OK; ++i) {
        std::array<char, 8> room{};
        std::size_t size = 0;
        rkv_error error;
        status = rkv_get_into(client_, "key", 3, room.data(), room.size(), nullptr, &size, nullptr,
                              &error);
        if (status == RKV_OK) {
          EXPECT_EQ(std::string(room.data(), size), "value");
        } else {
          EXPECT_STREQ(error.text, "the client is closed");
        }
        if (i == 100) ++at_work;
      }
      EXPECT_EQ(status, RKV_INVALID_ARGUMENT);
    });
  }
  while (at_work != 4)
    std::this_thread::yield();
  EXPECT_EQ(rkv_close(client_, &error_), RKV_OK);
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(rkv_close(client_, &error_), RKV_INVALID_ARGUMENT);
  EXPECT_EQ(rkv_describe(client_), nullptr);
}

// Lines as a callback of C has got them.
struct Lines {
  std::vector<std::pair<int, std::string>> all;
  static void note(void* context, int level, const char* text) {
    static_cast<Lines*>(context)->all.emplace_back(level, text);
  }
};

TEST(CLog, EachLineGoesToTheCallbackUnlessItsLevelIsTooLow) {
  const auto log = [](const char* text) {
    log_info(EventName("c_test"), "{}", text);
    log_warn(EventName("c_test"), "{}", text);
    log_error(EventName("c_test"), "{}", text);
  };
  using Got = std::vector<std::pair<int, std::string>>;
  rkv_error error;
  Lines lines;
  ASSERT_EQ(rkv_set_log(Lines::note, &lines, &error), RKV_OK);
  log("first");
  EXPECT_EQ(lines.all,
            (Got{{RKV_LOG_INFO, "first"}, {RKV_LOG_WARNING, "first"}, {RKV_LOG_ERROR, "first"}}));
  lines.all.clear();
  ASSERT_EQ(rkv_set_log_level(RKV_LOG_ERROR, &error), RKV_OK);
  log("second");
  EXPECT_EQ(lines.all, (Got{{RKV_LOG_ERROR, "second"}}));
  lines.all.clear();
  ASSERT_EQ(rkv_set_log_level(RKV_LOG_OFF, &error), RKV_OK);
  log("third");
  EXPECT_TRUE(lines.all.empty());
  for (const int wrong : {-1, 5}) {
    EXPECT_EQ(rkv_set_log_level(wrong, &error), RKV_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.text).find("level"), std::string::npos);
  }
  ASSERT_EQ(rkv_set_log_level(RKV_LOG_INFO, nullptr), RKV_OK);

  ASSERT_EQ(rkv_set_log(nullptr, nullptr, nullptr), RKV_OK);
  ::testing::internal::CaptureStderr();
  log("fourth");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "info: fourth\nwarning: fourth\nerror: fourth\n");
  EXPECT_TRUE(lines.all.empty());
}

// The client itself logs this.
TEST_F(C, AServerThatStaysSilentIsToldOfInTheLog) {
  struct Seen {
    std::atomic<bool> seen = false;
    static void note(void* context, int level, const char* text) {
      if (level == RKV_LOG_WARNING && std::strstr(text, "it has not answered for 2 s") != nullptr)
        static_cast<Seen*>(context)->seen = true;
    }
  } log;
  ASSERT_EQ(rkv_set_log(Seen::note, &log, nullptr), RKV_OK);
  rkv_async* const async = connect_async();
  server_.process().signal(SIGSTOP);
  rkv_write_options options = RKV_WRITE_OPTIONS_INIT;
  options.timeout_ms = 50;
  Told told;
  ASSERT_EQ(rkv_async_put(async, "k", 1, "v", 1, &options, nullptr, Told::note, &told, &error_),
            RKV_OK);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!log.seen) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    rkv_async_poll(async);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(told.status, RKV_TIMEOUT);
  server_.process().signal(SIGCONT);
  rkv_async_free(async);
  ASSERT_EQ(rkv_set_log(nullptr, nullptr, nullptr), RKV_OK);
}

TEST_F(C, WrongArgumentsAreRefusedWithASentence) {
  const auto is_refused = [&](rkv_status status, const std::string& part) {
    EXPECT_EQ(status, RKV_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error_.text).find(part), std::string::npos) << error_.text;
  };
  is_refused(rkv_connect(options_.get(), nullptr, &error_), "must not be NULL");
  is_refused(rkv_put(nullptr, "k", 1, "v", 1, nullptr, nullptr, &error_),
             "client must not be NULL");
  is_refused(rkv_put(client_, nullptr, 1, "v", 1, nullptr, nullptr, &error_), "must not be NULL");
  is_refused(rkv_put(client_, "k", 1, nullptr, 1, nullptr, nullptr, &error_), "must not be NULL");
  is_refused(rkv_put(client_, nullptr, 0, nullptr, 0, nullptr, nullptr, &error_), "key");
  is_refused(rkv_get(client_, "k", 1, nullptr, nullptr, &error_), "must not be NULL");
  is_refused(rkv_get_into(client_, "k", 1, nullptr, 8, nullptr, nullptr, nullptr, &error_),
             "must not be NULL");
  is_refused(rkv_options_set(options_.get(), "sever", "x", &error_), "no option 'sever'");
  is_refused(rkv_options_set(options_.get(), "timeout", "5", &error_), "a duration with a unit");
  is_refused(rkv_options_set(options_.get(), "cache", "much", &error_), "a size");
  is_refused(rkv_options_set(options_.get(), "transport", "udp", &error_), "auto, verbs, shm, tcp");
  is_refused(rkv_options_set(options_.get(), "connections", "65", &error_), "from 1 to 64");
  is_refused(rkv_options_set(nullptr, "name", "x", &error_), "must not be NULL");
  rkv_async* const async = connect_async();
  is_refused(rkv_async_get(async, "k", 1, nullptr, nullptr, nullptr, nullptr, &error_),
             "callback must not be NULL");
  rkv_async_free(async);

  rkv_write_options none{};  // not begun by RKV_WRITE_OPTIONS_INIT
  is_refused(put("k", "v", &none), "RKV_..._OPTIONS_INIT");
  rkv_write_options options = RKV_WRITE_OPTIONS_INIT;
  options.durability = 9;
  is_refused(put("k", "v", &options), "durability");
  options = RKV_WRITE_OPTIONS_INIT;
  options.if_absent = 1;
  rkv_slice key{"k", 1};
  rkv_status status = RKV_OK;
  is_refused(rkv_multi_put(client_, &key, &key, 1, &options, nullptr, &status, &error_),
             "no conditions");
  // A struct of a newer header: what this library does not know must be 0.
  struct Newer {
    rkv_write_options known = RKV_WRITE_OPTIONS_INIT;
    std::uint64_t unknown = 0;
  } newer;
  newer.known.struct_size = sizeof newer;
  EXPECT_EQ(put("k", "v", &newer.known), RKV_OK) << error_.text;
  newer.unknown = 1;
  is_refused(put("k", "v", &newer.known), "a newer library");
  // The struct of an older version.
  options = RKV_WRITE_OPTIONS_INIT;
  options.struct_size = offsetof(rkv_write_options, ttl_ms);
  options.ttl_ms = ~std::uint64_t{0};  // not of that struct
  EXPECT_EQ(put("k", "v", &options), RKV_OK) << error_.text;

  EXPECT_EQ(rkv_value_data(nullptr), nullptr);
  EXPECT_EQ(rkv_value_size(nullptr), 0U);
  EXPECT_EQ(rkv_page_count(nullptr), 0U);
  rkv_value_free(nullptr);
  rkv_page_free(nullptr);
  rkv_free(nullptr);
  rkv_async_free(nullptr);
  EXPECT_STREQ(rkv_status_text(-3), "unknown");
  EXPECT_STREQ(rkv_status_text(200), rkv_status_text(255));
}

TEST_F(C, OptionsThatAnOperationHasNotAreRefused) {
  const auto is_refused = [&](rkv_status status, const std::string& part) {
    EXPECT_EQ(status, RKV_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error_.text).find(part), std::string::npos) << error_.text;
  };
  rkv_write_options options = RKV_WRITE_OPTIONS_INIT;
  options.has_if_version = 1;
  is_refused(rkv_incr(client_, "n", 1, 1, &options, nullptr, &error_), "no if_version");
  options = RKV_WRITE_OPTIONS_INIT;
  options.ttl_ms = 5;
  is_refused(rkv_delete(client_, "n", 1, &options, nullptr, &error_), "only a put has");
  rkv_get_options durable = RKV_GET_OPTIONS_INIT;
  durable.at_least = RKV_SYNC;
  is_refused(rkv_get_counter(client_, "n", 1, &durable, nullptr, &error_), "without at_least");
  std::size_t size = 77;
  const std::string long_key(1025, 'k');
  EXPECT_EQ(rkv_get_into(client_, long_key.data(), long_key.size(), nullptr, 0, nullptr, &size,
                         nullptr, &error_),
            RKV_TOO_LARGE);
  EXPECT_EQ(size, 77U) << "it is the key that is too long";
}

TEST(CScan, PagesLeadToTheLastKey) {
  ScratchDirectory scratch;
  Server server({"--memory", "32MiB", "--data-dir", scratch.path("data")});
  Options options(server);
  options.set("connections", "2");
  rkv_error error{};
  rkv_client* client = nullptr;
  ASSERT_EQ(rkv_connect(options.get(), &client, &error), RKV_OK) << error.text;
  for (int i = 0; i < 50; ++i) {
    const std::string key = fmt::format("user/{:02}", i);
    ASSERT_EQ(
        rkv_put(client, key.data(), key.size(), key.data(), key.size(), nullptr, nullptr, &error),
        RKV_OK);
  }
  ASSERT_EQ(rkv_flush(client, 20'000, &error), RKV_OK) << error.text;
  ASSERT_EQ(rkv_ping(client, 20'000, &error), RKV_OK) << error.text;
  rkv_scan_options scan = RKV_SCAN_OPTIONS_INIT;
  scan.prefix = {"user/", 5};
  scan.limit = 7;
  std::string token;
  int seen = 0;
  do {
    scan.token = {token.data(), token.size()};
    rkv_page* page = nullptr;
    ASSERT_EQ(rkv_scan(client, &scan, &page, &error), RKV_OK) << error.text;
    rkv_entry entry;
    for (std::size_t i = 0; i < rkv_page_count(page); ++i, ++seen) {
      ASSERT_EQ(rkv_page_entry(page, i, &entry), RKV_OK);
      const std::string key(static_cast<const char*>(entry.key.data), entry.key.size);
      EXPECT_EQ(key, fmt::format("user/{:02}", seen));
      EXPECT_EQ(std::string(static_cast<const char*>(entry.value.data), entry.value.size), key);
    }
    EXPECT_EQ(rkv_page_entry(page, rkv_page_count(page), &entry), RKV_INVALID_ARGUMENT);
    const rkv_slice next = rkv_page_token(page);
    token.assign(static_cast<const char*>(next.data), next.size);
    rkv_page_free(page);
  } while (!token.empty());
  EXPECT_EQ(seen, 50);
  const std::string too_long(5000, 't');
  for (const std::string_view wrong : {std::string_view("garbage"), std::string_view(too_long)}) {
    scan.token = {wrong.data(), wrong.size()};
    rkv_page* page = nullptr;
    EXPECT_EQ(rkv_scan(client, &scan, &page, &error), RKV_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.text).find("token"), std::string::npos) << error.text;
    EXPECT_EQ(page, nullptr);
  }
  rkv_value* json = nullptr;
  ASSERT_EQ(rkv_server_stats(client, 20'000, &json, &error), RKV_OK) << error.text;
  EXPECT_EQ(*static_cast<const char*>(rkv_value_data(json)), '{');
  rkv_value_free(json);
  rkv_free(client);
}

}  // namespace
}  // namespace rkv::testing_support
