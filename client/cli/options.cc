#include "client/cli/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cxxopts.hpp>
#include <optional>
#include <utility>

#include "client/cli/secret_file.h"
#include "client/cli/server_list.h"
#include "client/cli/verb_options.h"
#include "common/auth/proof.h"
#include "common/parse.h"

namespace rkv::cli {

namespace {

constexpr const char* kVersionText = "kvclient 0.1.0\n";

struct GlobalFlag {
  const char* name;
  char letter;  // 0 = none
  bool takes_value;
  const char* variable;
  const char* fallback;
  const char* hint;
  const char* help;
};
constexpr GlobalFlag kGlobalFlags[] = {
    {"server", 0, true, "KVCLIENT_SERVER", "127.0.0.1:7471", "HOST:PORT,...",
     "address of the kvserver, or those of a replicated group"},
    {"servers", 0, true, "KVCLIENT_SERVERS", "", "LIST",
     "servers of one store, comma-separated: [NAME=]HOST:PORT[*WEIGHT]"},
    {"servers-file", 0, true, "KVCLIENT_SERVERS_FILE", "", "FILE",
     "the same from a file, one per line, # for comments"},
    {"user", 0, true, "KVCLIENT_USER", "", "NAME", "user, for a server that has users"},
    {"secret-file", 0, true, "KVCLIENT_SECRET_FILE", "", "FILE",
     "secret of the user, in a file for its owner alone; or as KVCLIENT_SECRET"},
    {"output", 0, true, "KVCLIENT_OUTPUT", "text", "text|json|tsv",
     "output format; tsv: records in the format of load"},
    {"hex", 0, false, "KVCLIENT_HEX", "false", "", "read and print keys and values in hexadecimal"},
    {"timeout", 0, true, "KVCLIENT_TIMEOUT", "5s", "TIME", "longest time for one operation"},
    {"device", 'd', true, "KVCLIENT_DEVICE", "", "NAME", "RDMA device; default: by the route"},
    {"ib-port", 'i', true, "KVCLIENT_IB_PORT", "0", "N", "port of the device; 0: any active one"},
    {"gid-index", 0, true, "KVCLIENT_GID_INDEX", "-1", "N", "GID to use; -1: let routing choose"},
    {"transport", 0, true, "KVCLIENT_TRANSPORT", "auto", "auto|verbs|shm|tcp",
     "how to reach the server; auto: an RDMA device, else shared memory, else TCP"},
    {"poll", 0, true, "KVCLIENT_POLL", "adaptive", "adaptive|busy|event",
     "how to wait for completions"},
    {"cache", 0, true, "KVCLIENT_CACHE", "64MiB", "SIZE", "cache of key locations; 0: off"},
};

constexpr char kNegative = '\x01';  // hide_negative_numbers()

const GlobalFlag* find_flag(std::string_view argument) {
  for (const GlobalFlag& flag : kGlobalFlags) {
    if (argument == std::string("--") + flag.name) return &flag;
    if (flag.letter != 0 && argument == std::string("-") + flag.letter) return &flag;
  }
  return nullptr;
}

// Returns true for the flags that name the store's servers.
bool says_where(const GlobalFlag& flag) {
  return std::string_view(flag.name).starts_with("server");
}

// Returns true for the flags whose empty variable means that there is none.
bool is_empty_for_none(const GlobalFlag& flag) {
  const std::string_view name = flag.name;
  return name.starts_with("servers");
}

// ---------------------------------------------------------------------------------- option sets

const VerbInfo* find_verb(std::string_view name) {
  const auto found = std::ranges::find(verbs(), name, &VerbInfo::name);
  return found == verbs().end() ? nullptr : &*found;
}

void add_globals(cxxopts::Options& options) {
  auto add = options.add_options("global");
  for (const GlobalFlag& flag : kGlobalFlags) {
    const std::string names =
        flag.letter != 0 ? fmt::format("{},{}", flag.letter, flag.name) : flag.name;
    const std::string help = fmt::format("{} [{}]", flag.help, flag.variable);
    if (flag.takes_value) {
      add(names, help, cxxopts::value<std::string>(), flag.hint);
    } else {
      add(names, help, cxxopts::value<bool>());
    }
  }
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

// Sets a global option; returns what is wrong with the text, or an empty text.
std::string set_global(Globals& globals, std::string_view name, const std::string& text) {
  const auto needs = [&](const char* what) {
    return fmt::format("--{} needs {}, not '{}'", name, what, shown(text));
  };
  ClientOptions& client = globals.client;
  if (name == "server") {
    client.server = text;
    globals.servers.reset();
    return server_problem(text);
  }
  if (name == "servers") return set_servers(text, globals.servers);
  if (name == "servers-file") return set_servers_file(text, globals.servers);
  if (name == "user") {
    client.user = text;
    return text.empty() || is_user_name(text) ? "" : needs("a user's name");
  }
  if (name == "secret-file") {
    globals.secret_file = text;
    return {};
  }
  if (name == "output") {
    globals.json = text == "json";
    globals.tsv = text == "tsv";
    return globals.json || globals.tsv || text == "text" ? "" : needs("text, json or tsv");
  }
  if (name == "hex") {
    globals.hex = text == "true" || text == "1";
    return globals.hex || text == "false" || text == "0" ? "" : needs("true or false");
  }
  if (name == "timeout") {
    std::uint64_t ms = 0;
    std::string problem = set_duration(name, text, ms);
    client.timeout = std::chrono::milliseconds(ms);
    return problem;
  }
  if (name == "device") {
    client.device = text;
    return {};
  }
  if (name == "ib-port") {
    const auto port = parse_number<unsigned>(text, 0, 255);
    client.port = static_cast<std::uint8_t>(port.value_or(0));
    return port ? "" : needs("a number from 0 to 255");
  }
  if (name == "gid-index") {
    const auto index = parse_number<int>(text, -1, 255);
    client.gid_index = index.value_or(-1);
    return index ? "" : needs("a number from -1 to 255");
  }
  if (name == "transport") {
    client.transport = text == "verbs" ? Transport::kVerbs
                       : text == "shm" ? Transport::kShm
                       : text == "tcp" ? Transport::kTcp
                                       : Transport::kAuto;
    const bool is_known = client.transport != Transport::kAuto || text == "auto";
    return is_known ? "" : needs("auto, verbs, shm or tcp");
  }
  if (name == "poll") {
    client.polling = text == "busy"    ? Polling::kBusy
                     : text == "event" ? Polling::kEvent
                                       : Polling::kAdaptive;
    return text == "busy" || text == "event" || text == "adaptive"
               ? ""
               : needs("adaptive, busy or event");
  }
  const auto size = parse_size(text);  // cache
  client.cache_bytes = size ? *size : 0;
  return size ? "" : needs("a size such as 64MiB");
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
    const GlobalFlag* flag = find_flag(argument);
    if (flag != nullptr && flag->takes_value) ++i;
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
    if (result->count(flag.name) == 0) continue;
    if (says_where(flag)) command.globals.names_server = true;
    const std::string text = flag.takes_value
                                 ? (*result)[flag.name].as<std::string>()
                                 : ((*result)[flag.name].as<bool>() ? "true" : "false");
    if (std::string problem = set_global(command.globals, flag.name, text); !problem.empty()) {
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
    const std::string& before = words[i - 1];
    const GlobalFlag* const flag = find_flag(before);
    const bool is_value = (flag != nullptr && flag->takes_value) || before == "-c" ||
                          before == "--count" || before == "--durability";
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
      {Verb::kAdmin, "admin", "COMMAND [NAME]",
       "revoke USER, groups, move-primary REPLICA or remove-replica REPLICA", 1, 2},
      {Verb::kPing, "ping", "", "measure round trips of a request", 0, 0},
      {Verb::kBench, "bench", "", "measure PUTs and GETs, on keys of its own", 0, 0},
      {Verb::kDoctor, "doctor", "", "check RDMA and servers, and suggest fixes", 0, 0},
  };
  return list;
}

Parsed parse_arguments(const std::vector<std::string>& arguments, const Environment& environment) {
  Globals defaults;
  // Not an option: other users of the machine see a program's options.
  if (const char* secret = environment("KVCLIENT_SECRET")) defaults.client.secret = secret;
  for (const GlobalFlag& flag : kGlobalFlags) {
    const char* set = environment(flag.variable);
    const std::string text = set != nullptr ? set : flag.fallback;
    if (text.empty() && is_empty_for_none(flag)) continue;
    if (set != nullptr && says_where(flag)) defaults.names_server = true;
    const std::string problem = set_global(defaults, flag.name, text);
    if (!problem.empty()) return usage_error(fmt::format("{}: {}", flag.variable, problem));
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
