// The configuration in a real etcd: revisions, changes by others, servers that are down, paused or
// without a majority, and many writers at once.
#include "server/group/configuration/etcd_configuration_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/group/configuration/etcd_servers.h"

namespace rkv::server {
namespace {

const Replica a{.name = "a", .address = "127.0.0.1:1", .epoch = 1};
const Replica b{.name = "b", .address = "127.0.0.1:2", .epoch = 2};

class EtcdStore : public testing::Test {
 protected:
  // One server for all tests that do not disturb it. Each test has a group of its own.
  static EtcdServers& shared() {
    static EtcdServers servers(1);
    return servers;
  }
  EtcdConfigurationStore store_at(const std::vector<std::string>& addresses) {
    return {addresses, testing::UnitTest::GetInstance()->current_test_info()->name(), clock};
  }
  EtcdConfigurationStore store() { return store_at(shared().addresses()); }
  Deadline soon() const { return Deadline::after_ms(clock, 300); }
  Deadline later() const { return Deadline::after_ms(clock, 30'000); }
  SteadyClock clock;
  GroupConfiguration first = *founded(0xfeed, a, 1);
};

TEST_F(EtcdStore, StoresReadsAndComparesRevisions) {
  auto store = this->store();
  auto stored = store.read(later());
  ASSERT_TRUE(stored) << to_string(stored.error());
  EXPECT_FALSE(stored->configuration);
  EXPECT_EQ(stored->revision, 0);

  const auto revision = store.replace(0, first, later());
  ASSERT_TRUE(revision) << to_string(revision.error());
  stored = store.read(later());
  ASSERT_TRUE(stored && stored->configuration);
  EXPECT_EQ(*stored->configuration, first);
  EXPECT_EQ(stored->revision, *revision);

  const auto again = store.replace(0, first, later());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kConflict);
  EXPECT_EQ(again.error().write, WriteOutcome::kNotApplied);
  const auto next = store.replace(*revision, *joined(first, b), later());
  ASSERT_TRUE(next);
  EXPECT_GT(*next, *revision);
  EXPECT_FALSE(store.replace(*revision, first, later()));
}

// Its space is used up: it answers reads.
TEST_F(EtcdStore, SaysThatItStoresNothing) {
  EtcdServers servers(1, "127.0.0.1", "--quota-backend-bytes 2000000");
  auto store = store_at(servers.addresses());
  EXPECT_TRUE(store.try_storing(later()));
  EXPECT_EQ(store.read(later())->revision, 0) << "what is tried changes nothing";
  const auto revision = store.replace(0, first, later());
  ASSERT_TRUE(revision);
  servers.fill();
  EXPECT_TRUE(store.read(later()));
  EXPECT_EQ(store.try_storing(later()).error().code, Code::kRejected);
  const auto refused = store.replace(*revision, *joined(first, b), later());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kRejected);
  EXPECT_EQ(refused.error().write, WriteOutcome::kNotApplied);
}

// A role that may write one prefix, and no more.
TEST_F(EtcdStore, IsUsedByAUserOfEtcd) {
  EtcdServers servers(1);
  const std::string root = "--user root:r ";
  servers.control("user add root:r");
  servers.control("user add rkv:secret");
  servers.control("user add reader:secret");
  servers.control("role add rkv");
  servers.control("role add reader");
  servers.control("role grant-permission rkv readwrite --prefix=true rkv/groups/");
  servers.control("role grant-permission reader read --prefix=true rkv/groups/");
  servers.control("user grant-role root root");
  servers.control("user grant-role rkv rkv");
  servers.control("user grant-role reader reader");
  servers.control("auth enable");
  const auto as = [&](const std::string& user, const std::string& password) {
    return EtcdConfigurationStore(servers.addresses(), "g", clock,
                                  {.user = user, .password = password});
  };
  auto nobody = store_at(servers.addresses());
  EXPECT_EQ(nobody.read(later()).error().code, Code::kPermission);
  auto wrong = as("rkv", "wrong");
  EXPECT_EQ(wrong.read(later()).error().code, Code::kPermission);
  auto store = as("rkv", "secret");
  EXPECT_TRUE(store.try_storing(later()));
  const auto revision = store.replace(0, first, later());
  ASSERT_TRUE(revision) << to_string(revision.error());
  // etcd's users change: the token is too old.
  servers.control(root + "user add another:x");
  const auto read = store.read(later());
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(*read->configuration, first);
  auto reader = as("reader", "secret");
  EXPECT_TRUE(reader.read(later()));
  EXPECT_EQ(reader.try_storing(later()).error().code, Code::kPermission);
  // etcd starts again, and knows no tokens any more.
  servers.kill(0);
  servers.start(0);
  EXPECT_TRUE(store.read(later()));
  const auto changed = store.wait_for_other(0, later());
  ASSERT_TRUE(changed) << to_string(changed.error());
}

// Certificates of both sides, and files as the server takes them.
class EtcdByTls : public EtcdStore {
 protected:
  EtcdByTls() {
    std::string name = std::filesystem::temp_directory_path() / "rkv-tls-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (const char* const ca : {"ca", "other"}) {
      run(
          fmt::format("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={0} "
                      "-keyout {0}.key -out {0}.pem",
                      ca));
    }
    for (const char* const who : {"server", "client"}) {
      run(
          fmt::format("openssl req -newkey rsa:2048 -nodes -subj /CN={0} -keyout {0}.key "
                      "-out {0}.csr && echo subjectAltName=IP:127.0.0.1 >{0}.ext && "
                      "openssl x509 -req -days 2 -in {0}.csr -CA ca.pem -CAkey ca.key "
                      "-CAcreateserial -extfile {0}.ext -out {0}.pem",
                      who));
    }
    run("chmod 600 *.key");
    for (const auto& [variable, file] : {std::pair{"ETCDCTL_CACERT", "ca.pem"},
                                         {"ETCDCTL_CERT", "client.pem"},
                                         {"ETCDCTL_KEY", "client.key"}})
      ::setenv(variable, path(file).c_str(), 1);
  }
  ~EtcdByTls() override {
    for (const char* const variable : {"ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY"})
      ::unsetenv(variable);
    std::filesystem::remove_all(folder_);
  }
  std::string path(const std::string& file) const { return folder_ / file; }
  void run(const std::string& command) const {
    EXPECT_EQ(std::system(
                  fmt::format("cd {} && ({}) >/dev/null 2>&1", folder_.string(), command).c_str()),
              0)
        << command;
  }
  std::filesystem::path folder_;
};

TEST_F(EtcdByTls, IsReadAndChanged) {
  EtcdServers servers(1, "127.0.0.1",
                      fmt::format("--client-cert-auth --trusted-ca-file {} --cert-file {} "
                                  "--key-file {}",
                                  path("ca.pem"), path("server.pem"), path("server.key")));
  const auto with = [&](const EtcdAccess::Files& files) {
    std::string problem;
    auto access = EtcdAccess::load(files, &problem);
    EXPECT_TRUE(access) << problem;
    return EtcdConfigurationStore(servers.addresses(), "g", clock, *std::move(access));
  };
  const EtcdAccess::Files all{
      .ca = path("ca.pem"), .cert = path("client.pem"), .key = path("client.key")};
  auto store = with(all);
  const auto revision = store.replace(0, first, later());
  ASSERT_TRUE(revision) << to_string(revision.error());
  EXPECT_EQ(*store.read(later())->configuration, first);
  EXPECT_TRUE(store.try_storing(later()));
  auto without = with({.ca = path("ca.pem")});
  EXPECT_FALSE(without.read(soon())) << "etcd wants a certificate";
  EtcdAccess::Files wrong = all;
  wrong.ca = path("other.pem");
  auto deceived = with(wrong);
  EXPECT_FALSE(deceived.read(soon())) << "that etcd's certificate is another's";
  auto plain = store_at(servers.addresses());
  EXPECT_FALSE(plain.read(soon()));
}

TEST_F(EtcdByTls, FilesThatAreWrongAreNamed) {
  const auto problem_of = [&](const EtcdAccess::Files& files) {
    std::string problem;
    EXPECT_FALSE(EtcdAccess::load(files, &problem));
    return problem;
  };
  EXPECT_NE(problem_of({.ca = path("none")}).find("none: No such file"), std::string::npos);
  EXPECT_NE(problem_of({.ca = path("ca.key")}).find("no certificate"), std::string::npos);
  run("chmod 644 client.key; : >empty; chmod 600 empty");
  EXPECT_NE(
      problem_of({.ca = path("ca.pem"), .cert = path("client.pem"), .key = path("client.key")})
          .find("chmod 600"),
      std::string::npos);
  EXPECT_NE(problem_of({.user = "u", .password = path("empty")}).find("no password"),
            std::string::npos);
}

TEST_F(EtcdStore, WaitsForAChangeByAnother) {
  auto store = this->store();
  auto other = this->store();
  std::int64_t revision = 0;
  GroupConfiguration now = first;
  for (int i = 0; i < 20; ++i) {
    std::thread writer([&] { EXPECT_TRUE(other.replace(revision, now, later())); });
    const auto changed = store.wait_for_other(revision, later());
    writer.join();
    ASSERT_TRUE(changed) << to_string(changed.error());
    ASSERT_TRUE(changed->configuration);
    EXPECT_EQ(*changed->configuration, now);
    revision = changed->revision;
    ++now.number;
  }
  const auto unchanged = store.wait_for_other(revision, soon());
  ASSERT_FALSE(unchanged);
  EXPECT_EQ(unchanged.error().code, Code::kTimeout);
  // A change before the call is seen at once; so is a removal.
  EXPECT_EQ(store.wait_for_other(revision - 1, soon())->revision, revision);
  shared().control("del --prefix rkv/groups/WaitsForAChangeByAnother/");
  const auto removed = store.wait_for_other(revision, later());
  ASSERT_TRUE(removed);
  EXPECT_FALSE(removed->configuration);
  EXPECT_EQ(removed->revision, 0);
}

TEST_F(EtcdStore, WaitsAcrossACompaction) {
  auto store = this->store();
  const auto revision = store.replace(0, first, later());
  ASSERT_TRUE(revision);
  shared().control("put rkv/other 1");
  shared().control(fmt::format("compact {}", *revision + 1));
  std::thread writer([&] { EXPECT_TRUE(store.replace(*revision, *joined(first, b), later())); });
  const auto changed = store.wait_for_other(*revision, later());
  writer.join();
  ASSERT_TRUE(changed) << to_string(changed.error());
  EXPECT_EQ(*changed->configuration, *joined(first, b));
}

TEST_F(EtcdStore, ReportsWhatIsNoConfiguration) {
  shared().control("put rkv/groups/ReportsWhatIsNoConfiguration/configuration hello");
  auto store = this->store();
  EXPECT_EQ(store.read(later()).error().code, Code::kCorrupt);
  EXPECT_EQ(store.wait_for_other(1, later()).error().code, Code::kCorrupt);
}

TEST_F(EtcdStore, PassesOverServersThatAreNotThere) {
  std::vector<std::string> addresses = {"127.0.0.1:1", "127.0.0.1:2"};
  addresses.push_back(shared().addresses().front());
  auto store = store_at(addresses);
  EXPECT_TRUE(store.read(later()));
  auto writer = store_at(addresses);
  EXPECT_TRUE(writer.replace(0, first, later()));
  auto late = store_at(addresses);
  const auto conflict = late.replace(0, *founded(1, b, 1), later());
  ASSERT_FALSE(conflict);
  EXPECT_EQ(conflict.error().code, Code::kConflict);
}

TEST_F(EtcdStore, EndsByTheDeadlineWithoutEtcd) {
  auto store = store_at({"127.0.0.1:1"});
  EXPECT_EQ(store.read(soon()).error().code, Code::kTimeout);
  const auto written = store.replace(0, first, soon());
  EXPECT_EQ(written.error().code, Code::kTimeout);
  EXPECT_EQ(written.error().write, WriteOutcome::kNotApplied) << "there was no connection";
  EXPECT_EQ(store.wait_for_other(0, soon()).error().code, Code::kTimeout);
}

// The write reaches an etcd that is stopped, and takes effect after its caller has given it up.
TEST_F(EtcdStore, AWriteWithoutAnswerMayHappenLater) {
  EtcdServers servers(1);
  auto store = store_at(servers.addresses());
  const auto revision = store.replace(0, first, later());
  ASSERT_TRUE(revision);
  const GroupConfiguration next = *joined(first, b);
  servers.pause(0);
  const auto lost = store.replace(*revision, next, soon());
  servers.resume(0);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, Code::kTimeout);
  EXPECT_EQ(lost.error().write, WriteOutcome::kMayHaveHappened);
  // Sent again, it is stored once: by the first attempt or by this one.
  const auto again = store.replace(*revision, next, later());
  const auto stored = store.read(later());
  ASSERT_TRUE(stored && stored->configuration);
  EXPECT_EQ(*stored->configuration, next);
  if (again)
    EXPECT_EQ(*again, stored->revision);
  else
    EXPECT_EQ(again.error().code, Code::kConflict);
}

TEST_F(EtcdStore, GoesOnWithAMajorityAndOnlyThen) {
  EtcdServers servers(3);
  auto store = store_at(servers.addresses());
  auto revision = store.replace(0, first, later());
  ASSERT_TRUE(revision) << to_string(revision.error());
  GroupConfiguration now = first;
  for (std::size_t down = 0; down < 3; ++down) {
    servers.kill(down);
    ++now.number;
    const auto next = store.replace(*revision, now, later());
    ASSERT_TRUE(next) << down << ": " << to_string(next.error());
    revision = next;
    servers.start(down);
    servers.wait_for(down);  // before the next one goes, or two of three are down
  }
  servers.kill(0);
  servers.pause(1);
  EXPECT_EQ(store.read(Deadline::after_ms(clock, 1500)).error().code, Code::kTimeout);
  servers.resume(1);
  const auto stored = store.read(later());
  ASSERT_TRUE(stored) << to_string(stored.error());
  EXPECT_EQ(*stored->configuration, now);
}

// The observations of writers and a watcher of one configuration. Each write has its own mark, so
// that the stored configuration shows whose write it was.
struct Story {
  std::multimap<std::int64_t, std::string> wrote;   // by revision: writes answered as stored
  std::set<std::string> unknown;                    // writes that got no answer
  std::map<std::int64_t, GroupConfiguration> seen;  // not every revision is seen
  std::uint64_t last_number = 0;                    // at the end; each change raises it by one
};

std::string mark_of(const GroupConfiguration& configuration) {
  return configuration.members[0].address;
}

// Returns what contradicts STORED-1 or STORED-2, or nothing.
std::string contradiction(const Story& story) {
  for (auto at = story.wrote.begin(); at != story.wrote.end(); ++at) {
    if (story.wrote.count(at->first) != 1)
      return fmt::format("two writers stored revision {}", at->first);
  }
  for (const auto& [revision, configuration] : story.seen) {
    if (configuration.number == 1) continue;  // the test's own
    const auto at = story.wrote.find(revision);
    const std::string mark = mark_of(configuration);
    if (at == story.wrote.end() ? !story.unknown.contains(mark) : at->second != mark)
      return fmt::format("revision {} is {}, which nobody stored", revision, mark);
  }
  const std::uint64_t changes = story.last_number - 1;
  if (changes < story.wrote.size()) return "a stored write is lost";
  if (changes > story.wrote.size() + story.unknown.size()) return "a write is stored twice";
  return "";
}

// With real threads, while etcd's servers are paused in turn, so that answers are lost.
TEST_F(EtcdStore, ManyWritersAgreeWhileAnswersAreLost) {
  EtcdServers servers(3);
  constexpr int kWriters = 4;
  constexpr std::uint64_t kChanges = 200;
  constexpr std::size_t kLost = 10;
  std::mutex mutex;
  Story story;
  std::atomic<bool> done{false};
  {
    auto store = store_at(servers.addresses());
    ASSERT_TRUE(store.replace(0, first, later()));
  }
  const auto write = [&](int writer) {
    auto store = store_at(servers.addresses());
    for (int i = 0; !done.load(); ++i) {
      const auto stored = store.read(later());
      if (!stored || !stored->configuration) continue;
      GroupConfiguration next = *stored->configuration;
      ++next.number;
      next.members[0].address = fmt::format("writer{}:{}", writer, i);
      const auto revision = store.replace(stored->revision, next, Deadline::after_ms(clock, 40));
      const std::scoped_lock lock(mutex);
      if (revision) {
        story.wrote.emplace(*revision, mark_of(next));
      } else if (revision.error().write == WriteOutcome::kMayHaveHappened) {
        story.unknown.insert(mark_of(next));
      }
      done.store(next.number > kChanges && story.unknown.size() >= kLost);
    }
  };
  std::thread watcher([&] {
    auto store = store_at(servers.addresses());
    for (std::int64_t last = 0; !done.load();) {
      const auto changed = store.wait_for_other(last, Deadline::after_ms(clock, 1000));
      if (!changed) continue;
      EXPECT_GT(changed->revision, last) << "revisions fall";
      last = changed->revision;
      story.seen.emplace(last, *changed->configuration);
    }
  });
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i)
    writers.emplace_back(write, i);
  for (std::size_t i = 0; !done.load(); ++i) {
    servers.pause(i % 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    servers.resume(i % 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  for (std::thread& writer : writers)
    writer.join();
  watcher.join();

  auto store = store_at(servers.addresses());
  const auto last = store.read(later());
  ASSERT_TRUE(last && last->configuration);
  story.last_number = last->configuration->number;
  EXPECT_EQ(contradiction(story), "");
  EXPECT_GT(story.seen.size(), 10U);
  fmt::print("{} changes, {} answered, {} without an answer, {} seen\n", story.last_number - 1,
             story.wrote.size(), story.unknown.size(), story.seen.size());
}

TEST(EtcdStory, ContradictionsAreFound) {
  GroupConfiguration stored = *founded(1, a, 1);
  stored.number = 2;
  stored.members[0].address = "x";
  const Story right{.wrote = {{7, "x"}}, .unknown = {"y"}, .seen = {{7, stored}}, .last_number = 2};
  EXPECT_EQ(contradiction(right), "");
  Story wrong = right;
  wrong.wrote.emplace(7, "z");
  EXPECT_EQ(contradiction(wrong), "two writers stored revision 7");
  wrong = right;
  wrong.seen.at(7).members[0].address = "z";
  EXPECT_EQ(contradiction(wrong), "revision 7 is z, which nobody stored");
  wrong = right;
  wrong.last_number = 1;
  EXPECT_EQ(contradiction(wrong), "a stored write is lost");
  wrong.last_number = 4;
  EXPECT_EQ(contradiction(wrong), "a write is stored twice");
}

}  // namespace
}  // namespace rkv::server
