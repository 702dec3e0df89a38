#include "server/program/options.h"

// Flags are parsed by hand instead of with std::regex: gcc 12 gives false warnings about the inside
// of std::regex in builds with the address sanitizer.
#define CXXOPTS_NO_REGEX true

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cxxopts.hpp>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "common/auth/proof.h"
#include "common/parse.h"
#include "common/thread.h"
#include "server/log/commit_log.h"
#include "server/memory/memory.h"
#include "server/program/config_file.h"
#include "server/program/environment.h"

namespace rkv::server {

namespace {

// Applies one value. Returns an empty string, or what is wrong with the value: "must be ...".
using Apply = std::string (*)(Options&, const std::string& value);

struct Setting {
  const char* flag;  // in the form of cxxopts: "d,device"
  const char* argument;
  const char* help;
  Apply apply;
  const char* when_bare = nullptr;  // the value of a flag without one; nullptr: it needs one
  std::string name() const {
    const std::string text = flag;
    return text.substr(text.find(',') + 1);  // npos + 1 = 0
  }
};

// Rejects an empty value: it is usually an unset variable, not a wish for no value.
template <std::string Options::* kMember>
std::string set_text(Options& options, const std::string& value) {
  if (value.empty()) return "must not be empty";
  options.*kMember = value;
  return {};
}

std::string set_data_dir(Options& options, const std::string& value) {
  if (value.empty()) return "must not be empty: leave it out for a server without a disk";
  options.data_dir = value;
  return {};
}

// "true" and "false" come from a configuration file.
template <bool Options::* kMember>
std::string set_yes_or_no(Options& options, const std::string& value) {
  options.*kMember = value == "yes" || value == "true";
  return options.*kMember || value == "no" || value == "false" ? "" : "must be yes or no";
}

template <class T>
std::string set_number(T& target, const std::string& value, T least, T most) {
  const auto parsed = parse_number<T>(value, least, most);
  if (!parsed) return fmt::format("must be a whole number from {} to {}", least, most);
  target = *parsed;
  return {};
}

std::string set_size(std::uint64_t& target, const std::string& value, std::uint64_t least,
                     std::uint64_t most) {
  const auto parsed = parse_size(value);
  if (!parsed || *parsed < least || *parsed > most) {
    return fmt::format("must be a size from {}MiB to {}GiB, such as 512MiB or 2GiB", least >> 20,
                       most >> 30);
  }
  target = *parsed;
  return {};
}

std::string set_listen(Options& options, const std::string& value) {
  const std::size_t colon = value.rfind(':');
  if (colon == std::string::npos || colon == 0 ||
      !parse_number<std::uint16_t>(value.substr(colon + 1), 0, 65535)) {
    return "must be HOST:PORT, such as 0.0.0.0:7471 or [::]:7471";
  }
  options.listen = value;
  return {};
}

// A port alone listens on 127.0.0.1 only: opening it to other hosts must be explicit.
std::string set_metrics(Options& options, const std::string& value) {
  const std::size_t colon = value.rfind(':');
  const bool port_alone = colon == std::string::npos || colon == 0;
  const std::string port = value.substr(colon + 1);  // npos + 1 = 0
  if (!parse_number<std::uint16_t>(port, 0, 65535)) {
    return "must be PORT or HOST:PORT, such as 9471 (for this host alone) or 0.0.0.0:9471";
  }
  options.metrics = port_alone ? "127.0.0.1:" + port : value;
  return {};
}

// Splits a comma-separated list. Empty: one of its items is empty.
std::vector<std::string> split_list(const std::string& value) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find(',', begin), value.size());
    items.push_back(value.substr(begin, end - begin));
    begin = end + 1;
    if (items.back().empty()) return {};
  }
  return items;
}

std::string set_etcd(Options& options, const std::string& value) {
  options.etcd = split_list(value);
  const bool valid = std::ranges::all_of(options.etcd, [](const std::string& server) {
    const std::size_t colon = server.rfind(':');
    return colon != std::string::npos && colon != 0 &&
           parse_number<std::uint16_t>(server.substr(colon + 1), 1, 65535);
  });
  if (valid && !options.etcd.empty()) return {};
  return "must be comma-separated addresses of etcd, such as 192.0.2.1:2379,192.0.2.2:2379";
}

template <std::string Options::* kMember>
std::string set_name(Options& options, const std::string& value) {
  if (!is_user_name(value)) return "must be 1 to 64 letters, digits, '.', '_' or '-'";
  options.*kMember = value;
  return {};
}

// The address in the form in which transports show the one that was called.
std::optional<std::string> numeric_address(const std::string& text) {
  const std::size_t colon = std::min(text.rfind(':'), text.size());
  const auto port = parse_number<std::uint16_t>(text.substr(std::min(colon + 1, text.size())), 1);
  std::string host_text = text.substr(0, colon);
  const bool is_v6 = host_text.starts_with('[') && host_text.ends_with(']');
  if (is_v6) host_text = host_text.substr(1, host_text.size() - 2);
  const int family = is_v6 ? AF_INET6 : AF_INET;
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (!port || inet_pton(family, host_text.c_str(), bytes.data()) != 1) return std::nullopt;
  inet_ntop(family, bytes.data(), host.data(), host.size());
  return is_v6 ? fmt::format("[{}]:{}", host.data(), *port)
               : fmt::format("{}:{}", host.data(), *port);
}

std::string set_advertise(Options& options, const std::string& value) {
  constexpr const char* kWrong =
      "must be comma-separated addresses in numbers, such as 192.0.2.7:7471,[2001:db8::7]:7471";
  for (const std::string& item : split_list(value)) {
    auto address = numeric_address(item);
    if (!address) return kWrong;
    options.advertise.push_back(std::move(*address));
  }
  return options.advertise.empty() ? kWrong : "";
}

std::string set_metrics_names(Options& options, const std::string& value) {
  constexpr const char* kWrong =
      "must be comma-separated names of this host, such as db1,db1.example.org";
  std::vector<std::string> names = split_list(value);
  const bool valid = std::ranges::all_of(names, [](const std::string& name) {
    return name.find_first_of(" :/[]") == std::string::npos;
  });
  if (!valid || names.empty()) return kWrong;
  options.metrics_names = std::move(names);
  return {};
}

std::string set_cpus(Options& options, const std::string& value) {
  auto processors = parse_processors(value);
  if (!processors) return processors.error();
  options.cpus = std::move(*processors);
  return {};
}

std::string set_log_format(Options& options, const std::string& value) {
  if (value != "text" && value != "json") return "must be text or json";
  options.log_format = value == "json" ? LogFormat::kJson : LogFormat::kText;
  return {};
}

std::string set_check_memory(Options& options, const std::string& value) {
  if (value != "on" && value != "off") return "must be on or off";
  options.check_memory = value == "on";
  return {};
}

std::string set_poll(Options& options, const std::string& value) {
  for (const auto mode :
       {rdma::PollMode::kAdaptive, rdma::PollMode::kBusy, rdma::PollMode::kEvent}) {
    if (value != to_string(mode)) continue;
    options.poll = mode;
    return {};
  }
  return "must be adaptive, busy or event";
}

std::string set_log_level(Options& options, const std::string& value) {
  const auto level = log_level_of(value);
  if (!level) return "must be debug, info, warn or error";
  options.log_level = *level;
  return {};
}

std::string set_sync_interval(Options& options, const std::string& value) {
  const auto parsed = parse_duration_ms(value);
  if (!parsed || *parsed < 1 || *parsed > 3'600'000) {
    return "must be a duration from 1ms to 60m, such as 500ms or 5s";
  }
  options.sync_interval_ms = static_cast<std::uint32_t>(*parsed);
  return {};
}

std::string set_durability(Options& options, const std::string& value) {
  const auto level = parse_durability(value);
  if (!level) return "must be memory, wal or sync";
  options.durability = *level;
  return {};
}

std::string set_transport(Options& options, const std::string& value) {
  const auto kind = rdma::parse_transport_kind(value);
  if (!kind) return "must be auto, verbs, shm or tcp";
  options.transport = *kind;
  return {};
}

std::string set_gid_index(Options& options, const std::string& value) {
  return set_number<int>(options.gid_index, value, 0, 255);
}

std::string set_ib_port(Options& options, const std::string& value) {
  return set_number<std::uint8_t>(options.ib_port, value, 1, 255);
}

constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 40;  // 1 TiB: half of what slots address
constexpr std::uint64_t kMostQueue = std::uint64_t{4} << 30;

std::string set_queue(Options& options, const std::string& value) {
  return set_size(options.queue_bytes, value, CommitLog::kMinServerCapacityBytes, kMostQueue);
}

std::string set_load_rate(Options& options, const std::string& value) {
  return set_size(options.load_rate_bytes, value, std::uint64_t{1} << 20, kMostMemory);
}

std::string set_max_clients(Options& options, const std::string& value) {
  return set_number<std::uint32_t>(options.max_clients, value, 1, 4096);
}

std::string set_max_offences(Options& options, const std::string& value) {
  return set_number<std::uint32_t>(options.max_offences, value, 0, 1'000'000);
}

std::string set_memory(Options& options, const std::string& value) {
  return set_size(options.memory_bytes, value, kMinMemoryBytes, kMostMemory);
}

std::string set_threads(Options& options, const std::string& value) {
  return set_number<std::uint32_t>(options.threads, value, 1, 256);
}

std::string set_min_copies(Options& options, const std::string& value) {
  return set_number<std::uint32_t>(options.min_copies, value, 1, 16);
}

std::string set_replicate_over(Options& options, const std::string& value) {
  if (value != "auto" && value != "tcp") return "must be auto or tcp";
  options.lanes = value == "auto";
  return {};
}

std::string set_counter_cells(Options& options, const std::string& value) {
  return set_number<std::uint32_t>(options.counter_cells, value, 0, 1U << 26);
}

// Where the server listens, what it keeps, and its group.
std::vector<Setting> settings_of_data() {
  return {
      {"listen", "HOST:PORT", "address and port to listen on (default 0.0.0.0:7471)", set_listen},
      {"data-dir", "DIR", "data directory; unset: all data is in memory only", set_data_dir},
      {"require-data", "yes|no",
       "yes: start only if --data-dir already holds data of a server (default no)",
       set_yes_or_no<&Options::require_data>},
      {"evict", "yes|no",
       "without --data-dir: when memory is full, drop the records used least recently, as a cache "
       "does, instead of refusing writes (default no)",
       set_yes_or_no<&Options::evict>, "yes"},
      {"scrub", "yes|no",
       "overwrite with zeros what deleted and replaced records leave in memory, which clients can "
       "READ (default no)",
       set_yes_or_no<&Options::scrub>, "yes"},
      {"backup-dir", "DIR",
       "directory for backups that clients request; unset: requests are refused",
       set_text<&Options::backup_dir>},
      {"etcd", "LIST",
       "HOST:PORT of etcd's servers, comma-separated: the server is a replica of --group",
       set_etcd},
      {"group", "NAME", "name of the replicated group in etcd; with --etcd",
       set_name<&Options::group>},
      {"name", "NAME", "name of this replica in its group; with --etcd", set_name<&Options::name>},
      {"found-group", "yes|no",
       "yes: found the group if etcd has none of its name and --data-dir belongs to none (default "
       "no: wait for it)",
       set_yes_or_no<&Options::found_group>, "yes"},
      {"alone-without-etcd", "yes|no",
       "yes: the only replica in sync serves on although etcd does not answer (default no: for 15 "
       "s)",
       set_yes_or_no<&Options::alone_without_etcd>, "yes"},
      {"etcd-ca", "FILE", "certificates that etcd's servers are checked by: etcd is called by TLS",
       set_text<&Options::etcd_ca>},
      {"etcd-cert", "FILE", "certificate of this client of etcd; with --etcd-key",
       set_text<&Options::etcd_cert>},
      {"etcd-key", "FILE", "its key, for this user alone", set_text<&Options::etcd_key>},
      {"etcd-user", "NAME", "user of etcd; with --etcd-password-file",
       set_text<&Options::etcd_user>},
      {"etcd-password-file", "FILE", "the password, for this user alone",
       set_text<&Options::etcd_password_file>},
      {"min-copies", "N",
       "refuse writes while fewer replicas of the group are in sync (default: 1)", set_min_copies},
      {"replicate-over", "KIND",
       "auto or tcp: how the log goes to other replicas (default auto: RDMA or shared memory, if "
       "both ends have it)",
       set_replicate_over},
      {"group-secret", "FILE",
       "64 hexadecimal digits that all replicas of the group have; needed unless --no-auth is "
       "given",
       set_text<&Options::group_secret>},
  };
}

std::vector<Setting> settings_of_service() {
  return {
      {"memory", "SIZE", "memory for index and records, registered with the device (default 1GiB)",
       set_memory},
      {"threads", "N", "worker threads (default: cores - 1, at least 1)", set_threads},
      {"cpus", "LIST", "processors for workers, e.g. 2-5,8; one each, in turn (default: any)",
       set_cpus},
      {"poll", "MODE", "adaptive, busy or event: how workers wait (default adaptive)", set_poll},
      {"transport", "KIND",
       "auto, verbs, shm or tcp: how clients reach the server (default auto: a device, else tcp; "
       "and "
       "shm)",
       set_transport},
      {"shm-group", "GROUP",
       "group whose members may connect over shared memory, besides the server's user and root",
       set_text<&Options::shm_group>},
      {"d,device", "NAME", "RDMA device (default: the one that routes to the listen address)",
       set_text<&Options::device>},
      {"i,ib-port", "N", "port of the device (default: any active one)", set_ib_port},
      {"x,gid-index", "N", "GID of the port (default: chosen by the connection manager)",
       set_gid_index},
      {"users", "FILE",
       "users that may connect, each with a role; SIGHUP reads it again; unset: over shared memory "
       "this user, root and --shm-group may do everything, and no other host may connect",
       set_text<&Options::users>},
      {"advertise", "LIST",
       "with --users: addresses, in numbers, at which clients reach this server by NAT or a proxy",
       set_advertise},
      {"no-auth", "yes|no",
       "without --users: every host that reaches the server may do everything (default no)",
       set_yes_or_no<&Options::no_auth>, "yes"},
      {"max-clients", "N",
       "maximum number of connections; over RDMA each pins 22 KiB for messages (default 64)",
       set_max_clients},
      {"max-offences", "N",
       "offences per second of one host's clients before its new clients wait (default 4; 0: no "
       "limit)",
       set_max_offences},
      {"durability", "LEVEL",
       "memory, wal or sync: durability of writes that do not specify one (default memory)",
       set_durability},
      {"counter-cells", "N",
       "one-sided counters that can be opened until the next start; 8 bytes each (default 65536)",
       set_counter_cells},
      {"load-rate", "SIZE",
       "bytes per second to load from the disk after a start, while clients are served; at least "
       "1MiB (default: no limit)",
       set_load_rate},
      {"sync-interval", "TIME", "longest time that a write stays unsynced (default 1s)",
       set_sync_interval},
      {"queue", "SIZE", "size of the queue of writes to the disk (default 64MiB)", set_queue},
      {"check-memory", "on|off",
       "check index, records and counts in memory before a stop ends (default off)",
       set_check_memory},
      {"metrics", "[HOST:]PORT",
       "serve /metrics, /status, /healthz, /readyz and a status page by HTTP; without HOST for "
       "this host only (default: no)",
       set_metrics},
      {"metrics-names", "LIST",
       "comma-separated names of this host that requests to --metrics may use besides its "
       "addresses",
       set_metrics_names},
      {"log-level", "LEVEL",
       "debug, info, warn or error (default info); SIGHUP reloads it from the file", set_log_level},
      {"log-format", "FORMAT", "text, or json: one object per line (default text)", set_log_format},
  };
}

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = [] {
    std::vector<Setting> list = settings_of_data();
    const std::vector<Setting> others = settings_of_service();
    list.insert(list.end(), others.begin(), others.end());
    return list;
  }();
  return all;
}

constexpr const char* kHelpTail =
    R"(
Without --users, or --no-auth, only clients on this host may connect.

Every option can also be given in the environment (--data-dir as KVSERVER_DATA_DIR) or in a TOML
file (data-dir = "/var/lib/kvserver"). The command line wins over the environment, the environment
over the file.

An empty value is an error: leave the option out instead.

kvserver user add makes a user and its secret: see kvserver user --help.

Exit codes: 0 stopped cleanly; 2 usage; 3 environment (no RDMA device, port taken, a limit of the
machine); 4 data directory (not writable, damaged); 5 anything else; 6 data directory, temporarily
(in use, disk full or failing, no free file descriptor).
)";

std::shared_ptr<cxxopts::Value> value_of(const Setting& setting) {
  auto value = cxxopts::value<std::string>();
  return setting.when_bare == nullptr ? value : value->implicit_value(setting.when_bare);
}

cxxopts::Options make_flags() {
  cxxopts::Options flags("kvserver", "Key-value server that clients read by one-sided RDMA.");
  flags.set_width(100);
  auto add = flags.add_options();
  for (const Setting& setting : settings())
    add(setting.flag, setting.help, value_of(setting), setting.argument);
  add("config", "TOML file with any of the above", cxxopts::value<std::string>(), "FILE");
  add("verify", "read all of --data-dir, change nothing, print what is found, and exit");
  add("restore", "create --data-dir, which must be empty or missing, from a backup, and exit",
      cxxopts::value<std::string>(), "BACKUP");
  add("force-primary",
      "make this replica its group's next primary, give up what others have, and exit");
  add("forget-revoked",
      "take a user's revoked secrets off the group's list ('*': all users'), and exit",
      cxxopts::value<std::string>(), "USER");
  add("accept-damaged-log", "start although synced writes are lost with a damaged write-ahead log");
  add("h,help", "print this help and exit");
  add("version", "print the version and exit");
  return flags;
}

ParsedOptions usage_error(std::string sentence) {
  ParsedOptions parsed;
  parsed.done = true;
  parsed.exit_code = kExitUsage;
  parsed.error = std::move(sentence);
  return parsed;
}

ParsedOptions print(std::string text) {
  ParsedOptions parsed;
  parsed.done = true;
  parsed.out = std::move(text);
  return parsed;
}

// A value and its origin, which error sentences name.
struct Given {
  std::string value;
  std::string origin;  // "--memory", "KVSERVER_MEMORY", "memory in /etc/kvserver.toml"
};

std::optional<Given> from_flags(const cxxopts::ParseResult& flags, const std::string& name) {
  if (flags.count(name) == 0) return std::nullopt;
  return Given{flags[name].as<std::string>(), "--" + name};
}

std::optional<Given> from_environment(const Environment& environment, const std::string& name) {
  const std::string variable = environment_name(name);
  const char* const value = environment(variable.c_str());
  if (value == nullptr) return std::nullopt;
  return Given{value, variable};
}

// Reads the values of the file and rejects unknown names.
std::string read_file(const Given& config, std::map<std::string, Given>* values) {
  const auto& [path, origin] = config;
  ConfigFile file = read_config_file(path);
  if (!file.error.empty()) {
    return file.could_be_read ? file.error : fmt::format("{}: check {}", file.error, origin);
  }
  for (auto& [key, value] : file.values) {
    const bool known = std::ranges::any_of(
        settings(), [&](const Setting& setting) { return setting.name() == key; });
    if (!known) {
      return fmt::format("{}: unknown key \"{}\": kvserver --help lists the options", shown(path),
                         shown(key));
    }
    values->emplace(key, Given{std::move(value), fmt::format("{}: {}", shown(path), key)});
  }
  return {};
}

// A name such as 127.example.org is not an address.
bool is_of_this_host(const std::string& listen) {
  const std::string host = listen.substr(0, listen.rfind(':'));
  in_addr address{};
  const bool is_address = inet_pton(AF_INET, host.c_str(), &address) == 1;
  return (is_address && ntohl(address.s_addr) >> 24U == IN_LOOPBACKNET) || host == "localhost" ||
         host == "[::1]";
}

// Names an option that asks for clients of other hosts although none may be admitted. A run that
// serves no clients may have such options.
std::string access_problem(const Options& options) {
  if (options.no_auth && !options.users.empty()) {
    return "no-auth cannot be combined with users: leave one of them out";
  }
  if (options.admits_other_hosts() || options.transport == rdma::TransportKind::kShm) return {};
  if (options.verify || !options.restore.empty()) return {};
  std::string asked;
  if (options.transport != rdma::TransportKind::kAuto) {
    asked = fmt::format("transport {}", rdma::to_string(options.transport));
  }
  if (!options.device.empty()) asked = "device " + options.device;
  if (options.listen != Options{}.listen && !is_of_this_host(options.listen)) {
    asked = "listen " + options.listen;
  }
  if (asked.empty()) return {};
  return fmt::format(
      "{} would let every host that reaches the server read and write: give --users FILE "
      "(kvserver user add makes one), or --no-auth to allow it",
      shown(asked));
}

// Names an option that belongs to a transport that is not used.
std::string transport_problem(const Options& options) {
  using rdma::TransportKind;
  const TransportKind kind = options.transport;
  const bool may_be_verbs = kind == TransportKind::kAuto || kind == TransportKind::kVerbs;
  const bool may_be_shm = kind == TransportKind::kAuto || kind == TransportKind::kShm;
  std::string given;
  if (!may_be_verbs && !options.device.empty()) given = "device";
  if (!may_be_shm && !options.shm_group.empty()) given = "shm-group";
  if (given.empty()) return {};
  return fmt::format("{} cannot be combined with transport {}: leave one of them out", given,
                     rdma::to_string(kind));
}

bool is_wildcard(const std::string& listen) {
  const std::string host = listen.substr(0, listen.rfind(':'));
  return host == "0.0.0.0" || host == "[::]" || host == "*";
}

// Checks the options that a replica of a group must have. Its port for replicas is the next one.
std::string group_problem(const Options& options) {
  if (!options.is_in_group()) {
    if (options.force_primary) return "force-primary needs etcd: give --etcd as well";
    if (!options.forget_revoked.empty()) return "forget-revoked needs etcd: give --etcd as well";
    if (options.min_copies != 1) return "min-copies needs etcd: give --etcd as well";
    if (!options.lanes) return "replicate-over needs etcd: give --etcd as well";
    if (options.found_group) return "found-group needs etcd: give --etcd as well";
    if (options.alone_without_etcd) return "alone-without-etcd needs etcd: give --etcd as well";
    if (!options.etcd_ca.empty() || !options.etcd_user.empty())
      return "etcd-ca and etcd-user need etcd: give --etcd as well";
    if (options.group.empty() && options.name.empty() && options.group_secret.empty()) return {};
    return "group, name and group-secret need etcd: give --etcd as well";
  }
  if (options.etcd_cert.empty() != options.etcd_key.empty())
    return "etcd-cert and etcd-key need each other: give both or none";
  if (!options.etcd_cert.empty() && options.etcd_ca.empty())
    return "etcd-cert needs etcd-ca: give --etcd-ca as well";
  if (options.etcd_user.empty() != options.etcd_password_file.empty())
    return "etcd-user and etcd-password-file need each other: give both or none";
  if (options.group.empty() || options.name.empty()) {
    return "etcd needs group and name: give --group and --name as well";
  }
  if (options.data_dir.empty()) return "etcd needs data-dir: give --data-dir as well";
  if (is_wildcard(options.listen)) {
    return fmt::format(
        "listen {} is not an address that other replicas can connect to: give --listen an address "
        "of "
        "this host",
        options.listen);
  }
  const std::string port = options.listen.substr(options.listen.rfind(':') + 1);
  if (!parse_number<std::uint16_t>(port, 1, 65534)) {
    return "listen needs a port from 1 to 65534 in a group: replicas use the next port";
  }
  if (options.group_secret.empty() && !options.no_auth) {
    return fmt::format(
        "etcd without group-secret would let every {} that reaches port {} be a replica: give "
        "--group-secret FILE, or --no-auth to allow it",
        is_of_this_host(options.listen) ? "user of this host" : "host",
        *parse_number<std::uint16_t>(port, 1, 65534) + 1);
  }
  return {};
}

std::string combination_problem(const cxxopts::ParseResult& flags, const Options& options) {
  const bool restores = flags.count("restore") != 0;
  if (options.verify && restores) {
    return "--verify cannot be combined with --restore, which verifies too";
  }
  if (options.force_primary && (options.verify || restores)) {
    return fmt::format("--force-primary cannot be combined with --{}: leave it out",
                       restores ? "restore" : "verify");
  }
  if (flags.count("forget-revoked") != 0) {
    if (options.forget_revoked != "*" && !is_user_name(options.forget_revoked))
      return "--forget-revoked needs the name of a user, or '*' for all";
    if (options.verify || restores || options.force_primary)
      return "--forget-revoked cannot be combined with --verify, --restore or --force-primary";
  }
  if (restores && options.restore.empty()) return "--restore needs the directory of a backup";
  if ((options.verify || restores) && options.data_dir.empty()) {
    return fmt::format("--{} needs --data-dir", restores ? "restore" : "verify");
  }
  if (flags.count("accept-damaged-log") != 0 && options.data_dir.empty()) {
    return "--accept-damaged-log needs --data-dir";
  }
  if (!options.backup_dir.empty() && options.data_dir.empty()) {
    return "backup-dir needs data-dir: give --data-dir as well";
  }
  if (options.evict && !options.data_dir.empty()) {
    return "evict cannot be combined with data-dir, with which records beyond memory stay on disk: "
           "leave one of them out";
  }
  if (!options.advertise.empty() && options.users.empty()) {
    return "advertise needs users: give --users as well";
  }
  if (!options.metrics_names.empty() && options.metrics.empty()) {
    return "metrics-names needs metrics: give --metrics as well";
  }
  if (options.load_rate_bytes != 0 && options.data_dir.empty()) {
    return "load-rate needs data-dir: give --data-dir as well";
  }
  if (options.require_data && options.data_dir.empty()) {
    return "require-data needs data-dir: give --data-dir as well";
  }
  // Checks only this command line: environment and file may serve other runs too.
  for (const char* flag : {"accept-damaged-log", "backup-dir", "load-rate", "require-data"}) {
    if ((options.verify || restores) && flags.count(flag) != 0) {
      return fmt::format("--{} cannot be combined with --{}: leave it out", flag,
                         restores ? "restore" : "verify");
    }
  }
  return {};
}

ParsedOptions resolve(const cxxopts::ParseResult& flags, const Environment& environment) {
  std::map<std::string, Given> file;
  auto config = from_flags(flags, "config");
  if (!config) config = from_environment(environment, "config");
  if (config) {
    if (std::string problem = read_file(*config, &file); !problem.empty()) {
      return usage_error(std::move(problem));
    }
  }
  ParsedOptions parsed;
  parsed.options.threads = std::max(1U, std::thread::hardware_concurrency()) - 1;
  parsed.options.threads = std::clamp(parsed.options.threads, 1U, 256U);
  for (const Setting& setting : settings()) {
    const std::string name = setting.name();
    auto given = from_flags(flags, name);
    if (!given) given = from_environment(environment, name);
    if (const auto at = file.find(name); !given && at != file.end()) given = at->second;
    if (!given) continue;
    const std::string problem = setting.apply(parsed.options, given->value);
    if (!problem.empty()) {
      return usage_error(
          fmt::format("{} {}, not \"{}\"", given->origin, problem, shown(given->value)));
    }
  }
  parsed.options.verify = flags.count("verify") != 0;
  parsed.options.force_primary = flags.count("force-primary") != 0;
  parsed.options.accept_damaged_log = flags.count("accept-damaged-log") != 0;
  if (const auto backup = from_flags(flags, "restore")) parsed.options.restore = backup->value;
  if (const auto user = from_flags(flags, "forget-revoked"))
    parsed.options.forget_revoked = user->value;
  if (std::string problem = combination_problem(flags, parsed.options); !problem.empty()) {
    return usage_error(std::move(problem));
  }
  if (std::string problem = transport_problem(parsed.options); !problem.empty()) {
    return usage_error(std::move(problem));
  }
  if (parsed.options.durability != Durability::kMemory && parsed.options.data_dir.empty()) {
    return usage_error(fmt::format("durability {} needs a disk: give --data-dir as well",
                                   to_string(parsed.options.durability)));
  }
  if (std::string problem = access_problem(parsed.options); !problem.empty()) {
    return usage_error(std::move(problem));
  }
  const bool serves = !parsed.options.verify && parsed.options.restore.empty();
  if (std::string problem = group_problem(parsed.options); serves && !problem.empty()) {
    return usage_error(std::move(problem));
  }
  if (parsed.options.is_in_group()) parsed.options.counter_cells = 0;  // a primary may change
  if (!parsed.options.admits_other_hosts()) parsed.options.transport = rdma::TransportKind::kShm;
  return parsed;
}

}  // namespace

std::vector<std::string> option_names() {
  std::vector<std::string> names = {"config"};
  for (const Setting& setting : settings())
    names.push_back(setting.name());
  return names;
}

const char* to_string(rdma::PollMode mode) {
  switch (mode) {
    case rdma::PollMode::kAdaptive:
      return "adaptive";
    case rdma::PollMode::kBusy:
      return "busy";
    case rdma::PollMode::kEvent:
      return "event";
  }
  return "unknown";
}

const char* to_string(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warn";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      return "off";
  }
  return "unknown";
}

ParsedOptions parse_options(const std::vector<std::string>& arguments,
                            const Environment& environment) {
  std::vector<const char*> argv = {"kvserver"};
  for (const std::string& argument : arguments)
    argv.push_back(argument.c_str());
  try {
    cxxopts::Options definition = make_flags();
    const cxxopts::ParseResult flags = definition.parse(static_cast<int>(argv.size()), argv.data());
    if (flags.count("help") != 0) return print(definition.help() + kHelpTail);
    if (flags.count("version") != 0) return print(fmt::format("kvserver {}\n", kServerVersion));
    if (!flags.unmatched().empty()) {
      return usage_error(
          fmt::format("unexpected argument \"{}\": options start with --, see "
                      "kvserver --help",
                      shown(flags.unmatched().front())));
    }
    return resolve(flags, environment);
  } catch (const std::exception& error) {
    return usage_error(fmt::format("{}: see kvserver --help", shown(error.what())));
  }
}

}  // namespace rkv::server
