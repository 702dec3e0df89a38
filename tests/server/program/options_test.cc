#include "server/program/options.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <map>

#include "server/program/environment.h"
#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

ParsedOptions parse(const std::vector<std::string>& arguments, const Variables& variables = {}) {
  return parse_options(arguments, [&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

TEST(Options, Defaults) {
  const auto parsed = parse({});
  EXPECT_FALSE(parsed.done);
  const Options& options = parsed.options;
  EXPECT_EQ(options.listen, "0.0.0.0:7471");
  EXPECT_EQ(options.data_dir, "");
  EXPECT_EQ(options.memory_bytes, std::uint64_t{1} << 30);
  EXPECT_GE(options.threads, 1U);
  EXPECT_EQ(options.poll, rdma::PollMode::kAdaptive);
  EXPECT_EQ(options.device, "");
  EXPECT_EQ(options.ib_port, 0);
  EXPECT_EQ(options.gid_index, -1);
  EXPECT_EQ(options.max_clients, 64U);
  EXPECT_EQ(options.max_offences, 4U);
  EXPECT_EQ(options.durability, Durability::kMemory);
  EXPECT_EQ(options.sync_interval_ms, 1000U);
  EXPECT_EQ(options.queue_bytes, std::uint64_t{64} << 20);
  EXPECT_EQ(options.log_level, LogLevel::kInfo);
}

TEST(Options, MetricsAreForThisHostUnlessToldOtherwise) {
  EXPECT_EQ(parse({}).options.metrics, "");
  EXPECT_EQ(parse({"--metrics", "9471"}).options.metrics, "127.0.0.1:9471");
  EXPECT_EQ(parse({"--metrics", ":9471"}).options.metrics, "127.0.0.1:9471");
  EXPECT_EQ(parse({"--metrics", "[::]:9471"}).options.metrics, "[::]:9471");
  EXPECT_EQ(parse({}, {{"KVSERVER_METRICS", "192.0.2.1:1"}}).options.metrics, "192.0.2.1:1");
  for (const char* wrong : {"", ":", "x", "127.0.0.1", "1.2.3.4:70000", "1.2.3.4:", "-1"}) {
    const auto parsed = parse({std::string("--metrics=") + wrong});
    EXPECT_EQ(parsed.exit_code, kExitUsage) << wrong;
    EXPECT_THAT(parsed.error, HasSubstr("must be PORT or HOST:PORT")) << wrong;
  }
}

TEST(Options, NamesOfTheHostForMetrics) {
  const auto parsed = parse({"--metrics", "1", "--metrics-names", "db1,db1.example.org"});
  EXPECT_EQ(parsed.options.metrics_names, (std::vector<std::string>{"db1", "db1.example.org"}));
  for (const char* wrong : {"", ",", "a,", "a b", "a:1", "http://a"}) {
    EXPECT_THAT(parse({"--metrics", "1", std::string("--metrics-names=") + wrong}).error,
                HasSubstr("must be comma-separated names of this host"))
        << wrong;
  }
  EXPECT_EQ(parse({"--metrics-names", "a"}).error,
            "metrics-names needs metrics: give --metrics as well");
}

TEST(Options, EveryFlagArrives) {
  const auto cpu = static_cast<unsigned>(::sched_getcpu());
  const auto parsed = parse({"--listen",
                             "192.0.2.1:0",
                             "--data-dir=/d",
                             "--memory",
                             "512MiB",
                             "--threads",
                             "3",
                             "--cpus",
                             std::to_string(cpu),
                             "--poll",
                             "event",
                             "-d",
                             "rxe0",
                             "-i",
                             "2",
                             "-x",
                             "1",
                             "--transport",
                             "verbs",
                             "--no-auth",
                             "--max-clients",
                             "9",
                             "--queue",
                             "32MiB",
                             "--log-level",
                             "debug",
                             "--sync-interval",
                             "250ms",
                             "--metrics",
                             "0.0.0.0:9471",
                             "--log-format=json"});
  ASSERT_EQ(parsed.error, "");
  const Options& options = parsed.options;
  EXPECT_EQ(options.listen, "192.0.2.1:0");
  EXPECT_EQ(options.data_dir, "/d");
  EXPECT_EQ(options.memory_bytes, std::uint64_t{512} << 20);
  EXPECT_EQ(options.threads, 3U);
  EXPECT_EQ(options.poll, rdma::PollMode::kEvent);
  EXPECT_EQ(options.device, "rxe0");
  EXPECT_EQ(options.ib_port, 2);
  EXPECT_EQ(options.gid_index, 1);
  EXPECT_EQ(options.max_clients, 9U);
  EXPECT_EQ(options.queue_bytes, std::uint64_t{32} << 20);
  EXPECT_EQ(options.log_level, LogLevel::kDebug);
  EXPECT_EQ(options.sync_interval_ms, 250U);
  EXPECT_EQ(options.metrics, "0.0.0.0:9471");
  EXPECT_EQ(options.cpus, std::vector<unsigned>{cpu});
  EXPECT_EQ(options.log_format, LogFormat::kJson);
  EXPECT_TRUE(options.no_auth);
}

TEST(Options, OtherHostsAreAdmittedOnlyWhereItIsSaid) {
  using rdma::TransportKind;
  EXPECT_EQ(parse({}).options.transport, TransportKind::kShm);
  EXPECT_EQ(parse({"--listen", "127.0.0.1:0"}).options.transport, TransportKind::kShm);
  EXPECT_EQ(parse({"--no-auth"}).options.transport, TransportKind::kAuto);
  EXPECT_EQ(parse({"--no-auth=no"}).options.transport, TransportKind::kShm);
  EXPECT_EQ(parse({}, {{"KVSERVER_NO_AUTH", "yes"}}).options.transport, TransportKind::kAuto);
  EXPECT_EQ(parse({"--users", "u", "--listen", "192.0.2.1:7471"}).options.transport,
            TransportKind::kAuto);
  EXPECT_EQ(parse({"--transport", "shm", "--listen", "192.0.2.1:7471"}).error, "");
  const std::vector<std::vector<std::string>> all_ask = {{"--listen", "192.0.2.1:7471"},
                                                         {"--listen", "[::]:7471"},
                                                         {"--transport", "verbs"},
                                                         {"--device", "rxe0"}};
  for (const std::vector<std::string>& asks : all_ask) {
    const auto parsed = parse(asks);
    EXPECT_EQ(parsed.exit_code, kExitUsage);
    EXPECT_EQ(parsed.error, asks[0].substr(2) + " " + asks[1] +
                                " would let every host that reaches the server read and write: "
                                "give --users FILE (kvserver user add makes one), or --no-auth "
                                "to allow it");
    std::vector<std::string> verifies = asks;
    verifies.insert(verifies.end(), {"--verify", "--data-dir", "/d"});
    EXPECT_EQ(parse(verifies).error, "") << "a run that serves no clients";
  }
  EXPECT_EQ(parse({"--no-auth", "--users", "u"}).error,
            "no-auth cannot be combined with users: leave one of them out");
  EXPECT_EQ(parse({"--no-auth=maybe"}).error, "--no-auth must be yes or no, not \"maybe\"");
}

TEST(Options, HelpAndVersionGoToStdoutAndSucceed) {
  for (const char* flag : {"--help", "-h"}) {
    const auto parsed = parse({flag});
    EXPECT_TRUE(parsed.done);
    EXPECT_EQ(parsed.exit_code, kExitClean);
    EXPECT_THAT(parsed.out, HasSubstr("--data-dir"));
    EXPECT_THAT(parsed.out, HasSubstr("Exit codes"));
    EXPECT_EQ(parsed.error, "");
  }
  EXPECT_EQ(parse({"--version"}).out, "kvserver 0.1.0\n");
}

struct Bad {
  std::vector<std::string> arguments;
  Variables variables;
  const char* sentence;
};

void expect_sentences(const std::vector<Bad>& cases) {
  for (const Bad& bad : cases) {
    const auto parsed = parse(bad.arguments, bad.variables);
    EXPECT_TRUE(parsed.done) << bad.sentence;
    EXPECT_EQ(parsed.exit_code, kExitUsage);
    EXPECT_EQ(parsed.error, bad.sentence);
    EXPECT_EQ(parsed.out, "");
  }
}

TEST(Options, EveryUsageErrorIsOneSentenceThatNamesTheFlagAndTheRemedy) {
  const std::vector<Bad> cases = {
      {{"--listen", "7471"},
       {},
       "--listen must be HOST:PORT, such as 0.0.0.0:7471 or [::]:7471, not \"7471\""},
      {{"--listen", "h:70000"},
       {},
       "--listen must be HOST:PORT, such as 0.0.0.0:7471 or [::]:7471, not \"h:70000\""},
      {{"--listen", ":7471"},
       {},
       "--listen must be HOST:PORT, such as 0.0.0.0:7471 or [::]:7471, not \":7471\""},
      {{"--memory", "lots"},
       {},
       "--memory must be a size from 16MiB to 1024GiB, such as 512MiB or 2GiB, not \"lots\""},
      {{"--memory", "1MiB"},
       {},
       "--memory must be a size from 16MiB to 1024GiB, such as 512MiB or 2GiB, not \"1MiB\""},
      {{"--cpus", "1-"}, {}, "--cpus must be processor numbers, such as 2-5,8, not \"1-\""},
      {{"--threads", "0"}, {}, "--threads must be a whole number from 1 to 256, not \"0\""},
      {{"--threads", "2x"}, {}, "--threads must be a whole number from 1 to 256, not \"2x\""},
      {{"--threads", "-1"}, {}, "--threads must be a whole number from 1 to 256, not \"-1\""},
      {{"--poll", "often"}, {}, "--poll must be adaptive, busy or event, not \"often\""},
      {{"--transport", "shm", "-d", "rxe0"},
       {},
       "device cannot be combined with transport shm: leave one of them out"},
      {{"--transport", "tcp", "-d", "rxe0"},
       {},
       "device cannot be combined with transport tcp: leave one of them out"},
      {{"--transport", "tcp", "--shm-group", "rkv"},
       {},
       "shm-group cannot be combined with transport tcp: leave one of them out"},
      {{"--transport", "tcp"},
       {},
       "transport tcp would let every host that reaches the server read and write: give --users "
       "FILE (kvserver user add makes one), or --no-auth to allow it"},
      {{"--transport", "udp"}, {}, "--transport must be auto, verbs, shm or tcp, not \"udp\""},
      {{"-i", "256"}, {}, "--ib-port must be a whole number from 1 to 255, not \"256\""},
      {{"-x", "x"}, {}, "--gid-index must be a whole number from 0 to 255, not \"x\""},
      {{"--max-clients", "5000"},
       {},
       "--max-clients must be a whole number from 1 to 4096, not \"5000\""},
      {{"--sync-interval", "1"},
       {},
       "--sync-interval must be a duration from 1ms to 60m, such as 500ms or 5s, not \"1\""},
      {{"--durability", "disk"}, {}, "--durability must be memory, wal or sync, not \"disk\""},
      {{"--durability", "wal"}, {}, "durability wal needs a disk: give --data-dir as well"},
      {{},
       {{"KVSERVER_DURABILITY", "sync"}},
       "durability sync needs a disk: give --data-dir as well"},
      {{"--queue", "8GiB"},
       {},
       "--queue must be a size from 32MiB to 4GiB, such as 512MiB or 2GiB, not \"8GiB\""},
      {{"--log-level", "loud"}, {}, "--log-level must be debug, info, warn or error, not \"loud\""},
      {{},
       {{"KVSERVER_MEMORY", "x"}},
       "KVSERVER_MEMORY must be a size from 16MiB to 1024GiB, such as 512MiB or 2GiB, not \"x\""},
      {{},
       {{"KVSERVER_MAX_CLIENTS", ""}},
       "KVSERVER_MAX_CLIENTS must be a whole number from 1 to 4096, not \"\""},
      {{"serve"}, {}, "unexpected argument \"serve\": options start with --, see kvserver --help"},
      {{"--config", "/nowhere.toml"},
       {},
       "cannot read the configuration file /nowhere.toml: No such file or directory: check "
       "--config"},
  };
  expect_sentences(cases);
}

// A server that was to have a disk does not come up without one.
TEST(Options, AnEmptyTextIsRefusedAndNotTakenForNone) {
  const char* const kNoDisk = "must not be empty: leave it out for a server without a disk";
  const auto with = [](const char* origin, const char* sentence) {
    return fmt::format("{} {}, not \"\"", origin, sentence);
  };
  const std::string flag = with("--data-dir", kNoDisk);
  const std::string variable = with("KVSERVER_DATA_DIR", kNoDisk);
  const std::string device = with("--device", "must not be empty");
  const std::string backups = with("KVSERVER_BACKUP_DIR", "must not be empty");
  expect_sentences({
      {{"--data-dir", ""}, {}, flag.c_str()},
      {{"--data-dir="}, {}, flag.c_str()},
      {{}, {{"KVSERVER_DATA_DIR", ""}}, variable.c_str()},
      {{"--data-dir", "/d"}, {{"KVSERVER_BACKUP_DIR", ""}}, backups.c_str()},
      {{"--device", ""}, {}, device.c_str()},
      {{},
       {{"KVSERVER_CONFIG", ""}},
       "cannot read the configuration file \"\": No such file or directory: check KVSERVER_CONFIG"},
  });
}

TEST(Options, AVariableThatIsNoOptionsIsNamedWithTheOneThatWasMeant) {
  const char* const environment[] = {"PATH=/bin",
                                     "KVSERVER_DATA_DIR=/d",
                                     "KVSERVER_CONFIG=/c",
                                     "KVSERVER_DATADIR=/d",
                                     "KVSERVER_MEMROY",
                                     "KVSERVER_SERVICE_HOST=10.0.0.1",
                                     "XKVSERVER_DATADIR=/d",
                                     nullptr};
  EXPECT_THAT(
      unknown_variables(environment),
      ::testing::ElementsAre(
          "KVSERVER_DATADIR is not an option's variable and is ignored: is KVSERVER_DATA_DIR "
          "meant?",
          "KVSERVER_MEMROY is not an option's variable and is ignored: is KVSERVER_MEMORY meant?",
          "KVSERVER_SERVICE_HOST is not an option's variable and is ignored"));
}

TEST(Options, ALongWrongValueIsShownByItsBeginning) {
  const std::string endless(1'000'000, 'x');
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--memory", endless},
                                                    {"--poll=" + endless},
                                                    {endless},
                                                    {"--" + endless},
                                                    {"--config", endless}}) {
    const auto parsed = parse(arguments);
    EXPECT_EQ(parsed.exit_code, kExitUsage);
    EXPECT_LT(parsed.error.size(), 400U);
    EXPECT_THAT(parsed.error, HasSubstr("xxx...")) << arguments.front().substr(0, 20);
  }
  EXPECT_THAT(parse({"--memory", "1\n\x1b[2J"}).error, HasSubstr("not \"1\\n\\x1b[2J\""));
}

TEST(Options, DataThatMustBeThereIsAskedForWithADirectory) {
  EXPECT_FALSE(parse({"--data-dir", "/d"}).options.require_data);
  EXPECT_TRUE(parse({"--data-dir", "/d", "--require-data", "yes"}).options.require_data);
  EXPECT_FALSE(parse({"--data-dir", "/d", "--require-data", "no"}).options.require_data);
  expect_sentences({
      {{"--data-dir", "/d", "--require-data", "1"},
       {},
       "--require-data must be yes or no, not \"1\""},
      {{"--require-data", "yes"}, {}, "require-data needs data-dir: give --data-dir as well"},
      {{"--restore", "/b", "--data-dir", "/d", "--require-data", "yes"},
       {},
       "--require-data cannot be combined with --restore: leave it out"},
  });
}

TEST(Options, ACacheHasNoDisk) {
  EXPECT_FALSE(parse({}).options.evict);
  EXPECT_TRUE(parse({"--evict"}).options.evict);
  EXPECT_FALSE(parse({"--evict=no"}).options.evict);
  EXPECT_TRUE(parse({}, {{"KVSERVER_EVICT", "yes"}}).options.evict);
  expect_sentences({
      {{"--evict=1"}, {}, "--evict must be yes or no, not \"1\""},
      {{"--evict", "--data-dir", "/d"},
       {},
       "evict cannot be combined with data-dir, with which records beyond memory stay on disk: "
       "leave "
       "one of them out"},
  });
}

TEST(Options, MemoryIsScrubbedIfAsked) {
  EXPECT_FALSE(parse({}).options.scrub);
  EXPECT_TRUE(parse({"--scrub"}).options.scrub);
  EXPECT_FALSE(parse({"--scrub=no"}).options.scrub);
  EXPECT_TRUE(parse({}, {{"KVSERVER_SCRUB", "yes"}}).options.scrub);
  EXPECT_TRUE(parse({"--scrub", "--evict"}).options.scrub);
  expect_sentences({{{"--scrub=on"}, {}, "--scrub must be yes or no, not \"on\""}});
}

TEST(Options, WhatDoesNotGoTogetherIsRefusedAndNotPassedOver) {
  expect_sentences({
      {{"--verify"}, {}, "--verify needs --data-dir"},
      {{"--accept-damaged-log"}, {}, "--accept-damaged-log needs --data-dir"},
      {{"--restore", "/b"}, {}, "--restore needs --data-dir"},
      {{"--restore", "", "--data-dir", "/d"}, {}, "--restore needs the directory of a backup"},
      {{"--verify", "--restore", "/b", "--data-dir", "/d"},
       {},
       "--verify cannot be combined with --restore, which verifies too"},
      {{"--backup-dir", "/b"}, {}, "backup-dir needs data-dir: give --data-dir as well"},
      {{"--load-rate", "1MiB"}, {}, "load-rate needs data-dir: give --data-dir as well"},
      {{"--load-rate", "1023KiB", "--data-dir", "/d"},
       {},
       "--load-rate must be a size from 1MiB to 1024GiB, such as 512MiB or 2GiB, not "
       "\"1023KiB\""},
      {{"--verify", "--data-dir", "/d", "--accept-damaged-log"},
       {},
       "--accept-damaged-log cannot be combined with --verify: leave it out"},
      {{"--restore", "/b", "--data-dir", "/d", "--backup-dir", "/x"},
       {},
       "--backup-dir cannot be combined with --restore: leave it out"},
      {{"--restore", "/b", "--data-dir", "/d", "--load-rate", "1MiB"},
       {},
       "--load-rate cannot be combined with --restore: leave it out"},
      {{"--transport", "verbs", "--shm-group", "rkv"},
       {},
       "shm-group cannot be combined with transport verbs: leave one of them out"},
  });
}

TEST(Options, OptionsOfAGroupNeedOne) {
  const std::vector<std::string> group = {
      "--etcd",   "192.0.2.9:2379", "--group",    "g",  "--name",         "n1",
      "--listen", "127.0.0.1:7471", "--data-dir", "/d", "--group-secret", "/s"};
  auto with = [&group](std::vector<std::string> more) {
    more.insert(more.begin(), group.begin(), group.end());
    return more;
  };
  EXPECT_EQ(parse(group).options.min_copies, 1U);
  EXPECT_EQ(parse(with({"--min-copies", "2"})).options.min_copies, 2U);
  EXPECT_TRUE(parse(group).options.lanes);
  EXPECT_TRUE(parse(with({"--replicate-over", "auto"})).options.lanes);
  EXPECT_FALSE(parse(with({"--replicate-over", "tcp"})).options.lanes);
  EXPECT_FALSE(parse(group).options.force_primary);
  EXPECT_TRUE(parse(with({"--force-primary"})).options.force_primary);
  EXPECT_EQ(parse(group).options.forget_revoked, "");
  EXPECT_EQ(parse(with({"--forget-revoked", "app"})).options.forget_revoked, "app");
  EXPECT_EQ(parse(with({"--forget-revoked", "*"})).options.forget_revoked, "*");
  EXPECT_FALSE(parse(group).options.found_group);
  EXPECT_TRUE(parse(with({"--found-group"})).options.found_group);
  EXPECT_FALSE(parse(group).options.alone_without_etcd);
  EXPECT_TRUE(parse(with({"--alone-without-etcd"})).options.alone_without_etcd);
  EXPECT_EQ(parse(with({"--etcd-ca", "c", "--etcd-cert", "d", "--etcd-key", "k"})).options.etcd_key,
            "k");
  expect_sentences({
      {{"--min-copies", "2"}, {}, "min-copies needs etcd: give --etcd as well"},
      {{"--replicate-over", "tcp"}, {}, "replicate-over needs etcd: give --etcd as well"},
      {with({"--replicate-over", "rdma"}),
       {},
       "--replicate-over must be auto or tcp, not \"rdma\""},
      {{"--force-primary"}, {}, "force-primary needs etcd: give --etcd as well"},
      {{"--forget-revoked", "app"}, {}, "forget-revoked needs etcd: give --etcd as well"},
      {with({"--forget-revoked", "a b"}),
       {},
       "--forget-revoked needs the name of a user, or '*' for all"},
      {with({"--forget-revoked", "app", "--force-primary"}),
       {},
       "--forget-revoked cannot be combined with --verify, --restore or --force-primary"},
      {{"--found-group"}, {}, "found-group needs etcd: give --etcd as well"},
      {{"--alone-without-etcd"}, {}, "alone-without-etcd needs etcd: give --etcd as well"},
      {{"--etcd-ca", "c"}, {}, "etcd-ca and etcd-user need etcd: give --etcd as well"},
      {with({"--etcd-key", "k"}), {}, "etcd-cert and etcd-key need each other: give both or none"},
      {with({"--etcd-cert", "c", "--etcd-key", "k"}),
       {},
       "etcd-cert needs etcd-ca: give --etcd-ca as well"},
      {with({"--etcd-user", "u"}),
       {},
       "etcd-user and etcd-password-file need each other: give both or none"},
      {with({"--force-primary", "--verify"}),
       {},
       "--force-primary cannot be combined with --verify: leave it out"},
  });
}

// Users, or the modes of files, decide about clients. So they do about replicas.
TEST(Options, AGroupNeedsItsSecretOnLoopbackToo) {
  const auto problem = [](const std::string& listen, std::vector<std::string> more) {
    more.insert(more.begin(), {"--etcd", "192.0.2.9:2379", "--group", "g", "--name", "n1",
                               "--data-dir", "/d", "--listen", listen});
    return parse(more).error;
  };
  const std::string of_host =
      "etcd without group-secret would let every user of this host that reaches port 7472 be a "
      "replica: give --group-secret FILE, or --no-auth to allow it";
  const std::string of_all =
      "etcd without group-secret would let every host that reaches port 7472 be a replica: give "
      "--group-secret FILE, or --no-auth to allow it";
  for (const char* const listen :
       {"127.0.0.1:7471", "127.9.9.9:7471", "localhost:7471", "[::1]:7471"}) {
    EXPECT_EQ(problem(listen, {}), of_host);
    EXPECT_EQ(problem(listen, {"--users", "u"}), of_host);
    EXPECT_EQ(problem(listen, {"--no-auth"}), "");
    EXPECT_EQ(problem(listen, {"--group-secret", "s"}), "");
  }
  EXPECT_EQ(problem("192.0.2.1:7471", {"--users", "u"}), of_all);
}

TEST(Options, ANameThatBeginsLikeLoopbackIsAName) {
  for (const char* const listen :
       {"127.example.org:7471", "127.0.0.1.example.org:7471", "127.1:7471"})
    EXPECT_NE(parse({"--listen", listen}).error.find("would let every host"), std::string::npos)
        << listen;
  EXPECT_EQ(parse({"--listen", "127.0.0.2:7471"}).error, "");
}

TEST(Options, UnknownAndIncompleteFlagsAreNamed) {
  for (const auto& [arguments, word] :
       std::vector<std::pair<std::vector<std::string>, const char*>>{
           {{"--verbose"}, "verbose"}, {{"--memory"}, "memory"}, {{"-q"}, "q"}}) {
    const auto parsed = parse(arguments);
    EXPECT_EQ(parsed.exit_code, kExitUsage);
    EXPECT_THAT(parsed.error, HasSubstr(word));
    EXPECT_THAT(parsed.error, HasSubstr("kvserver --help"));
    EXPECT_THAT(parsed.error, ::testing::Not(HasSubstr("\n")));
  }
}

class OptionsFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path = dir_.file("kvserver.toml");
    std::ofstream(path, std::ios::trunc) << text;
    return path;
  }
  test::TempDir dir_;
};

TEST_F(OptionsFile, FlagsBeatTheEnvironmentBeatsTheFile) {
  const std::string path = write("threads = 2\nmemory = \"32MiB\"\nqueue = \"48MiB\"\n");
  const auto parsed = parse({"--config", path, "--threads", "4"},
                            {{"KVSERVER_THREADS", "3"}, {"KVSERVER_MEMORY", "64MiB"}});
  ASSERT_EQ(parsed.error, "");
  EXPECT_EQ(parsed.options.threads, 4U);
  EXPECT_EQ(parsed.options.memory_bytes, std::uint64_t{64} << 20);
  EXPECT_EQ(parsed.options.queue_bytes, std::uint64_t{48} << 20);
}

TEST_F(OptionsFile, MayBeNamedInTheEnvironment) {
  const auto parsed = parse({}, {{"KVSERVER_CONFIG", write("data-dir = \"/d\"\n")}});
  ASSERT_EQ(parsed.error, "");
  EXPECT_EQ(parsed.options.data_dir, "/d");
}

TEST_F(OptionsFile, MaySayHowDurableWritesAre) {
  const auto parsed = parse({"--config", write("data-dir = \"/d\"\ndurability = \"sync\"\n")});
  ASSERT_EQ(parsed.error, "");
  EXPECT_EQ(parsed.options.durability, Durability::kSync);
  EXPECT_EQ(parse({"--data-dir", "/d", "--durability", "wal"}).options.durability,
            Durability::kWal);
}

TEST_F(OptionsFile, MayRequireDataByATruthValue) {
  const std::string path = write("data-dir = \"/d\"\nrequire-data = true\n");
  const auto parsed = parse({"--config", path});
  ASSERT_EQ(parsed.error, "");
  EXPECT_TRUE(parsed.options.require_data);
}

TEST_F(OptionsFile, ErrorsNameTheFileAndTheKey) {
  for (const auto& [text, sentence] : Variables{
           {"memroy = 1\n", ": unknown key \"memroy\": kvserver --help lists the options"},
           {"config = \"x\"\n", ": unknown key \"config\": kvserver --help lists the options"},
           {"threads = 0\n", ": threads must be a whole number from 1 to 256, not \"0\""},
           {"threads = 1.5\n", ": threads must be a whole number from 1 to 256, not \"1.5\""},
           {"data-dir = \"\"\n",
            ": data-dir must not be empty: leave it out for a server without a disk, not \"\""},
           {"\n[server]\nthreads = 1\n",
            ":2: [server]: tables are not supported: write options at the top level"},
           {"data.dir = 1\n",
            ":1: [data]: tables are not supported: write options at the top level"},
           {"threads = [1]\n", ":1: threads must be a string or a number"},
           {"threads = 2001-02-03\n", ":1: threads must be a string or a number"}}) {
    const std::string path = write(text);
    const auto parsed = parse({"--config", path});
    EXPECT_EQ(parsed.exit_code, kExitUsage);
    EXPECT_EQ(parsed.error, path + sentence);
  }
}

TEST_F(OptionsFile, SyntaxErrorsNameTheLine) {
  const std::string path = write("threads = 1\n\nmemory = = 3\n");
  const auto parsed = parse({"--config", path});
  EXPECT_EQ(parsed.exit_code, kExitUsage);
  EXPECT_THAT(parsed.error, ::testing::StartsWith(path + ":3: "));
}

}  // namespace
}  // namespace rkv::server
