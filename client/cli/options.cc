#include "client/cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cxxopts.hpp>
#include <iterator>
#include <optional>
#include <utility>

#include "client/cli/admin.h"
#include "client/cli/secret_file.h"
#include "client/cli/server_list.h"
#include "client/cli/verb_options.h"
#include "client/engine/option_table.h"
#include "client/link/servers.h"
#include "common/auth/proof.h"
#include "common/parse.h"

namespace rkv::cli {

namespace {

constexpr const char* kVersionText = "kvclient 0.1.0\n";

constexpr char kNegative = '\x01';  // hide_negative_numbers()

// ---------------------------------------------------------------------------------- global flags

std::string server_problem(const std::string& server) {
  if (const std::size_t comma = server.find(','); comma != std::string::npos) {
    std::string problem = server_problem(server.substr(0, comma));
    return problem.empty() ? server_problem(server.substr(comma + 1)) : problem;
  }
  const std::size_t colon = server.rfind(':');
  const std::string_view host = std::string_view(server).substr(0, colon);
  const bool bare_ipv6 = host.find(':') != std::string_view::npos && !host.starts_with('[');
  const bool bracketed = host.starts_with('[') == host.ends_with(']');
  if (colon == std::string::npos || host.empty() || bare_ipv6 || !bracketed) {
    return fmt::format("--server needs HOST:PORT or [IPv6]:PORT, not '{}'", shown(server));
  }
  if (!parse_number<unsigned>(std::string_view(server).substr(colon + 1), 1, 65535)) {
    return fmt::format("--server needs a port from 1 to 65535, not '{}'",
                       shown(server.substr(colon + 1)));
  }
  return {};
}

std::string set_server(Globals& globals, std::string_view /*name*/, const std::string& text) {
  globals.client.server = text;
  globals.servers.reset();
  if (std::string problem = server_problem(text); !problem.empty()) return problem;
  if (client::Servers::check(text)) return {};
  return fmt::format("--server needs each server of a group once, not '{}'", shown(text));
}

std::string set_user(Globals& globals, std::string_view name, const std::string& text) {
  globals.client.user = text;
  return text.empty() || is_user_name(text) ? "" : needs(name, "a user's name", text);
}

std::string set_secret_file(Globals& globals, std::string_view /*name*/, const std::string& text) {
  globals.secret_file = text;
  return {};
}

std::string set_output(Globals& globals, std::string_view name, const std::string& text) {
  globals.json = text == "json";
  globals.tsv = text == "tsv";
  return globals.json || globals.tsv || text == "text" ? ""
                                                       : needs(name, "text, json or tsv", text);
}

std::string set_hex(Globals& globals, std::string_view name, const std::string& text) {
  globals.hex = text == "true" || text == "1";
  return globals.hex || text == "false" || text == "0" ? "" : needs(name, "true or false", text);
}

// The client's option itself accepts 0s.
std::string set_timeout(Globals& globals, std::string_view name, const std::string& text) {
  return set_duration(globals.client.timeout, name, text);
}

// REQUIRES: there is one.
constexpr const client::ClientOption& option_of(std::string_view flag) {
  return *std::ranges::find(client::kClientOptions, flag, &client::ClientOption::flag);
}

// What the values of a client's option are, for people.
std::string wanted(const client::ClientOption& option) {
  if (option.holds<std::size_t>()) return "a size such as 64MiB";
  auto words = client::words_of(option);
  if (words.empty()) return client::range_of(option);
  const std::string_view last = words.back();
  words.pop_back();
  return fmt::format("{} or {}", fmt::join(words, ", "), last);
}

// Sets the client's option that has the flag `name`.
std::string set_of_client(Globals& globals, std::string_view name, const std::string& text) {
  const client::ClientOption& option = option_of(name);
  if (client::set_option(globals.client, option, text)) return {};
  return needs(name, wanted(option), text);
}

using GlobalFlag = Option<Globals>;

constexpr GlobalFlag of_client(std::string_view flag,
                               decltype(GlobalFlag::apply) apply = set_of_client) {
  const client::ClientOption& option = option_of(flag);
  return {flag, option.letter, option.hint, option.help, apply};
}

// In the order of the help.
constexpr GlobalFlag kGlobalFlags[] = {
    of_client("server", set_server),
    {"servers", 0, "LIST", "servers of one store, comma-separated: [NAME=]HOST:PORT[*WEIGHT]",
     set_servers},
    {"servers-file", 0, "FILE", "the same from a file, one per line, # for comments",
     set_servers_file},
    of_client("user", set_user),
    {"secret-file", 0, "FILE",
     "secret of the user, in a file for its owner alone; or as KVCLIENT_SECRET", set_secret_file},
    {"output", 0, "text|json|tsv", "output format; tsv: records in the format of load", set_output},
    {"hex", 0, "", "read and print keys and values in hexadecimal", set_hex},
    of_client("timeout", set_timeout),
    of_client("device"),
    of_client("ib-port"),
    of_client("gid-index"),
    of_client("transport"),
    of_client("poll"),
    of_client("cache"),
};

// The environment variable that sets the default of the flag.
std::string variable_of(const GlobalFlag& flag) {
  std::string name = "KVCLIENT_";
  for (const char letter : flag.name)
    name += letter == '-' ? '_' : static_cast<char>(letter - 'a' + 'A');
  return name;
}

const GlobalFlag* find_flag(std::string_view word) {
  const auto* const found =
      std::ranges::find_if(kGlobalFlags, [&](const GlobalFlag& flag) { return flag.is(word); });
  return found == std::end(kGlobalFlags) ? nullptr : found;
}

// Returns true if the word is a flag whose value is the next word.
bool global_takes_value(std::string_view word) {
  const GlobalFlag* const flag = find_flag(word);
  return flag != nullptr && flag->takes_value();
}

// Returns true for the flags that name the store's servers.
bool says_where(const GlobalFlag& flag) {
  return flag.name.starts_with("server");
}

// Returns true for the flags whose empty variable means that there is none.
bool is_empty_for_none(const GlobalFlag& flag) {
  return flag.name.starts_with("servers");
}

// ---------------------------------------------------------------------------------- option sets

const VerbInfo* find_verb(std::string_view name) {
  const auto found = std::ranges::find(verbs(), name, &VerbInfo::name);
  return found == verbs().end() ? nullptr : &*found;
}

void add_globals(cxxopts::Options& options) {
  auto add = options.add_options("global");
  for (const GlobalFlag& flag : kGlobalFlags)
    flag.add_to(add, fmt::format("{} [{}]", flag.help, variable_of(flag)));
  add("h,help", "print this help");
  add("version", "print the version");
}

std::string overview(cxxopts::Options& options) {
  std::string text = "usage: kvclient [OPTIONS] [VERB [ARGUMENTS]]\n\n";
  for (const VerbInfo& info : verbs()) {
    text += fmt::format("  {:24} {}\n", fmt::format("{} {}", info.name, info.arguments), info.help);
  }
  text +=
      "\nWithout a verb: an interactive shell; from a pipe, it reads such commands.\n"
      "kvclient VERB --help lists the options of a verb.\n\n";
  const std::string flags = options.help({"global"});
  text += flags.substr(flags.find(" global options:"));
  text +=
      "\nExit status: 0 done, 1 key not found, 2 wrong usage, 3 server not reached, 4 other "
      "failure, 5 a condition did not hold.\n";
  return text;
}

// ------------------------------------------------------------------------------------- values

Parsed usage_error(std::string sentence) {
  Parsed parsed;
  parsed.kind = Parsed::Kind::kUsageError;
  parsed.text = std::move(sentence);
  return parsed;
}

Parsed printed(std::string text) {
  Parsed parsed;
  parsed.kind = Parsed::Kind::kText;
  parsed.text = std::move(text);
  return parsed;
}

// Reads the user's secret. Returns what is wrong, or an empty text. `by_flag`: --secret-file was
// given. The secret of the environment is a default: a command without a user ignores it.
std::string take_secret(Globals& globals, bool by_flag) {
  ClientOptions& client = globals.client;
  const std::string file = std::exchange(globals.secret_file, {});
  if (client.user.empty()) {
    client.secret.clear();
    return by_flag ? "--secret-file needs a user: give --user, or leave out --secret-file" : "";
  }
  if (by_flag) return read_secret_file(file, client.secret);
  if (!file.empty()) {
    const std::string problem = read_secret_file(file, client.secret);
    return problem.empty() ? "" : fmt::format("KVCLIENT_SECRET_FILE: {}", problem);
  }
  if (client.secret.empty()) {
    return "--user needs the user's secret: give --secret-file, or set KVCLIENT_SECRET";
  }
  if (Secret::parse(client.secret)) return {};
  return "KVCLIENT_SECRET needs the 64 hexadecimal digits that kvserver user add made";
}

// Checks --output tsv given with the verb. As a default of the shell or the environment tsv applies
// only to the verbs that support it.
std::string tsv_problem(const Command& command) {
  const Verb verb = command.verb;
  if (!command.globals.tsv) return {};
  if (command.keys_only)
    return "--keys-only cannot be combined with --output tsv, which prints whole records";
  const bool shows_records = verb == Verb::kGet || verb == Verb::kMget || verb == Verb::kScan ||
                             verb == Verb::kDump || verb == Verb::kShell;
  return shows_records ? "" : "--output tsv works with get, mget, scan and dump only";
}

std::string arguments_problem(const Command& command, const VerbInfo& info) {
  const std::size_t given = command.arguments.size() + (command.last_from_stdin ? 1 : 0);
  if (given >= info.least_arguments && given <= info.most_arguments) return {};
  if (info.most_arguments == 0) {
    return fmt::format("{} takes no argument, not '{}'", info.name,
                       shown(command.arguments.front()));
  }
  return fmt::format("{} needs {}: {} given{}", info.name, info.arguments, given,
                     command.last_from_stdin ? " with -x" : "");
}

// ------------------------------------------------------------------------------------- parsing

// Returns the index of the verb: the first argument that is neither a flag nor a global flag's
// value.
std::optional<std::size_t> find_verb_argument(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") return i + 1 < arguments.size() ? std::optional(i + 1) : std::nullopt;
    if (!argument.starts_with('-') || argument == "-") return i;
    if (global_takes_value(argument)) ++i;
  }
  return std::nullopt;
}

// `hidden`: hide_negative_numbers() has marked the numbers.
Parsed parse_with(Globals defaults, const VerbInfo* info, const std::vector<std::string>& words,
                  bool hidden = false) {
  const std::string program = info == nullptr ? "kvclient" : fmt::format("kvclient {}", info->name);
  cxxopts::Options options(program, info == nullptr ? "" : std::string(info->help));
  options.custom_help(info == nullptr ? "[OPTIONS]" : fmt::format("[OPTIONS] {}", info->arguments));
  add_globals(options);
  Parsed parsed;
  Command& command = parsed.command;
  command.globals = std::move(defaults);
  command.verb = info == nullptr ? Verb::kShell : info->verb;
  add_verb_options(options, command.verb);

  std::vector<const char*> argv = {program.c_str()};
  for (const std::string& word : words)
    argv.push_back(word.c_str());
  std::optional<cxxopts::ParseResult> result;
  try {
    result = options.parse(static_cast<int>(argv.size()), argv.data());
  } catch (const cxxopts::exceptions::exception& problem) {
    return usage_error(fmt::format("{}; see {} --help", shown(problem.what()), program));
  }
  if (result->count("help") != 0) {
    return printed(info == nullptr ? overview(options) : options.help());
  }
  if (result->count("version") != 0) return printed(kVersionText);
  if (result->count("server") + result->count("servers") + result->count("servers-file") > 1) {
    return usage_error(
        "--server, --servers and --servers-file cannot be combined or repeated: give one of them");
  }
  for (const GlobalFlag& flag : kGlobalFlags) {
    const std::string name(flag.name);
    if (result->count(name) == 0) continue;
    if (says_where(flag)) command.globals.names_server = true;
    const std::string text = flag.takes_value()           ? (*result)[name].as<std::string>()
                             : (*result)[name].as<bool>() ? "true"
                                                          : "false";
    if (std::string problem = flag.apply(command.globals, flag.name, text); !problem.empty()) {
      return usage_error(std::move(problem));
    }
  }
  const ClientOptions& client = command.globals.client;
  if (!may_be_verbs(client.transport) && !client.device.empty()) {
    return usage_error(fmt::format("--device cannot be combined with --transport {}",
                                   client.transport == Transport::kShm ? "shm" : "tcp"));
  }
  command.arguments = result->unmatched();
  for (std::string& argument : command.arguments) {
    if (hidden && argument.starts_with(kNegative)) argument.erase(0, 1);
  }
  std::string problem = take_secret(command.globals, result->count("secret-file") != 0);
  if (problem.empty()) problem = set_verb_options(command, *result);
  if (problem.empty() && result->count("output") != 0) problem = tsv_problem(command);
  if (problem.empty() && info != nullptr) problem = arguments_problem(command, *info);
  if (!problem.empty()) return usage_error(std::move(problem));
  return parsed;
}

// cxxopts matches words that begin with - by std::regex, whose recursion depth grows with the
// length of the word: a long word would overflow the stack.
bool has_endless_flag(const std::vector<std::string>& words) {
  constexpr std::size_t kLongest = 1024;
  const auto end = std::ranges::find(words, "--");
  return std::any_of(words.begin(), end, [](const std::string& word) {
    return word.starts_with('-') && word.size() > kLongest;
  });
}

bool wants_numbers(Verb verb) {
  return verb == Verb::kIncr || verb == Verb::kDecr || verb == Verb::kCas;
}

// Marks negative numbers for verbs that take numbers, so that cxxopts does not take them for flags:
// -- is not needed before them. The mark is a byte before the number; parse_with() removes it.
// Returns false and marks nothing if the verb takes no numbers, or a word begins with that byte.
bool hide_negative_numbers(std::vector<std::string>& words, Verb verb) {
  const auto is_marked = [](const std::string& word) { return word.starts_with(kNegative); };
  if (!wants_numbers(verb) || std::ranges::any_of(words, is_marked)) return false;
  for (std::size_t i = 1; i < words.size() && words[i] != "--"; ++i) {
    const bool is_value = global_takes_value(words[i - 1]) || takes_value(verb, words[i - 1]);
    const bool negative = words[i].starts_with('-') && parse_number<std::int64_t>(words[i]);
    if (negative && !is_value) words[i].insert(0, 1, kNegative);
  }
  return true;
}

Parsed parse_words(const Globals& defaults, std::vector<std::string> words) {
  if (has_endless_flag(words)) {
    return usage_error("an option is too long; write -- before arguments that begin with -");
  }
  const auto verb = find_verb_argument(words);
  if (!verb) return parse_with(defaults, nullptr, words);
  const std::string name = words[*verb];
  const VerbInfo* info = find_verb(name);
  if (info == nullptr) {
    std::string names;
    for (const VerbInfo& known : verbs())
      names += fmt::format(" {}", known.name);
    return usage_error(fmt::format("unknown verb '{}'; the verbs are{}", shown(name), names));
  }
  words.erase(words.begin() + static_cast<std::ptrdiff_t>(*verb));
  const bool hidden = hide_negative_numbers(words, info->verb);
  return parse_with(defaults, info, words, hidden);
}

}  // namespace

const std::vector<VerbInfo>& verbs() {
  constexpr std::size_t kAny = 1'000'000'000;
  static const std::vector<VerbInfo> list = {
      {Verb::kGet, "get", "KEY", "print a value", 1, 1},
      {Verb::kPut, "put", "KEY VALUE", "store a value", 2, 2},
      {Verb::kDel, "del", "KEY", "delete a key", 1, 1},
      {Verb::kIncr, "incr", "KEY [BY]", "add to a counter, and print it", 1, 2},
      {Verb::kDecr, "decr", "KEY [BY]", "subtract from a counter, and print it", 1, 2},
      {Verb::kCas, "cas", "KEY OLD NEW", "set a counter to NEW if it is OLD", 3, 3},
      {Verb::kMget, "mget", "KEY...", "print several values", 1, kAny},
      {Verb::kExists, "exists", "KEY...", "print how many of the keys exist", 1, kAny},
      {Verb::kTtl, "ttl", "KEY", "print how long a key has to live, or none", 1, 1},
      {Verb::kTouch, "touch", "KEY TIME",
       "let a key live for TIME from now on, or none: without an end", 2, 2},
      {Verb::kLoad, "load", "[FILE]", "store the records of a file (- or none: standard input)", 0,
       1},
      {Verb::kVerify, "verify", "FILE", "read the records of a file back and compare", 1, 1},
      {Verb::kDump, "dump", "[FILE]",
       "write all records in the format of load (- or none: standard output)", 0, 1},
      {Verb::kScan, "scan", "", "print keys in order, with their values", 0, 0},
      {Verb::kFlush, "flush", "", "wait until everything is on disk", 0, 0},
      {Verb::kBackup, "backup", "NAME", "create a backup on the server's host", 1, 1},
      {Verb::kStats, "stats", "", "counters of client and server; --watch: a line each second", 0,
       0},
      {Verb::kAdmin, "admin", "COMMAND [NAME]", admin_commands(), 1, 2},
      {Verb::kPing, "ping", "", "measure round trips of a request", 0, 0},
      {Verb::kBench, "bench", "", "measure PUTs and GETs, on keys of its own", 0, 0},
      {Verb::kDoctor, "doctor", "", "check RDMA and servers, and suggest fixes", 0, 0},
  };
  return list;
}

bool is_connection_flag(std::string_view word) {
  const GlobalFlag* const flag = find_flag(word);
  return flag != nullptr && flag->apply != set_output && flag->apply != set_hex;
}

Parsed parse_arguments(const std::vector<std::string>& arguments, const Environment& environment) {
  Globals defaults;
  // Not an option: other users of the machine see a program's options.
  if (const char* secret = environment("KVCLIENT_SECRET")) defaults.client.secret = secret;
  for (const GlobalFlag& flag : kGlobalFlags) {
    const std::string variable = variable_of(flag);
    const char* set = environment(variable.c_str());
    if (set == nullptr || (*set == '\0' && is_empty_for_none(flag))) continue;
    if (says_where(flag)) defaults.names_server = true;
    const std::string problem = flag.apply(defaults, flag.name, set);
    if (!problem.empty()) return usage_error(fmt::format("{}: {}", variable, problem));
  }
  return parse_words(defaults, arguments);
}

std::string name_of_store(const Globals& globals) {
  if (!globals.servers) return globals.client.server;
  const auto& servers = globals.servers->servers();
  return servers.size() == 1 ? servers.front().address : fmt::format("{} servers", servers.size());
}

Parsed parse_shell_line(const std::vector<std::string>& words, const Globals& shell) {
  Parsed parsed = parse_words(shell, words);
  if (parsed.kind == Parsed::Kind::kCommand && parsed.command.verb == Verb::kShell) {
    return usage_error("a line must begin with a verb; try help");
  }
  if (parsed.kind == Parsed::Kind::kCommand &&
      (parsed.command.globals.client.server != shell.client.server ||
       parsed.command.globals.servers != shell.servers)) {
    return usage_error(fmt::format("this shell is connected to {}; exit to use another server",
                                   name_of_store(shell)));
  }
  const ClientOptions& given = parsed.command.globals.client;
  if (parsed.kind == Parsed::Kind::kCommand &&
      (given.user != shell.client.user || given.secret != shell.client.secret)) {
    return usage_error("this shell is connected as another user; exit to use this one");
  }
  return parsed;
}

}  // namespace rkv::cli
