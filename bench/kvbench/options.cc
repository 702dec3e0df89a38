#include "bench/kvbench/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "client/cli/options.h"
#include "client/engine/option_table.h"
#include "common/parse.h"
#include "common/random.h"
#include "common/thread.h"

namespace rkv::kvbench {

namespace {

constexpr const char* kVersionText = "kvbench 0.1.0\n";

constexpr const char* kHelp =
    R"(usage: kvbench [-load | -t] -P FILE [OPTIONS]

Runs YCSB's core workloads against a kvserver: first -load, then -t.

  -load               insert the records
  -t                  run the operations (default)
  -P FILE             read properties from a file; may be repeated, later values win
  -p NAME=VALUE       set one property; overrides files
  -threads N          threads, each with its own connection (threadcount; 1)
  -target N           operations per second of all threads together (target; 0: no limit)
  -s                  status on standard error, every status.interval seconds (10)
  -l LABEL            prefix of the status lines (label)
  -db NAME            ignored, for YCSB's command lines

  --output FORM       text (YCSB's lines), json or csv (text)
  --in-flight N       operations of each thread at once, pipelined (1)
  --cpus LIST         processors for threads, e.g. 2-5,8; one each, in turn (any)
  --update HOW        an update of one field: atomic (a PUT if the version is as read, else again)
                      or plain (atomic; with several operations in flight plain)
  --durability HOW    of writes: default, memory, wal or sync (default: as the server was started)
  --seed N            seed of all random numbers; a run of one thread repeats (0: random seed)

  --server HOST:PORT  the kvserver (127.0.0.1:7471)
  --servers LIST      servers of one store, comma-separated: [NAME=]HOST:PORT[*WEIGHT]
  --servers-file FILE  the same from a file, one per line, # for comments
  --user NAME         user, for a server that has users
  --secret-file FILE  secret of the user, in a file for its owner alone; or as KVCLIENT_SECRET
  --transport HOW     auto, verbs, shm or tcp (auto)
  --poll HOW          adaptive, busy or event (adaptive)
  --cache SIZE        each thread's cache of key locations; 0: off (64MiB)
  --timeout TIME      longest time for one operation (5s)
  -d, --device NAME   RDMA device; -i, --ib-port N; --gid-index N
                      (also by environment variables, as of kvclient: KVCLIENT_SERVER, ...)
  -h, --help          this text
  --version           the version

measurement.interval=both adds rows "Intended-": latency from when an operation was due.
hdrhistogram.fileoutput=true writes a histogram log for each row, named
hdrhistogram.output.path, row and ".hdr", in nanoseconds.

Exit status: 0 done, 1 done but some operations failed, 2 wrong usage, 3 server not reached,
4 ended early: the results are partial and marked so.
)";

Parsed usage_error(std::string sentence) {
  Parsed parsed;
  parsed.kind = Parsed::Kind::kUsageError;
  parsed.text = std::move(sentence);
  return parsed;
}

Parsed printed(const char* text) {
  Parsed parsed;
  parsed.kind = Parsed::Kind::kText;
  parsed.text = text;
  return parsed;
}

// The flags as given, before properties are read.
struct Words {
  Properties files;
  struct Set {  // by -p, or by a flag that stands for a property
    std::string name;
    std::string value;
    std::string flag = "-p";
  };
  std::vector<Set> set;
  std::vector<std::string> connection;  // for kvclient's parser
  std::string output = "text";
  std::string update;  // "" = not given
  std::string in_flight = "1";
  std::string cpus;  // "" = not given
  std::string durability = "default";
  std::string seed = "0";
  const char* text = nullptr;  // to be printed instead of a run
  std::string problem;
};

// Flags that stand for a property.
constexpr std::pair<std::string_view, const char*> kPropertyFlags[] = {
    {"-threads", "threadcount"}, {"-target", "target"}, {"-l", "label"}, {"-db", "db"}};
// Flags whose values are checked later.
constexpr std::pair<std::string_view, std::string Words::*> kOwnFlags[] = {
    {"--output", &Words::output}, {"--in-flight", &Words::in_flight},   {"--cpus", &Words::cpus},
    {"--update", &Words::update}, {"--durability", &Words::durability}, {"--seed", &Words::seed}};

bool take_switch(Words& words, std::string_view flag) {
  if (flag == "-load") {
    words.set.push_back({"dotransactions", "false"});
  } else if (flag == "-t") {
    words.set.push_back({"dotransactions", "true"});
  } else if (flag == "-s") {
    words.set.push_back({"status", "true"});
  } else if (flag == "-h" || flag == "-help" || flag == "--help") {
    words.text = kHelp;
  } else if (flag == "--version") {
    words.text = kVersionText;
  } else {
    return false;
  }
  return true;
}

// Takes a flag with its value; false: unknown flag.
bool take_pair(Words& words, const std::string& flag, const std::string& value) {
  const auto is_it = [&](const auto& one) { return one.first == flag; };
  const auto* property = std::ranges::find_if(kPropertyFlags, is_it);
  const auto* own = std::ranges::find_if(kOwnFlags, is_it);
  if (property != std::end(kPropertyFlags)) {
    words.set.push_back({property->second, value, flag});
  } else if (flag == "-P" && value.empty()) {
    words.problem = "-P needs a file, not ''";
  } else if (flag == "-P") {
    if (auto read = words.files.read_file(value); !read) words.problem = read.error();
  } else if (flag == "-p") {
    const std::size_t equals = value.find('=');
    if (equals == std::string::npos || equals == 0) {
      words.problem = fmt::format("-p needs NAME=VALUE, not '{}'", value);
    } else {
      words.set.push_back({value.substr(0, equals), value.substr(equals + 1)});
    }
  } else if (own != std::end(kOwnFlags)) {
    words.*own->second = value;
  } else if (cli::is_connection_flag(flag)) {
    words.connection.push_back(flag);
    words.connection.push_back(value);
  } else {
    return false;
  }
  return true;
}

// A hint for a command word of YCSB's script; empty for other words.
const char* word_of_ycsb(std::string_view word) {
  if (word == "load") return " (\"ycsb load basic\" is kvbench -load)";
  if (word == "run") return " (\"ycsb run basic\" is kvbench -t)";
  return "";
}

Words split(const std::vector<std::string>& arguments) {
  Words words;
  for (std::size_t i = 0; i < arguments.size() && words.problem.empty(); ++i) {
    std::string flag = arguments[i];
    if (take_switch(words, flag)) continue;
    std::string value;
    const std::size_t equals = flag.find('=');
    if (flag.starts_with("--") && equals != std::string::npos) {
      value = flag.substr(equals + 1);
      flag.resize(equals);
    } else if (!flag.starts_with('-')) {
      words.problem = fmt::format("'{}' does not belong to an option; see kvbench --help{}", flag,
                                  word_of_ycsb(flag));
      break;
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      Words probe;
      words.problem = take_pair(probe, flag, "x=")
                          ? fmt::format("{} needs a value; see kvbench --help", flag)
                          : fmt::format("unknown option {}; see kvbench --help", flag);
      break;
    }
    if (!take_pair(words, flag, value)) {
      words.problem = fmt::format("unknown option {}; see kvbench --help", flag);
    }
  }
  return words;
}

// ------------------------------------------------------------------------------------ values

OrSentence<void> set_form(Options& options, const std::string& output) {
  if (output == "json") {
    options.form = Form::kJson;
  } else if (output == "csv") {
    options.form = Form::kCsv;
  } else if (output != "text") {
    return std::unexpected(fmt::format("--output needs text, json or csv, not '{}'", output));
  }
  options.export_file = options.properties.text("exportfile", "");
  const std::string exporter = options.properties.text("exporter", "");
  const std::string_view name = std::string_view(exporter).substr(exporter.rfind('.') + 1);
  if (exporter.empty() || output != "text" || name == "TextMeasurementsExporter") return {};
  if (name == "JSONMeasurementsExporter") {
    options.form = Form::kYcsbJson;
  } else if (name == "JSONArrayMeasurementsExporter") {
    options.form = Form::kYcsbJsonArray;
  } else {
    return std::unexpected(
        fmt::format("{}unknown exporter '{}': TextMeasurementsExporter, JSONMeasurementsExporter "
                    "and JSONArrayMeasurementsExporter are supported",
                    options.properties.place("exporter"), exporter));
  }
  return {};
}

OrSentence<void> set_cpus(Options& options, const Words& words) {
  if (words.cpus.empty()) return {};
  auto processors = parse_processors(words.cpus);
  if (!processors) {
    return std::unexpected(fmt::format("--cpus {}, not '{}'", processors.error(), words.cpus));
  }
  options.cpus = std::move(*processors);
  return {};
}

OrSentence<void> set_in_flight(Options& options, const Words& words) {
  const auto in_flight =
      parse_number<std::uint64_t>(words.in_flight, 1, client::kMostReadsInFlight);
  if (!in_flight) {
    return std::unexpected(fmt::format("--in-flight needs a whole number from 1 to {}, not '{}'",
                                       client::kMostReadsInFlight, words.in_flight));
  }
  if (!words.update.empty() && words.update != "atomic" && words.update != "plain") {
    return std::unexpected(fmt::format("--update needs atomic or plain, not '{}'", words.update));
  }
  options.in_flight = static_cast<std::uint32_t>(*in_flight);
  if (options.in_flight > 1) {
    if (words.update == "atomic") {
      return std::unexpected("--update atomic needs --in-flight 1");
    }
    options.client.reads_in_flight = std::max(options.client.reads_in_flight, options.in_flight);
    options.client.requests_in_flight = static_cast<std::uint16_t>(std::clamp<std::uint32_t>(
        options.in_flight, options.client.requests_in_flight, client::kMostRequestsInFlight));
  }
  options.plain_updates = words.update == "plain" || options.in_flight > 1;
  return {};
}

OrSentence<void> set_how(Options& options, const Words& words) {
  if (auto set = set_cpus(options, words); !set) return set;
  if (auto set = set_in_flight(options, words); !set) return set;
  constexpr std::pair<const char*, Durability> kKnown[] = {{"default", Durability::kDefault},
                                                           {"memory", Durability::kMemory},
                                                           {"wal", Durability::kWal},
                                                           {"sync", Durability::kSync}};
  const auto* known =
      std::ranges::find_if(kKnown, [&](const auto& one) { return words.durability == one.first; });
  if (known == std::end(kKnown)) {
    return std::unexpected(
        fmt::format("--durability needs default, memory, wal or sync, not '{}'", words.durability));
  }
  options.durability = known->second;
  const auto seed = parse_number<std::uint64_t>(words.seed);
  if (!seed) return std::unexpected(fmt::format("--seed needs a number, not '{}'", words.seed));
  options.seed = *seed;
  if (options.seed == 0) options.seed = random_from_kernel();
  return {};
}

OrSentence<void> set_percentiles(Options& options) {
  const std::string list = options.properties.text("hdrhistogram.percentiles", "50,95,99");
  std::string_view rest = list;
  while (true) {
    const std::size_t comma = rest.find(',');
    std::string_view one = rest.substr(0, comma);
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    const auto percent = parse_number<double>(one, 0, 100);
    if (!percent) {
      return std::unexpected(fmt::format(
          "{}hdrhistogram.percentiles needs comma-separated numbers from 0 to 100, not '{}'",
          options.properties.place("hdrhistogram.percentiles"), list));
    }
    options.percentiles.push_back(*percent);
    if (comma == std::string_view::npos) return {};
    rest.remove_prefix(comma + 1);
  }
}

// Checks the directory before the run, which may take hours.
OrSentence<void> check_log_directory(const Options& options) {
  std::string directory = std::filesystem::path(options.hdr_path).parent_path();
  if (directory.empty()) directory = ".";
  if (!options.hdr_files || access(directory.c_str(), W_OK | X_OK) == 0) return {};
  return std::unexpected(fmt::format("{}histogram logs cannot be written to {}: {}",
                                     options.properties.place("hdrhistogram.output.path"),
                                     directory, std::strerror(errno)));
}

OrSentence<void> set_measurement(Options& options) {
  const Properties& properties = options.properties;
  const std::string interval = properties.text("measurement.interval", "op");
  if (interval == "intended" || interval == "both") {
    options.interval = interval == "both" ? Interval::kBoth : Interval::kIntended;
  } else if (interval != "op") {
    return std::unexpected(
        fmt::format("{}measurement.interval needs op, intended or both, not '{}'",
                    properties.place("measurement.interval"), interval));
  }
  const std::string type = properties.text("measurementtype", "hdrhistogram");
  constexpr std::string_view kOfYcsb[] = {
      "hdrhistogram",     "histogram",  "hdrhistogram+histogram",
      "hdrhistogram+raw", "timeseries", "raw"};
  if (std::ranges::find(kOfYcsb, type) == std::end(kOfYcsb)) {
    return std::unexpected(
        fmt::format("{}unknown measurementtype '{}'", properties.place("measurementtype"), type));
  }
  if (type != "hdrhistogram") {
    options.notes.push_back(
        fmt::format("measurementtype={} is not supported; hdrhistogram is used instead", type));
  }
  options.hdr_path = properties.text("hdrhistogram.output.path", "");
  if (auto checked = check_log_directory(options); !checked) return checked;
  return set_percentiles(options);
}

OrSentence<void> set_program(Options& options) {
  const Properties& properties = options.properties;
  constexpr std::uint64_t kMostThreads = 4096;
  const auto take = [&](auto value, auto& into, std::string& problem) {
    if (value) {
      into = static_cast<std::remove_reference_t<decltype(into)>>(*value);
    } else if (problem.empty()) {
      problem = value.error();
    }
  };
  std::string problem;
  bool transactions = true;
  take(properties.boolean("dotransactions", true), transactions, problem);
  options.phase = transactions ? Phase::kTransactions : Phase::kLoad;
  take(properties.number("threadcount", 1, 1, kMostThreads), options.threads, problem);
  take(properties.number("target", 0, 0, 1'000'000'000), options.target, problem);
  take(properties.boolean("spin.sleep", false), options.spin_sleep, problem);
  take(properties.boolean("status", false), options.status, problem);
  take(properties.number("status.interval", 10, 1, 86400), options.status_interval_s, problem);
  take(properties.boolean("measurement.histogram.verbose", false), options.verbose_histogram,
       problem);
  take(properties.boolean("hdrhistogram.fileoutput", false), options.hdr_files, problem);
  options.label = properties.text("label", "");
  if (!problem.empty()) return std::unexpected(problem);
  return {};
}

// kvclient's own parser parses kvclient's flags.
OrSentence<cli::Globals> connection_options(std::vector<std::string> flags,
                                            const Environment& environment) {
  flags.emplace_back("ping");
  auto parsed = cli::parse_arguments(flags, environment);
  if (parsed.kind != cli::Parsed::Kind::kCommand) return std::unexpected(parsed.text);
  return parsed.command.globals;
}

// Adds a note if many draws would hit numbers without a record and be repeated.
void note_rare_records(Options& options) {
  constexpr std::uint64_t kMany = 1000;  // draws per operation, at tens of nanoseconds each
  const WorkloadSettings& workload = options.workload;
  if (options.phase != Phase::kTransactions ||
      workload.distribution != RequestDistribution::kZipfian) {
    return;
  }
  const std::uint64_t numbers = zipfian_numbers(workload);
  if (numbers / kMany < workload.insert_count) return;
  options.notes.push_back(fmt::format(
      "operationcount and insertproportion are large: zipfian requests choose among {} numbers, of "
      "which {} are records before others are inserted, and draw about {} times for each",
      numbers, workload.insert_count, numbers / workload.insert_count));
}

void note_unknown(Options& options) {
  for (const auto& [name, property] : options.properties.all()) {
    if (is_known_property(name)) continue;
    options.notes.push_back(
        fmt::format("{}: unknown property '{}' is ignored", property.place, name));
  }
}

}  // namespace

Parsed parse_arguments(const std::vector<std::string>& arguments, const Environment& environment) {
  Words words = split(arguments);
  if (words.text != nullptr) return printed(words.text);
  if (!words.problem.empty()) return usage_error(words.problem);
  if (arguments.empty()) return usage_error("no workload given; see kvbench --help");
  Parsed parsed;
  Options& options = parsed.options;
  options.properties = std::move(words.files);
  for (auto& [name, value, flag] : words.set)
    options.properties.set(name, std::move(value), std::move(flag));
  auto connection = connection_options(std::move(words.connection), environment);
  if (!connection) return usage_error(connection.error());
  options.client = std::move(connection->client);
  options.servers = std::move(connection->servers);
  options.client.name = "kvbench";
  if (auto set = set_program(options); !set) return usage_error(set.error());
  auto workload = read_workload(options.properties, options.phase);
  if (!workload) return usage_error(workload.error());
  options.workload = std::move(*workload);
  for (auto set :
       {set_measurement(options), set_form(options, words.output), set_how(options, words)}) {
    if (!set) return usage_error(set.error());
  }
  note_unknown(options);
  note_rare_records(options);
  return parsed;
}

}  // namespace rkv::kvbench
