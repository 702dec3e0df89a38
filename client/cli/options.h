// kvclient's command line: the verb first, then one set of options per verb.
//
// Global flags may stand before or after the verb. Each outranks its environment variable
// (KVCLIENT_SERVER for --server, and so on).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/records.h"
#include "rkv/client.h"
#include "rkv/options.h"
#include "rkv/shard_map.h"

namespace rkv::cli {

// Whether a client that asks for this transport may get the one named.
constexpr bool may_be_verbs(Transport asked) {
  return asked == Transport::kAuto || asked == Transport::kVerbs;
}
constexpr bool may_be_shm(Transport asked) {
  return asked == Transport::kAuto || asked == Transport::kShm;
}

enum class Verb : std::uint8_t {
  kShell,
  kGet,
  kPut,
  kDel,
  kIncr,
  kDecr,
  kCas,
  kMget,
  kExists,
  kTtl,
  kTouch,
  kLoad,
  kVerify,
  kDump,
  kScan,
  kFlush,
  kBackup,
  kStats,
  kAdmin,
  kPing,
  kBench,
  kDoctor,
};

struct VerbInfo {
  Verb verb;
  std::string_view name;
  std::string_view arguments;
  std::string_view help;
  std::size_t least_arguments;
  std::size_t most_arguments;
};
// All verbs but the shell, in the order of the help.
const std::vector<VerbInfo>& verbs();

struct Globals {
  ClientOptions client;
  std::string secret_file;          // path, until it is read: parsed commands have none
  std::optional<ShardMap> servers;  // several servers as one store; empty: only client.server
  bool names_server = false;        // a flag or the environment named the server
  bool json = false;
  bool tsv = false;  // get, mget, scan, dump: lines that load takes; other verbs print text
  bool hex = false;
};

// For people: the address of the server, or the number of servers.
std::string name_of_store(const Globals& globals);

struct Command {
  Globals globals;
  Verb verb = Verb::kShell;
  std::vector<std::string> arguments;       // keys, values or a file, as typed
  bool last_from_stdin = false;             // -x
  Format format = Format::kAuto;            // load, verify, dump
  bool verify = false;                      // load
  bool skip_bad = false;                    // load, verify
  bool sequential = false;                  // verify
  bool alive = false;                       // ping
  std::uint64_t count = 1;                  // ping, incr, decr; stats: lines, 0 = endless
  bool one_sided = false;                   // incr, decr, cas
  GetOptions get = {};                      // get
  PutOptions put = {};                      // put; the durability is for every verb that writes
  std::optional<std::uint64_t> if_version;  // del
  std::string keys_file;                    // dump
  struct Range {                            // scan, as typed
    std::string prefix;
    std::string start;
    std::string end;
    std::string token;  // decoded when prepared
  };
  Range range = {};
  std::uint32_t limit = 0;  // scan; 0 = no limit
  bool reverse = false;
  bool keys_only = false;
  bool watch = false;                        // stats
  std::chrono::milliseconds interval{1000};  // stats: between lines; bench: of each figure
  std::uint64_t keys = 10'000;               // bench
  std::size_t value_bytes = 100;             // bench
  bool progress = false;                     // load, dump, verify, scan, backup
};

// The result of parsing: a command, or a text to print before exiting with kDone or kUsage.
struct Parsed {
  enum class Kind : std::uint8_t { kCommand, kText, kUsageError };
  Kind kind = Kind::kCommand;
  Command command;
  std::string text;
};

// True for "--server", "-d" and the like: the flags that say where the store is, and how to reach
// it. All of them take a value.
bool is_connection_flag(std::string_view word);

using Environment = std::function<const char*(const char* name)>;

// Parses a command line. `arguments` are without the program's name.
Parsed parse_arguments(const std::vector<std::string>& arguments, const Environment& environment);
// Parses a line of the shell: its verb and options, with the shell's own settings as defaults.
Parsed parse_shell_line(const std::vector<std::string>& words, const Globals& shell);

}  // namespace rkv::cli
