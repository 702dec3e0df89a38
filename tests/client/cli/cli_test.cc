// kvclient's command line: parsing in the process, and the program itself where it must say what is
// wrong without having connected anywhere.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "client/cli/connect.h"
#include "client/cli/options.h"
#include "client/engine/option_table.h"

namespace rkv::cli {
namespace {

const Environment empty_environment = [](const char*) -> const char* { return nullptr; };

Command command_of(const std::vector<std::string>& arguments,
                   const Environment& env = empty_environment) {
  Parsed parsed = parse_arguments(arguments, env);
  EXPECT_EQ(parsed.kind, Parsed::Kind::kCommand) << parsed.text;
  return std::move(parsed.command);
}

TEST(Connect, OnlyAServerNamedTwiceIsWrongUse) {
  const Error twice{.code = Code::kInvalidArgument, .text = "the same kvserver"};
  EXPECT_EQ(exit_code_of_connect(twice, 2), kUsage);
  EXPECT_EQ(exit_code_of_connect(twice, 1), kNoServer);
  const Error no_address{.code = Code::kInvalidArgument, .call = "getaddrinfo"};
  EXPECT_EQ(exit_code_of_connect(no_address, 2), kNoServer);
  EXPECT_EQ(exit_code_of_connect(Error{.code = Code::kUnreachable}, 2), kNoServer);
}

// ------------------------------------------------------------------------------------- parsing

TEST(Parse, GlobalsBeforeOrBehindTheVerb) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--server", "h:1", "--output=json", "-d", "mlx5_0", "get", "k"},
        std::vector<std::string>{"get", "--server=h:1", "k", "--output", "json", "-dmlx5_0"}}) {
    const Command command = command_of(arguments);
    EXPECT_EQ(command.verb, Verb::kGet);
    EXPECT_EQ(command.arguments, std::vector<std::string>{"k"});
    EXPECT_EQ(command.globals.client.server, "h:1");
    EXPECT_EQ(command.globals.client.device, "mlx5_0");
    EXPECT_TRUE(command.globals.json);
  }
}

TEST(Parse, ArgumentsAreTakenAsTheyAre) {
  EXPECT_EQ(command_of({"put", "a,b", ""}).arguments, (std::vector<std::string>{"a,b", ""}));
  EXPECT_EQ(command_of({"put", "--", "-k", "--hex"}).arguments,
            (std::vector<std::string>{"-k", "--hex"}));
  EXPECT_EQ(command_of({"get", "put"}).arguments, std::vector<std::string>{"put"});
}

TEST(Parse, NegativeNumbersNeedNothingBeforeThem) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(command_of({"incr", "c", "-5"}).arguments, (Words{"c", "-5"}));
  EXPECT_EQ(command_of({"incr", "c", "--", "-5"}).arguments, (Words{"c", "-5"}));
  EXPECT_EQ(command_of({"cas", "c", "-1", "5"}).arguments, (Words{"c", "-1", "5"}));
  EXPECT_EQ(command_of({"decr", "--gid-index", "-1", "c", "-c", "3"}).arguments, Words{"c"});
  EXPECT_EQ(parse_arguments({"get", "-5"}, empty_environment).kind, Parsed::Kind::kUsageError);
  EXPECT_EQ(parse_arguments({"incr", "c", "-x5"}, empty_environment).kind,
            Parsed::Kind::kUsageError);
}

TEST(Parse, WhatIsWrongIsShownInPart) {
  const std::string mega(1'000'000, 'x');
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--timeout", mega, "ping"},
                                                {"--server", mega, "ping"},
                                                {"ping", mega},
                                                {mega},
                                                {"scan", "--limit", mega},
                                                {"put", "--ttl", mega, "k", "v"}}) {
    const Parsed wrong = parse_arguments(words, empty_environment);
    EXPECT_EQ(wrong.kind, Parsed::Kind::kUsageError);
    EXPECT_LT(wrong.text.size(), 400U) << wrong.text.substr(0, 100);
  }
}

TEST(Parse, EveryVerbThatWritesTakesADurability) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"put", "k", "v"},
                                                {"del", "k"},
                                                {"incr", "k"},
                                                {"decr", "k"},
                                                {"cas", "k", "1", "2"},
                                                {"load", "f"}}) {
    EXPECT_EQ(command_of(words).put.durability, Durability::kDefault);
    std::vector<std::string> durable = words;
    durable.insert(durable.begin() + 1, {"--durability", "wal"});
    EXPECT_EQ(command_of(durable).put.durability, Durability::kWal) << words[0];
    durable[2] = "disk";
    const Parsed wrong = parse_arguments(durable, empty_environment);
    EXPECT_EQ(wrong.kind, Parsed::Kind::kUsageError);
    EXPECT_EQ(wrong.text, "--durability needs memory, wal or sync, not 'disk'");
  }
  EXPECT_EQ(parse_arguments({"get", "--durability", "wal", "k"}, empty_environment).kind,
            Parsed::Kind::kUsageError);
}

TEST(Parse, AGetMayInsistOnADurableValue) {
  EXPECT_EQ(command_of({"get", "k"}).get.at_least, Durability::kMemory);
  EXPECT_EQ(command_of({"get", "--durable", "k"}).get.at_least, Durability::kSync);
  EXPECT_EQ(command_of({"get", "--durable", "k"}).arguments, std::vector<std::string>{"k"});
  EXPECT_EQ(command_of({"get", "--durable=wal", "k"}).get.at_least, Durability::kWal);
  EXPECT_EQ(parse_arguments({"get", "--durable=memory", "k"}, empty_environment).text,
            "--durable needs sync or wal, not 'memory'");
}

TEST(Parse, SeveralServersComeFromFlagsOrTheEnvironment) {
  const Environment env = [](const char* name) -> const char* {
    if (std::string_view(name) == "KVCLIENT_SERVER") return "one:1";
    return std::string_view(name) == "KVCLIENT_SERVERS" ? "b:2,a:1" : nullptr;
  };
  EXPECT_EQ(command_of({"ping"}, env).globals.servers, *ShardMap::parse("b:2,a:1"));
  EXPECT_EQ(command_of({"--servers", "c:3", "ping"}, env).globals.servers, *ShardMap::parse("c:3"));
  EXPECT_FALSE(command_of({"--server", "d:4", "ping"}, env).globals.servers);
  EXPECT_EQ(name_of_store(command_of({"ping"}, env).globals), "2 servers");
  EXPECT_EQ(parse_arguments({"--servers", "a:1,a:1", "ping"}, empty_environment).text,
            "--servers: two servers of the list have the address a:1: name it once");
  const Globals shell = command_of({"ping"}, env).globals;
  EXPECT_EQ(parse_shell_line({"get", "--servers", "b:2,a:1", "k"}, shell).kind,
            Parsed::Kind::kCommand);
  EXPECT_EQ(parse_shell_line({"get", "--servers", "a:1", "k"}, shell).kind,
            Parsed::Kind::kUsageError);
}

TEST(Parse, EnvironmentIsOutrankedByFlags) {
  const std::map<std::string, std::string> set = {{"KVCLIENT_SERVER", "env:2"},
                                                  {"KVCLIENT_OUTPUT", "json"},
                                                  {"KVCLIENT_HEX", "1"},
                                                  {"KVCLIENT_TIMEOUT", "250ms"}};
  const Environment env = [&](const char* name) -> const char* {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  };
  const Globals globals = command_of({"--output", "text", "ping"}, env).globals;
  EXPECT_EQ(globals.client.server, "env:2");
  EXPECT_EQ(globals.client.timeout.count(), 250);
  EXPECT_TRUE(globals.hex);
  EXPECT_FALSE(globals.json);

  const Environment bad = [](const char* name) -> const char* {
    return std::string_view(name) == "KVCLIENT_TIMEOUT" ? "soon" : nullptr;
  };
  EXPECT_EQ(
      parse_arguments({"ping"}, bad).text,
      "KVCLIENT_TIMEOUT: --timeout needs a time above zero such as 250ms, 5s or 2h, not 'soon'");
}

TEST(Parse, WhetherSomebodyNamedAServer) {
  EXPECT_FALSE(command_of({"doctor"}).globals.names_server);
  EXPECT_TRUE(command_of({"doctor", "--server", "127.0.0.1:7471"}).globals.names_server);
  EXPECT_TRUE(command_of({"doctor", "--servers", "a:1,b:1"}).globals.names_server);
  // The default address as well, when it was given.
  const Environment env = [](const char* name) {
    return std::string_view(name) == "KVCLIENT_SERVER" ? "127.0.0.1:7471" : nullptr;
  };
  const Command command = command_of({"doctor"}, env);
  EXPECT_TRUE(command.globals.names_server);
  // A line of a shell that got its server by a flag.
  EXPECT_TRUE(parse_shell_line({"doctor"}, command.globals).command.globals.names_server);
}

// A file for its owner alone that holds one line.
class SecretFile {
 public:
  explicit SecretFile(const std::string& text) : path_(::testing::TempDir() + "rkv-secret-XXXXXX") {
    const int fd = mkstemp(path_.data());  // has mode 0600
    EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(fd);
  }
  ~SecretFile() { unlink(path_.c_str()); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Parse, AUserAndItsSecretComeTogether) {
  const std::string secret(64, 'a');
  const std::string other(64, 'b');
  const SecretFile file(secret + "\n");
  const Command flags = command_of({"--user", "anna", "--secret-file", file.path(), "ping"});
  EXPECT_EQ(flags.globals.client.user, "anna");
  EXPECT_EQ(flags.globals.client.secret, secret);
  std::map<std::string, std::string> variables = {{"KVCLIENT_USER", "anna"},
                                                  {"KVCLIENT_SECRET", other}};
  const Environment environment = [&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
  EXPECT_EQ(command_of({"ping"}, environment).globals.client.secret, other);
  EXPECT_EQ(command_of({"ping", "--secret-file", file.path()}, environment).globals.client.secret,
            secret);
  EXPECT_EQ(command_of({"ping", "--user", "bob"}, environment).globals.client.user, "bob");
  variables["KVCLIENT_SECRET_FILE"] = file.path();
  EXPECT_EQ(command_of({"ping"}, environment).globals.client.secret, secret);
}

TEST(Parse, AUserOrASecretAloneIsAMistake) {
  const auto problem = [](const std::vector<std::string>& arguments, const char* secret = nullptr) {
    const Parsed parsed = parse_arguments(arguments, [&](const char* name) -> const char* {
      return std::string(name) == "KVCLIENT_SECRET" ? secret : nullptr;
    });
    EXPECT_EQ(parsed.kind, Parsed::Kind::kUsageError);
    return parsed.text;
  };
  const SecretFile file(std::string(64, 'a'));
  const SecretFile shorter(std::string(63, 'a'));
  EXPECT_NE(problem({"--user", "anna", "ping"}).find("--secret-file"), std::string::npos);
  EXPECT_NE(problem({"--secret-file", file.path(), "ping"}).find("--user"), std::string::npos);
  EXPECT_NE(problem({"--user", "anna", "ping"}, "aa").find("64 hexadecimal"), std::string::npos);
  EXPECT_NE(problem({"--user", "a b", "ping"}).find("a b"), std::string::npos);
  EXPECT_NE(
      problem({"--user", "anna", "--secret-file", shorter.path(), "ping"}).find("64 hexadecimal"),
      std::string::npos);
  EXPECT_NE(
      problem({"--user", "anna", "--secret-file", "/no/such/file", "ping"}).find("/no/such/file"),
      std::string::npos);
}

TEST(Parse, TheSecretOfTheEnvironmentIsForCommandsWithAUser) {
  std::map<std::string, std::string> variables = {{"KVCLIENT_SECRET", "aa"}};
  const Environment environment = [&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
  const auto is_ignored = [&] {
    const Globals globals = command_of({"ping"}, environment).globals;
    EXPECT_EQ(globals.client.secret, "");
    EXPECT_EQ(globals.secret_file, "");
    EXPECT_EQ(parse_arguments({"ping", "--help"}, environment).kind, Parsed::Kind::kText);
    EXPECT_EQ(parse_arguments({"--version"}, environment).kind, Parsed::Kind::kText);
  };
  const auto problem = [&](const std::vector<std::string>& arguments) {
    const Parsed parsed = parse_arguments(arguments, environment);
    EXPECT_EQ(parsed.kind, Parsed::Kind::kUsageError);
    return parsed.text;
  };
  is_ignored();
  EXPECT_NE(problem({"--user", "anna", "ping"}).find("KVCLIENT_SECRET needs"), std::string::npos);
  variables["KVCLIENT_SECRET_FILE"] = "/no/such/file";
  is_ignored();
  EXPECT_EQ(problem({"--user", "anna", "ping"}).find("KVCLIENT_SECRET_FILE: --secret-file"), 0U);
  const SecretFile file(std::string(64, 'a'));
  const Command flag =
      command_of({"--user", "anna", "--secret-file", file.path(), "ping"}, environment);
  EXPECT_EQ(flag.globals.client.secret, std::string(64, 'a'));
  EXPECT_NE(problem({"--secret-file", file.path(), "ping"}).find("--user"), std::string::npos);
  EXPECT_NE(problem({"--user", "anna", "--secret-file=", "ping"}).find("--secret-file"),
            std::string::npos);
  variables["KVCLIENT_USER"] = "anna";
  EXPECT_EQ(parse_arguments({"--help"}, environment).kind, Parsed::Kind::kText);
}

// The file may have another secret by then.
TEST(Parse, AShellReadsItsSecretOnce) {
  const std::string secret(64, 'a');
  std::optional<SecretFile> file(secret);
  const std::string path = file->path();
  const Globals shell = command_of({"--user", "anna", "--secret-file", path}).globals;
  file.reset();
  const Parsed line = parse_shell_line({"ping"}, shell);
  ASSERT_EQ(line.kind, Parsed::Kind::kCommand) << line.text;
  EXPECT_EQ(line.command.globals.client.secret, secret);
}

TEST(Parse, AShellStaysWithItsUser) {
  Globals shell;
  shell.client.user = "anna";
  shell.client.secret = std::string(64, 'a');
  EXPECT_EQ(parse_shell_line({"ping"}, shell).kind, Parsed::Kind::kCommand);
  const Parsed other = parse_shell_line({"ping", "--user", "bob"}, shell);
  EXPECT_EQ(other.kind, Parsed::Kind::kUsageError);
  EXPECT_NE(other.text.find("another user"), std::string::npos);
}

TEST(Parse, Defaults) {
  const Command command = command_of({});
  EXPECT_EQ(command.verb, Verb::kShell);
  EXPECT_EQ(command.globals.client.server, "127.0.0.1:7471");
  EXPECT_EQ(command.globals.client.timeout.count(), 5000);
  EXPECT_EQ(command.globals.client.cache_bytes, std::size_t{64} << 20);
  EXPECT_EQ(command.globals.client.gid_index, -1);
}

TEST(Parse, DefaultsOfTheReadmeAreThoseOfAClient) {
  std::ifstream file("client/cli/README.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::size_t begin = page.find("Defaults:");
  const std::string defaults = page.substr(begin, page.find("\n\n", begin) - begin);
  for (const client::ClientOption& option : client::kClientOptions) {
    if (option.flag.empty()) continue;
    const std::string flag = "--" + std::string(option.flag);
    const std::size_t at = defaults.find("`" + flag + " ");
    if (at == std::string::npos) {
      EXPECT_TRUE(option.holds<std::string>() || option.least < option.most)
          << flag << ": only help of numbers and texts says what is the default";
      continue;
    }
    const std::size_t value = at + flag.size() + 2;
    const std::string text = defaults.substr(value, defaults.find('`', value) - value);
    const ClientOptions given = command_of({flag, text, "ping"}).globals.client;
    const auto is_default = [&](auto place) { return given.*place == ClientOptions{}.*place; };
    EXPECT_TRUE(std::visit(is_default, option.place)) << flag << " " << text;
  }
}

TEST(Parse, OwnOptions) {
  const Command load = command_of({"load", "--verify", "--skip-bad", "--format", "tsv", "f"});
  EXPECT_TRUE(load.verify && load.skip_bad);
  EXPECT_EQ(load.format, Format::kTsv);
  EXPECT_TRUE(command_of({"verify", "--sequential", "f"}).sequential);
  EXPECT_EQ(command_of({"dump", "--keys", "-"}).keys_file, "-");
  const Command scan = command_of({"scan", "--prefix", "a", "--start", "b", "--end", "c", "--limit",
                                   "7", "--reverse", "--keys-only", "--token", "00ff"});
  EXPECT_EQ(scan.range.token, "00ff");
  EXPECT_EQ(scan.range.prefix + scan.range.start + scan.range.end, "abc");
  EXPECT_EQ(scan.limit, 7U);
  EXPECT_TRUE(scan.reverse && scan.keys_only && !scan.globals.tsv);
  EXPECT_TRUE(command_of({"dump", "--progress", "f"}).progress);
  EXPECT_EQ(command_of({"ping", "-c", "12"}).count, 12U);
  EXPECT_TRUE(command_of({"put", "-x", "k"}).last_from_stdin);
  EXPECT_EQ(command_of({"put", "--ttl", "2h", "k", "v"}).put.ttl, std::chrono::hours(2));
}

// Where it was asked for along with the verb it is done or refused; elsewhere it is a preference.
TEST(Parse, RecordsCanBeTsvAndNothingElse) {
  const Environment env = [](const char* name) -> const char* {
    return std::string_view(name) == "KVCLIENT_OUTPUT" ? "tsv" : nullptr;
  };
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"get", "k"}, {"mget", "k"}, {"scan"}, {"dump"}, {}}) {
    std::vector<std::string> asked = words;
    asked.insert(asked.begin(), {"--output", "tsv"});
    EXPECT_TRUE(command_of(asked).globals.tsv);
  }
  for (const std::vector<std::string>& words : {std::vector<std::string>{"put", "k", "v"},
                                                {"incr", "k"},
                                                {"load"},
                                                {"stats"},
                                                {"ping"},
                                                {"scan", "--keys-only"}}) {
    EXPECT_EQ(command_of(words, env).verb, command_of(words).verb);
    std::vector<std::string> asked = words;
    asked.insert(asked.begin(), {"--output", "tsv"});
    EXPECT_EQ(parse_arguments(asked, empty_environment).text,
              words[0] == "scan"
                  ? "--keys-only cannot be combined with --output tsv, which prints whole records"
                  : "--output tsv works with get, mget, scan and dump only");
  }
}

TEST(Parse, ShellLinesKeepToTheShellsServer) {
  Globals shell;
  shell.client.server = "h:1";
  EXPECT_EQ(parse_shell_line({"get", "k"}, shell).command.globals.client.server, "h:1");
  EXPECT_TRUE(parse_shell_line({"--hex", "get", "6b"}, shell).command.globals.hex);
  EXPECT_EQ(parse_shell_line({"get", "--server", "x:2", "k"}, shell).text,
            "this shell is connected to h:1; exit to use another server");
  EXPECT_EQ(parse_shell_line({"--hex"}, shell).text, "a line must begin with a verb; try help");
}

// ----------------------------------------------------------------------------------- the program

struct Ran {
  int exit_code = -1;
  std::string out;
  std::string err;
};

std::string drain(int fd) {
  std::string text;
  std::array<char, 4096> chunk;
  for (ssize_t got = 0; (got = read(fd, chunk.data(), chunk.size())) > 0;)
    text.append(chunk.data(), static_cast<std::size_t>(got));
  close(fd);
  return text;
}

// Runs the program with its standard input at end of file. The outputs are small enough for pipes.
Ran run(std::vector<std::string> arguments, const char* input = "/dev/null") {
  std::array<int, 2> out;
  std::array<int, 2> err;
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) return {};
  arguments.insert(arguments.begin(), KVCLIENT_PROGRAM);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments)
    argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int in = open(input, O_RDONLY);
    if (in < 0) _exit(126);
    dup2(in, STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execv(KVCLIENT_PROGRAM, argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  Ran ran{.exit_code = -1, .out = drain(out[0]), .err = drain(err[0])};
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) ran.exit_code = WEXITSTATUS(status);
  return ran;
}

TEST(Program, HelpAndVersionAreNoErrors) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, std::vector<std::string>{"-h"},
        std::vector<std::string>{"--version"}, std::vector<std::string>{"load", "--help"}}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, 0);
    EXPECT_FALSE(ran.out.empty());
    EXPECT_EQ(ran.err, "");
  }
  const std::string help = run({"--help"}).out;
  for (const VerbInfo& info : verbs())
    EXPECT_NE(help.find(info.name), std::string::npos) << info.name;
}

struct Mistake {
  std::vector<std::string> arguments;
  int exit_code;
  std::string said;  // part of the sentence
};

TEST(Program, ALongWrongValueIsShownByItsBeginning) {
  const std::string endless(100'000, 'x');
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{endless},
                                             {"--server", endless, "ping"},
                                             {"--timeout", endless, "ping"},
                                             {"--output", endless, "ping"},
                                             {"ping", endless},
                                             {"ping", "--count", endless},
                                             {"--hex", "get", endless},
                                             {"scan", "--limit", endless}}) {
    const Ran ended = run(arguments);
    EXPECT_EQ(ended.exit_code, 2) << arguments.front().substr(0, 20);
    EXPECT_LT(ended.err.size(), 500U) << arguments.front().substr(0, 20);
    EXPECT_NE(ended.err.find("xxx..."), std::string::npos) << arguments.front().substr(0, 20);
  }
}

void expect_to_be_told(const std::vector<Mistake>& mistakes) {
  for (const Mistake& mistake : mistakes) {
    std::string shown;
    for (const std::string& argument : mistake.arguments)
      shown += argument.substr(0, 40) + " ";
    SCOPED_TRACE(shown);
    const Ran ran = run(mistake.arguments);
    EXPECT_EQ(ran.exit_code, mistake.exit_code);
    EXPECT_EQ(ran.out, "");
    EXPECT_TRUE(ran.err.starts_with("kvclient: ")) << ran.err;
    EXPECT_NE(ran.err.find(mistake.said), std::string::npos) << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

TEST(Program, MistakesAreToldInOneSentence) {
  const std::string long_key(1025, 'k');
  const std::vector<Mistake> mistakes = {
      {{"got", "k"}, 2, "unknown verb 'got'; the verbs are get put del"},
      {{"--bogus"}, 2, "bogus"},
      {{"get", "--bogus", "k"}, 2, "see kvclient get --help"},
      {{"get"}, 2, "get needs KEY: 0 given"},
      {{"get", "-" + std::string(100'000, 'k')}, 2, "an option is too long; write --"},
      {{"get", "--server=" + std::string(100'000, 'k')}, 2, "an option is too long"},
      {{"get", "a", "b"}, 2, "get needs KEY: 2 given"},
      {{"get", ""}, 2, "the key is empty"},
      {{"get", long_key}, 2, "the key has 1025 bytes, more than 1024"},
      {{"mget", "a", ""}, 2, "the key is empty"},
      {{"put", "k"}, 2, "put needs KEY VALUE: 1 given"},
      {{"del", ""}, 2, "the key is empty"},
      {{"--hex", "get", "xyz"}, 2, "'xyz' is not hexadecimal"},
      {{"--hex", "put", "00", "1"}, 2, "'1' is not hexadecimal"},
      {{"--server", "nowhere", "ping"}, 2, "--server needs HOST:PORT"},
      {{"--server", "h:", "ping"}, 2, "--server needs a port from 1 to 65535, not ''"},
      {{"--server", "h:0", "ping"}, 2, "--server needs a port"},
      {{"--server", ":7471", "ping"}, 2, "--server needs HOST:PORT"},
      {{"--server", "::1:7471", "ping"}, 2, "[IPv6]:PORT"},
      {{"--server"}, 2, "server"},
      {{"--timeout", "5", "ping"}, 2, "--timeout needs a time above zero"},
      {{"--timeout", "0s", "ping"}, 2, "--timeout needs a time above zero"},
      {{"--output", "xml", "ping"}, 2, "--output needs text, json or tsv, not 'xml'"},
      {{"--transport", "shm", "-d", "rxe0", "ping"}, 2, "--device cannot be combined"},
      {{"--transport", "tcp", "-d", "rxe0", "ping"}, 2, "combined with --transport tcp"},
      {{"--transport", "udp", "ping"}, 2, "--transport needs auto, verbs, shm or tcp, not 'udp'"},
      {{"--gid-index", "x", "ping"}, 2, "--gid-index needs a number"},
      {{"-i", "300", "ping"}, 2, "--ib-port needs a number from 0 to 255"},
      {{"--cache", "lots", "ping"}, 2, "--cache needs a size"},
      {{"--poll", "never", "ping"}, 2, "--poll needs adaptive, busy or event"},
      {{"ping", "-c", "0"}, 2, "--count needs a number from 1 to 1000000000, not '0'"},
      {{"ping", "extra"}, 2, "ping takes no argument, not 'extra'"},
      {{"flush", "x"}, 2, "flush takes no argument"},
      {{"dump", "a", "b"}, 2, "dump needs [FILE]: 2 given"},
      {{"dump", "--keys="}, 2, "keys"},
      {{"scan", "k"}, 2, "scan takes no argument, not 'k'"},
      {{"scan", "--limit", "0"}, 2, "--limit needs a number from 1 to 4294967295, not '0'"},
      {{"scan", "--limit", "4294967296"}, 2, "--limit needs a number from 1 to 4294967295, not '4"},
      {{"scan", "--token", "0x"}, 2, "--token needs the token that a scan printed, not '0x'"},
      {{"put", "--ttl", "1w", "k", "v"},
       2,
       "--ttl needs a time above zero such as 250ms, 5s or 2h"},
      {{"put", "--ttl", "99999999d", "k", "v"},
       2,
       "--ttl needs a time of at most 366d, not '99999999d'"},
      {{"put", "--ttl", "0s", "k", "v"}, 2, "--ttl needs a time above zero"},
      {{"put", "--ttl", "0s", "--if-version", "3", "k", "v"}, 2, "--ttl needs a time above zero"},
      {{"scan", "--prefix", long_key}, 2, "--start and --end are limited to 1024 bytes"},
      {{"--hex", "scan", "--end", "x"}, 2, "'x' is not hexadecimal"},
      {{"dump", "--keys", "f", "--format", "deb822"}, 2, "dump writes tsv or jsonl"},
      {{"load", "--format", "csv", "f"}, 2, "--format needs deb822, tsv or jsonl, not 'csv'"},
      {{"verify"}, 2, "verify needs FILE: 0 given"},
      {{"load", "/no/such/file"}, 4, "cannot read /no/such/file: No such file or directory"},
      {{"load", "/"}, 4, "cannot read /: Is a directory"},
      {{"verify", "CMakePresets.json"}, 4, "CMakePresets.json:1:2: this is not a JSON object"},
      {{"dump", "--keys", "/no/such"}, 4, "cannot read /no/such"},
  };
  expect_to_be_told(mistakes);
}

TEST(Program, MistakesInStatsAndMeasurementsAreToldToo) {
  expect_to_be_told({
      {{"stats", "--count", "3"}, 2, "--count needs --watch"},
      {{"stats", "--watch=0s"}, 2, "--watch needs a time above zero"},
      {{"stats", "--watch", "2s"}, 2, "stats takes no argument, not '2s'"},
      {{"stats", "--watch", "--count", "0"}, 2, "--count needs a number from 1"},
      {{"bench", "--time", "soon"}, 2, "--time needs a time above zero"},
      {{"bench", "--time", "6m"}, 2, "--time is at most 5m"},
      {{"bench", "--keys", "0"}, 2, "--keys needs a number from 1 to 10000000, not '0'"},
      {{"bench", "--value-bytes", "65537"}, 2, "--value-bytes needs a number from 1 to 65536"},
      {{"exists"}, 2, "exists needs KEY...: 0 given"},
      {{"exists", "a", ""}, 2, "the key is empty"},
      {{"ttl", "a", "b"}, 2, "ttl needs KEY: 2 given"},
  });
}

TEST(Program, StandardInputIsReadBeforeConnecting) {
  const Ran empty_key = run({"get", "-x"});
  EXPECT_EQ(empty_key.exit_code, 2);
  EXPECT_NE(empty_key.err.find("the key is empty"), std::string::npos);
  // A file of this repository that is longer than a key.
  const Ran long_key = run({"get", "-x"}, "CMakeLists.txt");
  EXPECT_EQ(long_key.exit_code, 2);
  EXPECT_NE(long_key.err.find("bytes, more than 1024"), std::string::npos);
}

TEST(Program, UnreachableServerIsExitCode3) {
  // TEST-NET-1 of RFC 5737: nobody is there, with or without an RDMA device.
  const Ran ran = run({"--server", "192.0.2.1:9", "--timeout", "200ms", "get", "k"});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_NE(ran.err.find("cannot reach 192.0.2.1:9: "), std::string::npos) << ran.err;
  EXPECT_EQ(run({"--server", "192.0.2.1:9", "--timeout", "200ms"}).exit_code, 3) << "the shell";
}

TEST(Program, AListWithOneServerTwiceIsAUsageError) {
  const Ran ran = run({"--server", "192.0.2.1:9,192.0.2.1:9", "get", "k"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.err,
            "kvclient: --server needs each server of a group once, not "
            "'192.0.2.1:9,192.0.2.1:9'\n");
  EXPECT_EQ(run({"--server", "192.0.2.1:9,192.0.2.1:9", "doctor"}).exit_code, 2);
}

}  // namespace
}  // namespace rkv::cli
